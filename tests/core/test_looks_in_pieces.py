"""Looks at groups for who asks, over a model store: in pieces of 5 ms, between which the cluster is as it was for everybody."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from rayched.core.explaining import CannotExplain, look_at
from rayched.core.groups import looking
from rayched.core.groups.group_preemption import run
from rayched.core.groups.looking import LOOKS_MAX
from rayched.v1.services_pb2 import ExplainRequest, GroupExplanation
from tests.core.builders import a_node, a_pod
from tests.core.counted_steps import step_clock
from tests.core.grouped import a_group, bound_of, put_group, put_members
from tests.core.leading import a_replica, assumed, put_node, put_pod
from tests.core.model_store import ModelStore
from tests.core.preempting import a_leader, ending, full_of, on_node, until_sent
from tests.core.replica import Clock, Replica

PIECE_MAX = 0.005
"""What a question may take of the thread at a stretch (ADR 69)."""


def told(replica: Replica, name: str = "default/train") -> GroupExplanation:
    found = run(replica.core.groups.looks.of(name))
    assert found is not None
    return found


def state_of(replica: Replica) -> tuple[object, ...]:
    """All that a look could leave behind."""
    core = replica.core
    pods = {name: list(core.snapshot.pods_on(name)) for name in core.snapshot.node_names()}
    nominated = {uid: core.scheduler.nominations.node_of(uid) for uid in core.scheduler.nominations.of}
    return pods, assumed(replica), core.scheduler.draws(), nominated, list(core.scheduler.freed), core.snapshot.requested.tolist()


@pytest.fixture
def rests_at_each_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "PIECE_SECONDS", 0.0)


def three_too_many() -> Replica:
    """Of a group of 8, which needs all of them, 5 fit."""
    replica = a_replica("n1", "n2", "n3", "n4", "n5")
    put_group(replica.store, a_group(least=8))
    put_members(replica.store, 8, cpu="3")
    replica.settle()
    assert bound_of(replica) == []
    return replica


def two_that_need_nodes_of_others() -> Replica:
    replica = a_leader({f"n{number}": full_of(f"low-{number}", cpu="3") for number in range(6)})
    put_group(replica.store, a_group(least=2, priority=10))
    put_members(replica.store, 2, cpu="3", priority=10)
    until_sent(replica)
    # The group waits for its victims: its members have nominations.
    replica.settle()
    return replica


def in_two_zones() -> Replica:
    replica = a_replica()
    for name, zone in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("c1", "")):
        put_node(replica.store, a_node(name, labels={"zone": zone} if zone else {}))
    put_group(replica.store, a_group(least=3, topology="zone"))
    put_members(replica.store, 3, cpu="3")
    replica.settle()
    return replica


WORLDS = {"too many": three_too_many, "in the way": two_that_need_nodes_of_others, "zones": in_two_zones}


@pytest.mark.row("G66")
@pytest.mark.parametrize("world", WORLDS)
def test_a_look_in_pieces_tells_what_one_in_one_piece_tells(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = told(WORLDS[world]())
    monkeypatch.setattr(looking, "PIECE_SECONDS", 0.0)
    assert told(WORLDS[world]()) == whole


@pytest.mark.row("G66")
def test_it_tells_how_many_fit_and_what_stands_against_the_next_one() -> None:
    found = told(three_too_many())
    assert (found.fit, found.waiting, found.min_count) == (5, 8, 8)
    assert "5 Insufficient cpu" in found.reason and found.next.startswith("default/train-")
    zones = told(in_two_zones())
    assert (zones.fit, zones.domain) == (2, "zone=b")


@pytest.mark.row("G66")
@pytest.mark.parametrize("world", WORLDS)
def test_between_two_pieces_and_after_the_last_one_nothing_of_it_is_there(world: str, rests_at_each_member: None) -> None:
    replica = WORLDS[world]()
    before, pieces = state_of(replica), replica.core.groups.looks.of("default/train")
    rests = 0
    for _ in pieces:
        rests += 1
        assert state_of(replica) == before
    assert rests >= 2 and state_of(replica) == before
    # Whoever does not go on leaves nothing either.
    other = replica.core.groups.looks.of("default/train")
    next(other)
    other.close()
    assert state_of(replica) == before


def test_room_that_others_take_meanwhile_is_not_counted(rests_at_each_member: None) -> None:
    replica = three_too_many()
    pieces = replica.core.groups.looks.of("default/train")
    for _ in range(4):
        next(pieces)
    for number in range(1, 6):
        put_pod(replica.store, on_node(a_pod(f"other-{number}", cpu="4"), f"n{number}"))
    replica.watch()
    assert run_on(pieces).fit == 0


def test_a_node_that_goes_meanwhile_is_not_counted(rests_at_each_member: None) -> None:
    replica = three_too_many()
    pieces = replica.core.groups.looks.of("default/train")
    for _ in range(4):
        next(pieces)
    for name in ("n1", "n2", "n3", "n4"):
        replica.core.snapshot.remove_node(name)
    assert run_on(pieces).fit == 1


def run_on(pieces: Generator[None, None, GroupExplanation | None]) -> GroupExplanation:
    found = run(pieces)
    assert found is not None
    return found


def test_pods_are_decided_about_between_two_pieces(rests_at_each_member: None) -> None:
    replica = three_too_many()
    pieces = replica.core.groups.looks.of("default/train")
    next(pieces)
    put_pod(replica.store, a_pod("single", cpu="1"))
    replica.settle()
    assert "single" in replica.bound()
    assert run_on(pieces).fit == 5, "a member and the pod fit on a node"


def test_a_group_that_changes_meanwhile_is_looked_at_anew_and_not_for_ever(rests_at_each_member: None) -> None:
    replica = three_too_many()
    pieces = replica.core.groups.looks.of("default/train")
    next(pieces)
    put_members(replica.store, 1, first=8, cpu="3")
    replica.watch()
    assert run_on(pieces).waiting == 9
    core = replica.core
    looked = look_at(core.groups.looks.of, core.cache, core.scheduler, core.snapshot, asks("train"))
    with pytest.raises(CannotExplain, match="pod group default/train changes faster than it can be looked at"):
        for number in range(LOOKS_MAX + 1):
            next(looked)
            put_members(replica.store, 1, first=9 + number, cpu="3")
            replica.watch()


def asks(group: str) -> ExplainRequest:
    return ExplainRequest(namespace="default", name=f"podgroup:{group}")


def a_large_group(monkeypatch: pytest.MonkeyPatch, n_members: int, n_nodes: int) -> tuple[Replica, Clock]:
    """A group that lacks one node, and the clock of the thread's work."""
    work, store = step_clock(monkeypatch), ModelStore()
    for number in range(n_nodes):
        put_node(store, a_node(f"n{number}"))
    replica = Replica(store, Clock(), work_clock=work)
    replica.list()
    replica.lead()
    replica.settle()
    put_group(store, a_group(least=n_members))
    put_members(store, n_members, cpu="1")
    replica.settle()
    assert bound_of(replica) == []
    return replica, work


def pieces_of(replica: Replica, work: Clock) -> tuple[GroupExplanation, list[float]]:
    """The answer, and the seconds of each piece."""
    pieces = replica.core.groups.looks.of("default/train")
    took: list[float] = []
    while True:
        began = work.now
        try:
            next(pieces)
        except StopIteration as end:
            found: GroupExplanation = end.value
            return found, [*took, work.now - began]
        took.append(work.now - began)


@pytest.mark.row("G66")
def test_no_piece_takes_longer_than_five_milliseconds_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    replica, work = a_large_group(monkeypatch, 204, 50)
    found, took = pieces_of(replica, work)
    assert (found.fit, found.waiting) == (200, 204)
    assert "50 Insufficient cpu" in found.reason
    assert len(took) >= 2 and max(took) <= PIECE_MAX


def test_where_lifting_and_putting_back_takes_the_whole_piece_it_tells_how_many_fit_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica, work = a_large_group(monkeypatch, 804, 200)
    found, took = pieces_of(replica, work)
    assert 100 < found.fit < 800 and found.next.startswith("default/train-")
    assert found.reason == "it and those after it were not tried: others have come between each time"
    assert max(took) <= PIECE_MAX


def test_while_nobody_waits_all_are_counted_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    replica, work = a_large_group(monkeypatch, 804, 200)
    replica.others_wait = False
    found, took = pieces_of(replica, work)
    assert found.fit == 800 and len(took) == 1


def test_whoever_comes_meanwhile_ends_the_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    replica, work = a_large_group(monkeypatch, 804, 200)
    replica.others_wait = False
    began, ended = work.now, list[float]()
    real = replica.core.scheduler.schedule

    def schedule(*arguments: object, **options: object) -> object:
        if work.now >= began + 0.010 and not replica.others_wait:
            replica.others_wait = True
            ended.append(work.now)
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(replica.core.scheduler, "schedule", schedule)
    next(replica.core.groups.looks.of("default/train"))
    # What was placed in 10 ms is lifted; nothing more is placed.
    assert work.now - ended[0] <= PIECE_MAX


@pytest.mark.row("G66")
def test_who_would_have_to_end_is_found_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    work, store = step_clock(monkeypatch), ModelStore()
    for number in range(300):
        put_node(store, a_node(f"n{number}"))
        put_pod(store, on_node(a_pod(f"low-{number}", cpu="3"), f"n{number}"))
    replica = Replica(store, Clock(), work_clock=work)
    replica.list()
    replica.lead()
    replica.settle()
    put_group(store, a_group(least=20, priority=10))
    put_members(store, 20, cpu="3", priority=10)
    replica.watch()
    found, took = pieces_of(replica, work)
    assert len(found.victims) == 20 and ending(replica) == []
    assert len(took) > 2 and max(took) <= PIECE_MAX
