"""Objects of the API server become facts; one that is not as it should be is named, and nothing else."""

from copy import deepcopy

import pytest

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import Expression, Owner, PodPhase, PodTerm
from clearway.adapters.kubernetes.parse import parse_node, parse_pod, sum_requests
from clearway.adapters.kubernetes.parse_company import PREFERRED, REQUIRED
from clearway.model.units import GIB, MIB
from clearway.wire.units import AMOUNT_MAX
from support.kubernetes import GPU_NODE, JOB_POD, make_node, make_pod

CONFIG = KubernetesConfig()


def test_pod_of_a_job_is_read_whole():
    pod = parse_pod(JOB_POD, CONFIG)
    assert (pod.namespace, pod.name, pod.node, pod.phase) == ("vision", "train-0-x7k2p", "", PodPhase.PENDING)
    assert pod.owner == Owner("batch/v1", "Job", "train", "a1e3")
    assert (pod.devices, pod.demand.device) == (4, "nvidia.com/gpu")
    assert (pod.amount("cpu"), pod.amount("memory"), pod.amount("pods")) == (8_000, 64 * GIB, 1)
    assert (pod.priority, pod.index, pod.grace_ms) == (1_000, 0, 60_000)
    assert pod.unsupported == ()
    assert dict(pod.labels)["batch.kubernetes.io/job-name"] == "train"
    assert "job-name" not in dict(pod.labels)


def test_node_is_read_with_its_devices_taints_and_model():
    node = parse_node(GPU_NODE, CONFIG)
    assert (node.name, node.is_ready, node.is_cordoned) == ("gpu-1", True, False)
    assert node.devices == (("nvidia.com/gpu", 8),)
    assert dict(node.amounts)["cpu"] == 127_500
    assert (node.model, node.device_memory_bytes) == ("NVIDIA-H100-80GB-HBM3", 81_559 * MIB)
    assert [taint.key for taint in node.taints] == ["nvidia.com/gpu"]


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_node_whose_kubelet_is_silent_is_not_ready(status):
    node = make_node()
    node["status"]["conditions"] = [{"type": "Ready", "status": status}]
    assert not parse_node(node, CONFIG).is_ready


def test_mig_slices_are_devices_of_their_own():
    node = make_node()
    node["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "7"
    assert parse_node(node, CONFIG).devices == (("nvidia.com/gpu", 8), ("nvidia.com/mig-1g.10gb", 7))


def container(cpu, **more):
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def test_init_containers_count_at_their_highest_moment():
    spec = {"containers": [container("1"), container("2")], "initContainers": [container("8"), container("4")]}
    assert sum_requests(spec)["cpu"] == 8_000


def test_sidecars_count_with_the_containers_and_with_later_init_containers():
    sidecar = container("1", restartPolicy="Always")
    spec = {"containers": [container("2")], "initContainers": [sidecar, container("4")]}
    assert sum_requests(spec)["cpu"] == 5_000
    assert sum_requests({"containers": [container("6")], "initContainers": [sidecar]})["cpu"] == 7_000


def test_overhead_is_added_and_requests_of_the_whole_pod_stand_instead():
    spec = {"containers": [container("2")], "overhead": {"cpu": "250m"}, "resources": {"requests": {"cpu": "3"}}}
    assert sum_requests(spec)["cpu"] == 3_250


def test_containers_that_ask_more_together_than_can_be_counted_ask_what_no_node_has():
    assert sum_requests({"containers": [{"resources": {"requests": {"memory": "1E"}}}] * 20})["memory"] == AMOUNT_MAX


def test_limits_count_where_no_request_is_stated():
    assert sum_requests({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]})["nvidia.com/gpu"] == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"annotations": {"gpu-fraction": "0.5"}}, "beside whole devices"),
        ({"gpus": 0, "annotations": {"gpu-fraction": "1.5"}}, "between 0 and 1"),
        ({"gpus": 0, "annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}}, "several devices"),
        ({"gpus": 63}, "more than 62"),
    ],
)
def test_what_cannot_be_promised_is_named(more, words):
    (wish,) = parse_pod(make_pod(**more), CONFIG).unsupported
    assert words in wish


def test_company_is_read_with_its_namespaces_keys_and_policies():
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "topologyKey": "zone",
        "matchLabelKeys": ["version", "absent"],
        "namespaceSelector": {},
    }
    wish = {"weight": 7, "podAffinityTerm": {"labelSelector": {}, "topologyKey": "zone", "namespaces": ["b", "a"]}}
    affinity = {"podAntiAffinity": {REQUIRED: [term]}, "podAffinity": {PREFERRED: [wish]}}
    spread = {"topologyKey": "zone", "maxSkew": 2, "minDomains": 3, "nodeTaintsPolicy": "Honor"}
    soft = {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    pod = make_pod(labels={"version": "3"}, affinity=affinity, topologySpreadConstraints=[spread, soft])
    company = parse_pod(pod, CONFIG).company
    chosen = (Expression("app", "In", ("web",)), Expression("version", "In", ("3",)))
    assert company.apart == (PodTerm(chosen, (), (), "zone"),)
    assert company.near == (PodTerm((), ("a", "b"), None, "zone", 7),)
    hard, wished = company.spreads
    assert (hard.selector, hard.skew, hard.domains_min, hard.by_affinity, hard.by_taints) == (None, 2, 3, True, True)
    assert hard.weight == 0 < wished.weight


def test_pod_without_rules_about_neighbours_has_no_company():
    assert parse_pod(make_pod(), CONFIG).company is None


def test_gates_ports_and_a_coming_end_are_seen():
    pod = make_pod(schedulingGates=[{"name": "example.com/wait"}], leaving=True)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]
    facts = parse_pod(pod, CONFIG)
    assert facts.gates == ("example.com/wait",)
    assert facts.is_leaving
    assert facts.demand.ports == ((8080, "TCP", "0.0.0.0"),)


def broken(part, value):
    pod = deepcopy(JOB_POD)
    pod[part] = value
    return pod


@pytest.mark.parametrize(
    "data",
    [
        broken("spec", {}),
        broken("metadata", {"name": "x"}),
        broken("spec", {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}),
        broken("status", {"phase": "Dreaming"}),
        broken("metadata", None),
        {},
    ],
)
def test_pod_that_cannot_be_read_is_one_unreadable_object(data):
    with pytest.raises(UnreadableError, match="expected an object as the API describes it"):
        parse_pod(data, CONFIG)


def test_node_that_cannot_be_read_is_named():
    node = make_node("broken")
    node["status"]["allocatable"]["cpu"] = "-"
    with pytest.raises(UnreadableError, match="node 'broken'"):
        parse_node(node, CONFIG)


def test_pod_that_was_read_before_is_read_anew_where_its_spec_or_words_changed_and_else_only_its_state():
    data = make_pod("p", labels={"a": "1"})
    data["metadata"]["generation"] = 1
    known = parse_pod(data, CONFIG)
    data["spec"]["nodeName"], data["status"]["phase"] = "n1", "Running"
    later = parse_pod(data, CONFIG, known)
    assert later == parse_pod(data, CONFIG)
    assert (later.node, later.phase, later.demand) == ("n1", "Running", known.demand)
    assert later.demand is known.demand
    for change in (
        lambda: data["metadata"].update(generation=2),
        lambda: data["metadata"]["labels"].update(a="2"),
        lambda: data["metadata"]["annotations"].update({"clearway.io/estimate": "1h"}),
    ):
        change()
        data["spec"]["priority"] += 1
        assert parse_pod(data, CONFIG, later).priority == data["spec"]["priority"]
        later = parse_pod(data, CONFIG)


def test_grace_beyond_all_numbers_fits_the_commands_that_say_it():
    pod = make_pod("p")
    pod["spec"]["terminationGracePeriodSeconds"] = (1 << 63) - 1
    assert parse_pod(pod, CONFIG).grace_ms == AMOUNT_MAX


@pytest.mark.parametrize("said", ["[" * 100_000, '[{"id": "a", "devmem": Infinity, "type": "t"}]', "[1]", "a,b:"])
def test_node_on_which_hami_s_plugin_wrote_nonsense_is_unreadable(said):
    node = make_node("n1")
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": said}
    with pytest.raises(UnreadableError, match="n1"):
        parse_node(node, CONFIG)


@pytest.mark.parametrize(
    ("labels", "registered"),
    [
        ({"nvidia.com/gpu.memory": "9" * 63}, ""),
        ({}, f"a,1,{'9' * 40},100,t,0,true:"),
        ({}, '[{"id": {}, "devmem": %s, "type": "t", "health": true}]' % ("9" * 40)),
    ],
)
def test_memory_of_devices_beyond_all_numbers_can_be_counted(labels, registered):
    node = make_node("n1", labels=labels)
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": registered}
    assert parse_node(node, CONFIG).device_memory_bytes == AMOUNT_MAX


# --- resized in place -------------------------------------------------------------------------------------------------


def make_resized(*, wanted="2", had="8", let_in="8", pending="", generation=3):
    """A pod that runs, with what it asks of CPUs, what its container has, and what its kubelet let in."""
    pod = make_pod(node="n1", phase="Running", gpus=0, cpu=wanted)
    pod["metadata"]["generation"] = generation
    status = {"name": "main", "resources": {"requests": {"cpu": had, "memory": "1Gi"}}}
    pod["status"]["containerStatuses"] = [status | {"allocatedResources": {"cpu": let_in, "memory": "1Gi"}}]
    if pending:
        pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": pending}]
    return pod


@pytest.mark.parametrize(
    ("sizes", "milli"),
    [
        ({"wanted": "2", "had": "8", "let_in": "8"}, 8000),  # to become smaller, and has not
        ({"wanted": "2", "had": "8", "let_in": "2"}, 8000),
        ({"wanted": "2", "had": "2", "let_in": "2"}, 2000),
        ({"wanted": "16", "had": "8", "let_in": "8", "pending": "Deferred"}, 16000),
        ({"wanted": "900", "had": "8", "let_in": "8", "pending": "Infeasible"}, 8000),
    ],
)
def test_pod_that_is_resized_in_place_counts_as_kube_scheduler_counts_it(sizes, milli):
    assert parse_pod(make_resized(**sizes), CONFIG).amount("cpu") == milli


def test_sidecars_and_pods_as_a_whole_are_resized_too_and_init_containers_are_not():
    pod = make_resized(wanted="2", had="2", let_in="2")
    one = {"image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    pod["spec"]["initContainers"] = [one | {"name": "side", "restartPolicy": "Always"}, one | {"name": "init"}]
    had = {"resources": {"requests": {"cpu": "4"}}}
    pod["status"]["initContainerStatuses"] = [
        had | {"name": "side"},
        {"name": "init", "resources": {"requests": {"cpu": "90"}}},
    ]
    assert parse_pod(pod, CONFIG).amount("cpu") == 6000
    pod["spec"]["resources"], pod["status"]["resources"] = {"requests": {"cpu": "7"}}, {"requests": {"cpu": "9"}}
    assert parse_pod(pod, CONFIG).amount("cpu") == 9000


def test_pod_whose_resize_is_done_is_read_anew_though_its_spec_is_the_same():
    before = parse_pod(make_resized(), CONFIG)
    after = parse_pod(make_resized(had="2", let_in="2"), CONFIG, before)
    assert (before.amount("cpu"), after.amount("cpu")) == (8000, 2000)
    again = parse_pod(make_resized(), CONFIG, after)
    assert again.amount("cpu") == 8000


def test_ports_of_init_containers_that_end_before_the_pod_runs_are_in_nobodys_way():
    pod = make_pod(gpus=0)
    port = {"image": "x", "ports": [{"containerPort": 80, "hostPort": 80}]}
    pod["spec"]["initContainers"] = [port | {"name": "init"}]
    assert parse_pod(pod, CONFIG).demand.ports == ()
    pod["spec"]["initContainers"] = [port | {"name": "side", "restartPolicy": "Always"}]
    assert parse_pod(pod, CONFIG).demand.ports == ((80, "TCP", "0.0.0.0"),)
