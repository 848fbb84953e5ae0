"""Bindings that other schedulers decided: judged and written by the leader, beside its own. As scripted histories."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from rayched.actors import foreign_binding_calls
from rayched.actors.inbox import Inbox
from rayched.core.writes.foreign_bindings import BindingEnd, ForeignBinding, ForeignBindingAnswer
from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_pod
from tests.core.leading import a_replica, assumed, decide, key_of, put_pod, take_room
from tests.core.replica import Replica
from tests.planted_bugs import FOREIGN, planted

PATIENCE_SECONDS = 8.0


@dataclass
class Asker:
    """Another scheduler, and what it was told."""

    replica: Replica
    told: list[ForeignBindingAnswer] = field(default_factory=list)

    def bind(self, pod: str, node: str, uid: str = "") -> None:
        until = self.replica.clock.now + PATIENCE_SECONDS
        self.replica.core.bindings.foreign.ask(ForeignBinding(f"default/{pod}", uid, node), self.told.append, until)

    @property
    def ends(self) -> list[BindingEnd]:
        return [one.end for one in self.told]


def a_foreign_pod(name: str, cpu: str = "1") -> Pod:
    pod = a_pod(name, cpu=cpu)
    pod.spec.scheduler_name = "another"
    return pod


def having(*pods: Pod, nodes: tuple[str, ...] = ("n1",)) -> tuple[Replica, Asker]:
    """A leader that has seen these pods, and somebody who asks it."""
    replica = a_replica(*nodes)
    for pod in pods:
        put_pod(replica.store, pod)
    replica.watch()
    replica.settle()
    return replica, Asker(replica)


@pytest.mark.row("KC31")
def test_a_pod_of_another_scheduler_is_left_to_it_and_bound_when_it_says_so() -> None:
    replica, asker = having(a_foreign_pod("web"))
    assert replica.bound() == {} and replica.core.attempts.total() == 0
    asker.bind("web", "n1", uid=uid_of(replica, "web"))
    replica.settle()
    assert asker.ends == [BindingEnd.BOUND] and asker.told[0].revision > 0
    assert replica.bound() == {"web": "n1"} and assumed(replica) == 0
    stored = replica.store.pod(key_of("web"))
    assert stored is not None and [one.status for one in stored.status.conditions] == ["True"]
    asker.bind("web", "n1", uid=uid_of(replica, "web"))
    asker.bind("web", "n1")
    asker.bind("web", "n2", uid=uid_of(replica, "web"))
    replica.settle()
    assert asker.ends[1:] == [BindingEnd.BOUND, BindingEnd.CONFLICT, BindingEnd.CONFLICT]


def uid_of(replica: Replica, name: str) -> str:
    pod = replica.store.pod(key_of(name))
    assert pod is not None
    return pod.metadata.uid


@pytest.mark.row("KC31")
def test_what_cannot_be_bound_is_refused_with_its_reason_and_takes_no_room() -> None:
    gated = a_foreign_pod("gated")
    gated.spec.scheduling_gates.add(name="later")
    over = a_foreign_pod("over")
    over.status.phase = "Succeeded"
    waits = a_pod("waits", cpu="64")
    replica, asker = having(a_foreign_pod("web"), a_foreign_pod("large", cpu="5"), gated, over, waits)
    for pod, node, uid, end, words in (
        ("nobody", "n1", "", BindingEnd.NOT_FOUND, 'pods "default/nobody" not found'),
        ("web", "nowhere", "", BindingEnd.NOT_FOUND, 'nodes "nowhere" not found'),
        ("web", "n1", "another", BindingEnd.CONFLICT, '"another" is meant'),
        ("large", "n1", "", BindingEnd.REFUSED, "does not fit on node n1: Insufficient cpu"),
        ("gated", "n1", "", BindingEnd.REFUSED, "has scheduling gates"),
        ("over", "n1", "", BindingEnd.REFUSED, "is over or being deleted"),
        ("waits", "n1", "", BindingEnd.REFUSED, "is scheduled here"),
    ):
        asker.bind(pod, node, uid)
        replica.settle()
        assert asker.told[-1].end is end and words in asker.told[-1].message, asker.told[-1]
    assert replica.bound() == {} and assumed(replica) == 0


@pytest.mark.row("KC32")
def test_neither_takes_the_room_that_the_other_has_assumed() -> None:
    replica, asker = having(a_foreign_pod("theirs", cpu="3"), a_foreign_pod("second", cpu="3"))
    put_pod(replica.store, a_pod("ours", cpu="3"))
    decide(replica)
    # Decided and not written: nobody could tell from the store that the room is gone.
    asker.bind("theirs", "n1")
    replica.settle()
    assert asker.ends == [BindingEnd.REFUSED] and replica.bound() == {"ours": "n1"}

    replica, asker = having(a_foreign_pod("theirs", cpu="3"), a_foreign_pod("second", cpu="3"))
    asker.bind("theirs", "n1")
    asker.bind("second", "n1")
    replica.turn()
    put_pod(replica.store, a_pod("ours", cpu="3"))
    decide(replica)
    assert replica.core.attempts["unschedulable"] == 1
    replica.settle()
    assert asker.ends == [BindingEnd.REFUSED, BindingEnd.BOUND] and replica.bound() == {"theirs": "n1"}


@pytest.mark.row("KC32")
def test_a_pod_that_takes_the_room_unasked_meanwhile_makes_it_a_conflict() -> None:
    replica, asker = having(a_foreign_pod("theirs", cpu="3"))
    asker.bind("theirs", "n1")
    replica.turn()
    take_room(replica.store, a_pod("unasked", cpu="3"), "n1")
    replica.settle()
    assert asker.ends == [BindingEnd.CONFLICT] and replica.bound() == {"unasked": "n1"}
    assert assumed(replica) == 0
    asker.bind("theirs", "n1")
    replica.settle()
    assert asker.ends[-1] is BindingEnd.REFUSED


def test_an_answer_that_got_lost_is_found_out_and_the_room_of_a_lost_race_is_others() -> None:
    replica, asker = having(a_foreign_pod("theirs", cpu="3"))
    asker.bind("theirs", "n1")
    replica.turn()
    replica.arrive(lose_answer=True)
    replica.answer()
    assert asker.told == []
    replica.clock.now += 0.06
    replica.settle()
    assert asker.ends == [BindingEnd.BOUND] and replica.bound() == {"theirs": "n1"}

    replica, asker = having(a_foreign_pod("theirs", cpu="3"))
    asker.bind("theirs", "n1")
    replica.turn()
    changed = replica.store.pod(key_of("theirs"))
    assert changed is not None
    changed.metadata.labels["seen"] = "x"
    put_pod(replica.store, changed)
    put_pod(replica.store, a_pod("ours", cpu="3"))
    replica.settle()
    assert asker.ends == [BindingEnd.CONFLICT] and replica.bound() == {"ours": "n1"}


def test_whoever_asks_while_the_term_ends_is_told_that_nobody_knows() -> None:
    replica, asker = having(a_foreign_pod("one"), a_foreign_pod("two"))
    asker.bind("one", "n1")
    replica.turn()
    asker.bind("two", "n1")
    replica.core.bindings.stop()
    replica.core.bindings.forget_sent()
    assert asker.ends == [BindingEnd.NOT_LEADING, BindingEnd.NOT_LEADING]


def test_what_waits_longer_than_its_asker_is_never_written_and_takes_no_room() -> None:
    replica, asker = having(a_foreign_pod("late"), a_foreign_pod("next"))
    asker.bind("late", "n1")
    replica.clock.now += PATIENCE_SECONDS
    asker.bind("next", "n1")
    replica.settle()
    assert asker.ends == [BindingEnd.NOT_LEADING, BindingEnd.BOUND]
    assert replica.bound() == {"next": "n1"} and assumed(replica) == 0


def test_who_was_told_that_nobody_leads_does_not_find_the_pod_bound_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_binding_calls, "_SECONDS_MAX", 0.05)
    replica, _ = having(a_foreign_pod("late"))
    inbox = Inbox()
    # The core is busy: nobody takes the call.
    answer = foreign_binding_calls.bound_by(
        inbox, replica.core, ForeignBinding("default/late", "", "n1"), lambda: replica.clock.now
    )
    assert not answer.leads and answer.answer.end is BindingEnd.NOT_LEADING
    replica.clock.now += 0.05
    call = inbox.take()
    assert call is not None
    call()
    replica.settle()
    assert replica.bound() == {} and assumed(replica) == 0


@pytest.mark.parametrize("bug", FOREIGN)
def test_each_planted_bug_is_noticed(bug: str) -> None:
    with planted(bug), pytest.raises(AssertionError):
        test_what_cannot_be_bound_is_refused_with_its_reason_and_takes_no_room()
    with planted(bug), pytest.raises(AssertionError):
        test_neither_takes_the_room_that_the_other_has_assumed()
