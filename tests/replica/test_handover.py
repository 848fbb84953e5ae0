"""Who ceases to work hands over: on SIGTERM at any time, and when its scheduler hangs. A second SIGTERM is obeyed at once."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaProcess
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.ray.actor_supervisor import SPARE_READS_MAX
from rayched.replica.ray.processes import descendants
from tests.replica.clusters import SmallCluster, kill, left_alive, nothing_left, own_directories, tree_of, until_true

START_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    """Two replicas, which the tests take as the ones before left them."""
    with nothing_left() as pids, SmallCluster(tmp_path_factory.mktemp("pair"), replicas=2, workers=1) as pair:
        until_true(lambda: all(map(stands, pair.local.replicas)), START_SECONDS_MAX, "not both stand for election")
        pids |= {pid for replica in pair.local.replicas for pid in tree_of(replica.pid)}
        yield pair


@pytest.mark.cluster
def test_a_scheduler_that_hangs_costs_its_replica_the_lead_and_is_replaced(pair: SmallCluster) -> None:
    pair.submit(20)
    pair.wait_until_all_bound()
    first, scheduler = pair.leader(), pair.pid_of("scheduler")
    os.kill(scheduler, signal.SIGSTOP)
    pair.submit(20)
    pair.wait_until_all_bound()
    (other,) = (replica for replica in pair.local.replicas if replica is not first)
    # On a host that is busy that one may have lost the lead again since.
    assert "became leader" in log_of(other)
    assert left_alive({scheduler}, 30.0) == {}
    assert first.running
    until_true(lambda: log_of(first).count("has read the cluster") == 2, START_SECONDS_MAX, "the scheduler is not replaced")


@pytest.mark.cluster
def test_a_worker_and_a_spare_process_run_where_the_lead_is_and_end_with_it(pair: SmallCluster) -> None:
    alone = Counter({"QueueActor": 1, "SchedulerProcess": 1})
    for _ in range(2):
        first = pair.leader()
        (other,) = (replica for replica in pair.local.replicas if replica is not first)
        for replica, actors in ((first, alone + Counter(SchedulerProcess=1, FilterScoreWorker=1)), (other, alone)):
            until_true(lambda: actors_of(replica) == actors, START_SECONDS_MAX, f"{actors_of(replica)}, not {actors}")  # noqa: B023
        os.kill(pair.pid_of("scheduler"), signal.SIGSTOP)
        until_true(lambda: pair.leader() is other, START_SECONDS_MAX, "nobody takes over")  # noqa: B023


@pytest.mark.cluster
def test_a_scheduler_that_dies_before_it_has_a_spare_hands_over(pair: SmallCluster) -> None:
    def lose_the_spare() -> None:
        kill(pair.pid_of("spare"))
        until_true(lambda: "spare" not in pair.wait_for_leader().pids, 5.0, "the spare process does not die")

    hands_over_when_its_scheduler_dies(pair, lose_the_spare)


@pytest.mark.cluster
def test_a_scheduler_whose_spare_process_had_long_to_read_hands_over(pair: SmallCluster) -> None:
    pair.create_namespaces(SPARE_READS_MAX)
    pair.pid_of("spare")
    first = hands_over_when_its_scheduler_dies(pair)
    until_true(lambda: log_of(first).count("joins the election") > 1, START_SECONDS_MAX, "it does not stand again")


@pytest.mark.row("L26")
@pytest.mark.cluster
def test_a_stopped_leader_hands_over_and_leaves_nobody_behind(pair: SmallCluster) -> None:
    first = pair.leader()
    epoch = pair.client.leader().epoch
    tree, given_up = tree_of(first.pid), leads_given_up(pair, first)
    first.signal(signal.SIGTERM)
    # The one that stops may still bind these.
    pair.submit(20)
    until_true(lambda: pair.client.leader().epoch > epoch, START_SECONDS_MAX, "nobody takes over")
    pair.submit(5)
    pair.wait_until_all_bound()
    assert pair.first_binding_after(epoch)
    assert leads_given_up(pair, first) == given_up + 1
    # One that does not stop in order within its time ends with 1.
    assert first.wait(START_SECONDS_MAX) == 0
    assert left_alive(tree) == {}
    assert "writing has stopped" in log_of(first)


@pytest.mark.cluster
def test_a_second_signal_is_obeyed_at_once(pair: SmallCluster) -> None:
    last = pair.leader()
    # Without etcd nothing can be handed over, and that takes its time.
    assert pair.local.etcd is not None
    etcd = pair.local.etcd.pid
    assert etcd is not None
    tree = tree_of(last.pid)
    os.kill(etcd, signal.SIGSTOP)
    try:
        last.signal(signal.SIGTERM)
        until_true(lambda: "stopping" in log_of(last), START_SECONDS_MAX, "the signal is not noticed")
        last.signal(signal.SIGTERM)
        assert last.wait(START_SECONDS_MAX) == 1
        # Not because its time was over.
        assert "told to stop twice: leaving" in log_of(last)
        assert left_alive(tree) == {}
        assert own_directories(last.pid) == []
    finally:
        os.kill(etcd, signal.SIGCONT)


@pytest.mark.cluster
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(lambda replica: "the API listens" in log_of(replica), id="while Ray starts"),
        pytest.param(lambda replica: "Ray is there" in log_of(replica), id="while the actors start"),
    ],
)
def test_a_replica_that_is_stopped_during_its_start_leaves_in_order(
    tmp_path: Path, etcd: EtcdServer, etcd_root: str, moment: Callable[[ReplicaProcess], bool]
) -> None:
    options = ["--workers", "1", "--etcd-root", etcd_root]
    with nothing_left() as pids, LocalCluster(tmp_path, 1, etcd_endpoints=[etcd.endpoint], options=options) as cluster:
        (replica,) = cluster.replicas
        until_true(lambda: moment(replica), START_SECONDS_MAX, "it does not start")
        time.sleep(0.05)
        pids |= {replica.pid, *descendants(replica.pid)}
        replica.signal(signal.SIGTERM)
        assert replica.wait(START_SECONDS_MAX) == 0, log_of(replica)
        assert left_alive(pids) == {}


def hands_over_when_its_scheduler_dies(pair: SmallCluster, just_before: Callable[[], None] = lambda: None) -> ReplicaProcess:
    """The replica that led; another one leads, and its scheduler has been replaced."""
    first, scheduler, epoch = pair.leader(), pair.pid_of("scheduler"), pair.client.leader().epoch
    begun, given_up = log_of(first).count("has read the cluster"), leads_given_up(pair, first)
    just_before()
    kill(scheduler)
    pair.submit(20)
    pair.wait_until_all_bound()
    assert pair.first_binding_after(epoch)
    assert leads_given_up(pair, first) == given_up + 1
    assert pair.leader() is not first
    until_true(lambda: log_of(first).count("has read the cluster") > begun, START_SECONDS_MAX, "the scheduler is not replaced")
    return first


def leads_given_up(pair: SmallCluster, leader: ReplicaProcess) -> int:
    """How often the other replica saw a lead given up: one that runs out names its holder until the next one has it."""
    (other,) = (replica for replica in pair.local.replicas if replica is not leader)
    return log_of(other).count(": nobody")


def actors_of(replica: ReplicaProcess) -> Counter[str]:
    """Of its Ray, by class, as Ray titles their processes."""
    commands = [Path(f"/proc/{pid}/cmdline") for pid in descendants(replica.pid)]
    titles = [command.read_bytes().partition(b"\0")[0].decode() for command in commands if command.exists()]
    names = [title.removeprefix("ray::").partition(".")[0].strip() for title in titles if title.startswith("ray::")]
    return Counter(name for name in names if name != "IDLE")


def stands(replica: ReplicaProcess) -> bool:
    return "joins the election" in log_of(replica)


def log_of(replica: ReplicaProcess) -> str:
    return replica.log_file.read_text() if replica.log_file.exists() else ""
