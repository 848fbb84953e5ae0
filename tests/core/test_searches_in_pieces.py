"""Searches for victims that rest between pieces, over a model store: others have their turn, and the result is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rayched.core.groups import deciding
from rayched.core.groups.group_preemption import PIECE_SECONDS
from rayched.core.groups.search_time import VAIN_MAX
from tests.core.builders import a_node, a_pod
from tests.core.counted_steps import MOVE_SECONDS, step_clock
from tests.core.grouped import a_group, a_member, audited, bound_of, put_group, put_members, scheduled
from tests.core.leading import assumed, decide, key_of, put_node, put_pod
from tests.core.model_store import ModelStore
from tests.core.preempting import a_leader, ending, full_of, on_node, stop_ending
from tests.core.replica import Clock, Replica
from tests.core.test_group_preemption_brute_force import a_world, victims_of

NODES = 12


@pytest.fixture
def rests_at_each_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "PIECE_SECONDS", 0.0)


@pytest.fixture
def leader(rests_at_each_unit: None) -> Iterator[Replica]:
    """Every node has a pod that may go; the group that comes needs two of them."""
    replica = a_leader({f"n{number}": full_of(f"low-{number}", cpu="3") for number in range(NODES)})
    put_group(replica.store, a_group(least=2, priority=10))
    put_members(replica.store, 2, cpu="3", priority=10)
    decide(replica)
    assert replica.core.groups.n_paused == 1
    yield replica
    findings = audited(replica.store).findings
    assert findings.total == 0, findings.first


def pods_in_the_snapshot(replica: Replica) -> int:
    return sum(len(replica.core.snapshot.pods_on(f"n{number}")) for number in range(NODES))


@pytest.mark.row("GT10")
@pytest.mark.parametrize("seed", range(40))
def test_a_search_that_rests_finds_what_one_in_one_piece_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = victims_of(a_world(seed))
    monkeypatch.setattr(deciding, "PIECE_SECONDS", 0.0)
    in_pieces, _ = victims_of(a_world(seed))
    assert in_pieces == whole


def test_while_it_rests_nothing_of_it_is_in_the_snapshot(leader: Replica) -> None:
    rests = 0
    while leader.core.groups.n_paused:
        assert pods_in_the_snapshot(leader) == NODES and assumed(leader) == 0
        leader.core.decide()
        rests += 1
    assert rests >= NODES
    leader.settle()
    assert len(ending(leader)) == 2


@pytest.mark.row("GT10")
def test_pods_are_decided_about_between_two_pieces(leader: Replica) -> None:
    put_pod(leader.store, a_pod("single", cpu="1"))
    for _ in range(3):
        leader.watch()
        leader.turn()
        leader.exchange()
        leader.exchanged()
        leader.core.decide()
        leader.arrive()
    assert "single" in leader.bound() and leader.core.groups.n_paused == 1
    leader.settle()
    assert len(ending(leader)) == 2


def test_who_has_gone_meanwhile_is_nobodys_victim(leader: Replica) -> None:
    for number in range(NODES - 1):
        leader.store.delete(key_of(f"low-{number}"))
    leader.watch()
    leader.settle()
    leader.clock.now += 61.0
    leader.settle()
    assert len(bound_of(leader)) == 2


def test_where_its_room_is_taken_meanwhile_the_group_is_tried_again(leader: Replica) -> None:
    for number in range(NODES):
        put_pod(leader.store, on_node(a_pod(f"high-{number}", cpu="4", priority=99), f"n{number}"))
        leader.store.delete(key_of(f"low-{number}"))
    leader.settle()
    assert ending(leader) == [] and bound_of(leader) == [] and leader.core.groups.n_paused == 0
    assert scheduled(leader.store)[:2] == ("False", "Unschedulable")
    for name in ("new-1", "new-2"):
        put_node(leader.store, a_node(name))
    leader.clock.now += 61.0
    leader.settle()
    assert len(bound_of(leader)) == 2


@pytest.mark.parametrize(
    ("happens", "victims"),
    [
        (lambda store: store.delete(key_of("train-1")), 0),
        (lambda store: put_group(store, a_group(least=1, priority=10)), 2),
        (lambda store: put_members(store, 1, first=2, cpu="3", priority=10), 3),
    ],
    ids=["a member goes", "the minimum falls", "a member comes"],
)
def test_an_attempt_goes_on_with_the_group_as_it_was_or_not_at_all(
    leader: Replica, happens: Callable[[ModelStore], object], victims: int
) -> None:
    happens(leader.store)
    leader.watch()
    leader.settle()
    assert len(ending(leader)) == victims
    stop_ending(leader)
    leader.clock.now += 61.0
    leader.settle()
    assert len(bound_of(leader)) == victims


def test_with_the_term_the_search_ends_and_the_next_leader_makes_one_of_its_own(leader: Replica) -> None:
    leader.belief = None
    leader.core.decide()
    assert leader.core.groups.n_paused == 0 and pods_in_the_snapshot(leader) == NODES
    other = Replica(leader.store, leader.clock, "b")
    other.list()
    other.lead()
    other.settle()
    assert len(ending(other)) == 2


def test_a_queue_that_is_lost_ends_the_search_and_has_the_group_again(leader: Replica) -> None:
    leader.lose_queue()
    assert leader.core.groups.n_paused == 0
    leader.settle()
    assert len(ending(leader)) == 2


class Ticking(Clock):
    """Each look takes 40 microseconds."""

    def __call__(self) -> float:
        self.now += 0.00004
        return self.now


def test_no_piece_takes_longer_than_thirty_milliseconds() -> None:
    work, store = Ticking(0.0), ModelStore()
    for number in range(300):
        put_node(store, a_node(f"n{number}"))
        put_pod(store, on_node(a_pod(f"low-{number}", cpu="3"), f"n{number}"))
    replica = Replica(store, Clock(), work_clock=work)
    replica.list()
    replica.lead()
    replica.settle()
    put_group(store, a_group(least=100, priority=10))
    put_members(store, 100, cpu="3", priority=10)
    decide(replica)
    longest = pieces = 0.0
    while replica.core.groups.n_paused:
        began = work.now
        replica.core.decide()
        longest, pieces = max(longest, work.now - began), pieces + 1
    assert pieces > 1 and longest <= 0.03
    replica.settle()
    assert len(ending(replica)) == 100


N_OTHERS = 5_000
"""Pods that are looked at before those in the way, as they are less important."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> tuple[Replica, Clock]:
    """A leader with a group that needs what only two nodes have, and the clock of its work, in which steps are counted."""
    work, store = step_clock(monkeypatch), ModelStore()
    for number in range(500):
        put_node(store, a_node(f"n{number}", pods="500"))
    for number in range(N_OTHERS):
        put_pod(store, on_node(a_pod(f"low-{number}", cpu="100m"), f"n{number % 500}"))
    for number in range(2):
        put_node(store, a_node(f"special-{number}", labels={"kind": "special"}))
        put_pod(store, on_node(a_pod(f"there-{number}", cpu="3", priority=5), f"special-{number}"))
    replica = Replica(store, Clock(), work_clock=work)
    replica.list()
    replica.lead()
    replica.settle()
    put_group(store, a_group(least=2, priority=10))
    put_members(store, 2, cpu="3", priority=10, selector={"kind": "special"})
    return replica, work


def pieces_of(replica: Replica, work: Clock) -> list[float]:
    """Seconds that each piece of the search takes of the thread."""
    began = work.now
    decide(replica)
    took = [work.now - began]
    while replica.core.groups.n_paused:
        began = work.now
        replica.core.decide()
        took.append(work.now - began)
    return took


@pytest.mark.row("GT10")
def test_with_five_thousand_pods_to_be_off_at_once_others_get_their_turn_after_twenty_milliseconds(
    counted: tuple[Replica, Clock],
) -> None:
    replica, work = counted
    took = pieces_of(replica, work)
    assert sum(piece > 1.1 * PIECE_SECONDS for piece in took) <= len(took) / VAIN_MAX, took
    # What has to be off and does not come off in that time gets it once in a while: off, as long again, and back.
    assert max(took) <= 4 * N_OTHERS * MOVE_SECONDS
    replica.settle()
    assert ending(replica) == ["there-0", "there-1"]


@pytest.mark.row("GT10")
def test_while_nobody_waits_a_search_goes_on_and_who_comes_waits_for_what_is_off_to_come_back(
    counted: tuple[Replica, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, work = counted
    replica.others_wait = False
    came: list[float] = []
    real = replica.core.snapshot.unbind

    def unbind(uid: str) -> object:
        found = real(uid)
        if not came and not replica.core.snapshot.n_pods:
            # All are off by now.
            came.append(work.now)
            replica.others_wait = True
        return found

    monkeypatch.setattr(replica.core.snapshot, "unbind", unbind)
    decide(replica)
    while not came:
        replica.core.decide()
    assert replica.core.groups.n_paused == 1
    assert work.now - came[0] <= 1.2 * N_OTHERS * MOVE_SECONDS
    assert sum(len(replica.core.snapshot.pods_on(f"n{number}")) for number in range(500)) == N_OTHERS
    replica.others_wait = False
    pieces_of(replica, work)
    replica.settle()
    assert ending(replica) == ["there-0", "there-1"]


def test_a_member_that_comes_while_units_are_looked_for_belongs_to_its_unit(rests_at_each_unit: None) -> None:
    replica = a_leader({"n1": [], "n2": [], "n3": full_of("spare", cpu="2", priority=50)})
    put_group(replica.store, a_group("batch", 2, whole=True))
    put_members(replica.store, 2, "batch", cpu="3")
    replica.settle()
    put_group(replica.store, a_group(least=2, priority=10))
    put_members(replica.store, 2, cpu="3", priority=10)
    decide(replica)
    assert replica.core.groups.n_paused == 1
    for node in ("n1", "n2"):
        put_pod(replica.store, on_node(a_member(f"batch-on-{node}", "batch", cpu="100m"), node))
    replica.watch()
    replica.settle()
    assert ending(replica) == ["batch-0", "batch-1", "batch-on-n1", "batch-on-n2"]
