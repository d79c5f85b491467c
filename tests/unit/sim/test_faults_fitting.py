import json

import pytest

from clearway.model.errors import InputError
from clearway.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from clearway.sim.faults import DEFAULT_FAULTS, EXPONENTIAL_GAPS, fit_faults
from clearway.sim.quantiles import PROBABILITIES, mean_of_quantiles
from support.files import write_lines
from support.shared import TRACES, needs_traces


def event(node, day, kind, fault_class):
    return {"node_id": node, "event_time": day, "event_type": kind, "fault_type": {"Class": fault_class}}


def test_gpu_faults_count_as_faults_of_a_device_and_others_of_the_node(tmp_path):
    events = [
        event("a", 0.0, "fault_start", "NIC"),
        event("a", 1.0, "fault_end", "NIC"),
        event("b", 10.0, "fault_start", "GPU"),
        event("b", 12.0, "fault_end", "GPU"),
        event("c", 99.0, "fault_end", "GPU"),
        {"node_id": "d"},
        event("d", 100.0, "fault_start", "NIC"),
    ]
    fit = fit_faults(write_lines(tmp_path / "f.json", json.dumps(events, indent=1)), units=4)
    assert (fit.units, fit.faults) == (4, 2)
    assert fit.model.node.mtbf_ms == 4 * 100 * DAY_MS - DAY_MS
    assert fit.model.device.mtbf_ms == 8 * 4 * 100 * DAY_MS - 2 * DAY_MS
    assert set(fit.model.device.repair_quantiles_ms) == {2 * DAY_MS}
    assert fit.model.node.gap_quantiles == EXPONENTIAL_GAPS
    assert [part.lines for part in fit.skipped] == [(5,), (6,)]


def test_titan_failures_per_time_in_service_without_the_service_nodes(tmp_path):
    write_lines(tmp_path / "titan.service.txt", "     0      0x0  c0-0c0s0n0  service        up       other")
    path = write_lines(
        tmp_path / "gc.csv",
        "SN,location,insert,remove,duration,out,event",
        f"1,c1-0c0s0n0,a,b,{30 * 86400},TRUE,DBE",
        f"2,c1-0c0s0n1,a,b,{60 * 86400},FALSE,",
        f"3,c0-0c0s0n0,a,b,{60 * 86400},TRUE,DBE",
        "4,c1-0c0s0n2,,b,,,OTB",
    )
    fit = fit_faults(path)
    assert (fit.units, fit.faults, fit.model.node) == (2, 1, None)
    assert fit.model.device.mtbf_ms == 90 * DAY_MS
    assert {part.reason: part.lines for part in fit.skipped} == {"a service node": (4,), "no time in service": (5,)}


def test_lanl_outages_by_node_of_a_system(tmp_path):
    header = (
        "System,machine type,nodes,procstot,procsinnode,nodenum,nodenumz,node install,node prod,node decom,fru type,"
        "mem,cputype,memtype,num intercon,purpose,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,Human Error,"
        "Network,Undetermined,Software,Same Event"
    )
    row = "2,cluster,10,80,8,0,{node},a,b,c,part,80,1,1,0,x,{start},{end},6,,H,,,,,No"
    path = write_lines(
        tmp_path / "l.csv",
        header,
        row.format(node=0, start="6/1/2005 00:00", end="6/1/2005 01:00"),
        row.format(node=3, start="6/11/2005 00:00", end="6/11/2005 03:00"),
        row.format(node=3, start="6/11/2005 09:00", end="6/11/2005 03:00"),
        row.format(node="", start="6/11/2005 09:00", end="6/11/2005 10:00"),
    )
    fit = fit_faults(path)
    assert (fit.units, fit.faults) == (10, 2)
    assert fit.model.node.mtbf_ms == (10 * (10 * DAY_MS + 3 * HOUR_MS) - 4 * HOUR_MS) // 2
    assert fit.model.node.repair_quantiles_ms[0] == HOUR_MS
    assert fit.model.node.repair_quantiles_ms[-1] == 3 * HOUR_MS
    assert [part.lines for part in fit.skipped] == [(4,), (5,)]


def test_grid5000_availability(tmp_path):
    path = write_lines(
        tmp_path / "g.tab",
        "# event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time end_reason",
        "0 0 7 5 n 1 0 864000 NULL",
        "1 0 7 5 n 0 864000 867600 NULL",
        "2 0 7 5",
    )
    fit = fit_faults(path)
    assert (fit.units, fit.faults, fit.model.node.mtbf_ms) == (1, 1, 10 * DAY_MS)
    assert fit.skipped[0].lines == (4,)


def test_another_file_or_a_log_without_failures_is_an_error(tmp_path):
    with pytest.raises(InputError, match="expected a failure log"):
        fit_faults(write_lines(tmp_path / "x.csv", "a,b"))
    with pytest.raises(InputError, match="at least one failure"):
        fit_faults(write_lines(tmp_path / "g.tab", "# event_id component_id node_id", "0 0 7 5 n 1 0 864000 NULL"))


def test_the_built_in_tables_rise_and_their_gaps_have_mean_one():
    for unit in (DEFAULT_FAULTS.node, DEFAULT_FAULTS.device):
        assert len(unit.gap_quantiles) == len(PROBABILITIES)
        assert list(unit.gap_quantiles) == sorted(unit.gap_quantiles)
        assert list(unit.repair_quantiles_ms) == sorted(unit.repair_quantiles_ms)
        assert mean_of_quantiles(unit.gap_quantiles) == pytest.approx(1.0, rel=0.01)
    assert mean_of_quantiles(EXPONENTIAL_GAPS) == pytest.approx(1.0, rel=0.02)


@needs_traces
def test_the_built_in_model_is_what_the_real_log_gives():
    fit = fit_faults(TRACES / "infinitehbd-faults" / "fault_trace_half_a.json")
    assert (fit.units, fit.faults, fit.skipped) == (211, 321, ())
    for built_in, fitted in ((DEFAULT_FAULTS.node, fit.model.node), (DEFAULT_FAULTS.device, fit.model.device)):
        assert built_in.mtbf_ms == pytest.approx(fitted.mtbf_ms, rel=0.01)
        assert built_in.gap_quantiles == pytest.approx(fitted.gap_quantiles, rel=1e-2, abs=1e-4)
        assert built_in.repair_quantiles_ms == pytest.approx(fitted.repair_quantiles_ms, abs=MINUTE_MS)


@needs_traces
@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("titan-gpu-life/gc_full.csv.gz", 5_209),
        ("hpc-node-failures/LANL_LA-UR-05-7318_failure-data-1996-2005.csv.gz", 23_613),
        ("hpc-node-failures/grid5000_event_trace.tab.gz", 294_145),
    ],
)
def test_the_real_logs_can_be_fitted(name, faults):
    assert fit_faults(TRACES / name).faults == faults
