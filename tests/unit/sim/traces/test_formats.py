"""What a file that is no list of jobs is for."""

import pytest

from clearway.model.errors import InputError
from clearway.sim.traces.formats import detect_format
from support.shared import TRACES, needs_traces


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ("sn,cpu_milli,memory_mib,gpu,model\n", "a list of nodes: give it to --cluster"),
        ("System,machine type,nodes\n", "a failure log: see --faults"),
        ("placement,local_bsz,step_time,sync_time\n", "the traces of its source find them"),
        ("global_batch_size,1,2,4\n64,6.0,8.6,10.3\n", "as `speedup` of elastic jobs"),
        ("day,requests,tokens\n", "say which by --format, one of: "),
    ],
)
def test_the_error_says_what_the_file_is_for(tmp_path, text, use):
    file = tmp_path / "file.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="expected a trace of a known format") as error:
        detect_format(file)
    assert use in str(error.value)


@needs_traces
@pytest.mark.parametrize(
    "name",
    [
        "alibaba-genai-v2026/qps.csv.gz",
        "alibaba-gpu-node-inventories/pai_v2020_machine_spec.csv",
        "elasticflow/throughputs_A100/bert.csv",
        "helios/earth_vc_gpu_number.csv",
        "hpc-node-failures/grid5000_event_trace.tab.gz",
        "pollux/profiles/bert/validation-12.csv",
        "sia/profiles/bert/placements-dgx.csv",
        "titan-gpu-life/gc_full.csv.gz",
        "vidur-network/a100_dgx/send_recv.csv",
        "zeus-energy/summary_power_a40.csv",
    ],
)
def test_real_files_that_hold_no_jobs_are_named(name):
    with pytest.raises(InputError) as error:
        detect_format(TRACES / name)
    assert "; it " in str(error.value)
