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
        ("day,requests,tokens\n", "counts or measurements over time"),
        ('[\n{\n"node_id": "ab",\n"event_time": 1.5,\n', "a failure log: see --faults"),
        ("     0      0x0  c0-0c0s0n0  service        up\n", "give the log to --faults"),
        ('{\n    "k80": {\n        "(\'ResNet-18 (batch size 16)\', 1)": {\n', "the traces of its source find them"),
        ('{\n  "0": {\n    "input_tokens": "{}",\n', "its *_client_rates.csv is the workload"),
        ('<!--\nCopyright\n-->\n<system version="1">\n', "NCCL's topology"),
        ("PartitionName=a AllowGroups=ALL\n", "Slurm says of its configuration"),
        ('{\n  "meta": {\n    "plugins": {\n', "export these by `sacct --parsable2`"),
        ('{"metadata": {"gap_seconds": 195}, "data": [0, 1]}\n', "how many machines could be had"),
        ("480000,add,node1\n", "how many machines could be had"),
        ("name,size\n", "say which by --format, one of: "),
        ("", "say which by --format, one of: "),
    ],
)
def test_the_error_says_what_the_file_is_for(tmp_path, text, use):
    file = tmp_path / "file.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="expected a trace of a known format") as error:
        detect_format(file)
    assert use in str(error.value)


@needs_traces
def test_every_real_file_is_read_or_named():
    files = [path for path in sorted(TRACES.rglob("*")) if path.is_file() and path.suffix != ".md"]
    assert len(files) > 300
    unnamed = []
    for path in files:
        try:
            detect_format(path)
        except InputError as error:
            if "; it " not in str(error):
                unnamed.append(path)
    assert not unnamed
