"""The scheduler is killed again and again, and the API server answers badly: what holds after that, counted.

Small here; `--scheduler-kills 200` kills it 200 times while 2,000 pods are bound.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.cluster import Cluster
from support.kube_faults import Faults
from support.kube_lives import Lives
from support.kube_scheduling import Scheduling
from support.kube_watching import Watching

GPUS = 8
GANG = 8
PODS_PER_KILL = 10
"""Eight of a gang, and two single ones."""

FIRST_KILLS = 5
"""So many kills' worth of pods wait from the start, so that there is always something to bind."""

CREATORS = 8
SETTLE_S = 240


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory):
    """Without kubelets, and with nodes that count as there although none says so: pods that are bound stay."""
    cluster = Cluster(tmp_path_factory.mktemp("faults"), "--leases", "36000")
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(control_plane):
    yield control_plane
    control_plane.call("DELETE", "/api/v1/namespaces/default/pods", params={"gracePeriodSeconds": "0"})
    control_plane.call("DELETE", "/api/v1/nodes")


@pytest.fixture
def watching(cluster):
    watching = Watching(cluster)
    yield watching
    watching.close()


def add_nodes(cluster, gpus):
    """As many nodes as have that many GPUs: in the end none of them has a free one."""
    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(lambda number: cluster.add_node(f"n{number}", gpus=GPUS), range(gpus // GPUS)))


def add_pods(cluster, group):
    """A gang and two single pods."""
    said = {"clearway.io/gang": f"g{group}", "clearway.io/gang-size": str(GANG)}
    for number in range(PODS_PER_KILL):
        cluster.add_pod(f"p{group}-{number}", annotations=said if number < GANG else {})


def check_whole(watching, pods):
    assert max(watching.devices_used().values()) <= GPUS
    assert set(watching.gangs().values()) == {GANG}
    assert watching.bound == pods
    assert not watching.moved


@pytest.mark.slow
def test_scheduler_killed_at_random_moments_binds_every_pod_once_and_every_gang_whole(
    cluster, watching, tmp_path, request
):
    kills = request.config.getoption("--scheduler-kills")
    pods = kills * PODS_PER_KILL
    add_nodes(cluster, pods)
    draw, moment, at_work, by_halves = random.Random(kills), threading.Event(), 0, 0
    lives = Lives(cluster.kubeconfig, tmp_path)
    try:
        with ThreadPoolExecutor(CREATORS) as pool:
            made = [pool.submit(add_pods, cluster, group) for group in range(FIRST_KILLS)]
            for kill in range(kills):
                if kill + FIRST_KILLS < kills:
                    made.append(pool.submit(add_pods, cluster, kill + FIRST_KILLS))
                lives.begin()
                if draw.random() < 0.7:
                    watching.until_bound(min(watching.bound + draw.randint(1, PODS_PER_KILL), pods), 20)
                    moment.wait(draw.uniform(0.0, 0.03))
                else:
                    moment.wait(draw.uniform(0.0, 1.0))
                lives.kill()
                at_work += watching.bound < pods
                by_halves += sum(0 < count < GANG for count in watching.gangs().values())
                assert max(watching.devices_used().values(), default=0) <= GPUS
            for one in made:
                one.result()
        lives.begin()
        watching.await_all_bound(pods, SETTLE_S)
        check_whole(watching, pods)
    finally:
        lives.close()
    print(f"{kills} kills, {at_work} of them with pods yet to bind, {by_halves} gangs cut by one; {pods} pods bound")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_api_server_that_refuses_cuts_and_forgets_gets_every_pod_bound_once(cluster, watching, tmp_path, seed):
    groups = 4
    add_nodes(cluster, groups * PODS_PER_KILL)
    faults = Faults(cluster, tmp_path, seed)
    try:
        with Scheduling(faults.kubeconfig, tmp_path / "clearway.db"):
            for group in range(groups):
                add_pods(cluster, group)
            watching.await_all_bound(groups * PODS_PER_KILL, SETTLE_S)
            check_whole(watching, groups * PODS_PER_KILL)
    finally:
        faults.close()
    assert {"409", "429", "503", "cut before", "cut after"} <= set(faults.counts)
    assert {"410", "watch cut", "watch too old"} & set(faults.counts)
