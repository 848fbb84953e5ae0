"""A leader decides over a cache that has reached its epoch, and sends while it believes. As scripted histories."""

from __future__ import annotations

import pytest

from rayched.core.term import Step, Term
from rayched.store.list_watch_effects import Resumed
from tests.core.builders import a_node, a_pod
from tests.core.leading import a_replica, assumed, decide, having_decided, key_of, put_node, put_pod
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica

# ------------------------------------------------------------------------------------------------------------ freshness


@pytest.mark.row("L32")
def test_nothing_is_decided_before_the_watch_has_delivered_the_epochs_own_event() -> None:
    replica = a_replica("n1")
    replica.belief = None
    replica.settle()
    put_pod(replica.store, a_pod("web"))
    replica.watch()
    replica.lead()
    # A progress notification says how far etcd is, not how far we have read.
    replica.deliver(Resumed(replica.store.revision))
    for _ in range(3):
        assert not replica.turn() and not replica.core.decide()
    replica.watch()
    replica.settle()
    assert replica.bound() == {"web": "n1"}


def test_a_list_at_the_epochs_revision_or_later_is_as_fresh_as_its_event() -> None:
    store = ModelStore()
    put_node(store, a_node("n1"))
    put_pod(store, a_pod("web"))
    replica = Replica(store, Clock())
    replica.lead()
    assert not replica.turn()
    replica.list()
    replica.settle()
    assert replica.bound() == {"web": "n1"}


# --------------------------------------------------------------------------------------------------------------- belief


def test_what_was_decided_is_not_sent_when_belief_ends_before_the_send() -> None:
    replica = having_decided(a_pod("web"))
    assert assumed(replica) == 1
    replica.belief = None
    replica.turn()
    assert replica.to_store == [] and assumed(replica) == 0 and replica.core.drained


def test_nothing_is_decided_when_belief_ends_before_the_batch() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web"))
    replica.watch()
    replica.turn()
    replica.exchange()
    replica.exchanged()
    replica.belief = None
    assert not replica.core.decide()
    assert replica.core.link is None and assumed(replica) == 0


def test_it_is_drained_only_when_the_answers_of_what_was_sent_are_there() -> None:
    replica = having_decided(a_pod("web"))
    replica.turn()
    assert len(replica.to_store) == 1 and not replica.core.drained
    replica.belief = None
    replica.turn()
    assert not replica.core.term.leads and not replica.core.drained
    replica.arrive()
    replica.answer()
    assert replica.core.drained
    assert replica.bound() == {"web": "n1"}


def test_belief_that_returns_under_the_same_epoch_keeps_what_is_under_way() -> None:
    replica = a_replica("n1")
    epoch = replica.belief
    put_pod(replica.store, a_pod("web"))
    decide(replica)
    replica.turn()
    replica.belief = None
    replica.turn()
    assert assumed(replica) == 1
    replica.belief = epoch
    replica.turn()
    while replica.exchange():
        replica.exchanged()
        replica.turn()
    assert not replica.core.decide(), "a pod that is being bound was tried again"
    replica.settle()
    assert replica.bound() == {"web": "n1"} and replica.core.attempts["scheduled"] == 1


def test_a_new_epoch_voids_every_assumption() -> None:
    replica = having_decided(a_pod("web", cpu="4"))
    replica.turn()
    replica.arrive(lose_request=True)
    replica.answer()
    replica.lead()
    replica.watch()
    replica.turn()
    assert assumed(replica) == 0
    replica.settle()
    assert replica.bound() == {"web": "n1"}
    replica.arrive_late()
    assert replica.store.pod(key_of("web")).spec.node_name == "n1"  # type: ignore[union-attr]


@pytest.mark.row("L32")
def test_a_refusal_by_the_guard_ends_the_term_whatever_the_belief_says() -> None:
    replica = having_decided(a_pod("web"))
    replica.store.put(KEYS.epoch, b"somebody else")
    replica.turn()
    replica.arrive()
    replica.answer()
    replica.turn()
    assert not replica.core.term.leads and replica.bound() == {}
    for _ in range(3):
        assert not replica.turn() and not replica.core.decide()


def test_after_etcd_lost_writes_a_lower_epoch_leads_though_a_higher_one_was_fenced() -> None:
    term = Term()
    assert term.step(1000, cache_revision=1000) is Step.BEGIN
    term.fenced(1000)
    assert term.step(1000, cache_revision=1000) is Step.STOP
    assert term.step(1000, cache_revision=1000) is Step.NOTHING and not term.leads
    # etcd is back at 980, the cache has listed it, and this replica is elected once more.
    assert term.step(985, cache_revision=980) is Step.NOTHING
    assert term.step(985, cache_revision=985) is Step.BEGIN and term.leads


def test_an_epoch_that_was_fenced_leads_again_once_another_one_was_believed_in_between() -> None:
    term = Term()
    assert term.step(1000, cache_revision=1000) is Step.BEGIN
    term.fenced(1000)
    assert term.step(1000, cache_revision=1000) is Step.STOP
    # A belief that is away for a moment is the same one when it comes back.
    assert term.step(None, cache_revision=1000) is Step.NOTHING
    assert term.step(1000, cache_revision=1000) is Step.NOTHING and not term.leads
    assert term.step(985, cache_revision=985) is Step.BEGIN
    assert term.step(None, cache_revision=990) is Step.STOP
    # The revision comes a second time, as another election's.
    assert term.step(1000, cache_revision=1000) is Step.BEGIN and term.leads


def test_whoever_follows_for_the_scheduler_is_told_once_that_it_is_waited_for() -> None:
    term, told = Term(), list[int]()
    term.on_catching_up = lambda: told.append(term.epoch)
    assert term.step(None, cache_revision=990) is Step.NOTHING and told == []
    assert [term.step(1000, cache_revision=revision) for revision in (990, 995)] == [Step.NOTHING, Step.NOTHING]
    assert told == [0]
    assert term.step(1000, cache_revision=1000) is Step.BEGIN
    assert term.step(1010, cache_revision=1000) is Step.STOP
    assert term.step(1010, cache_revision=1000) is Step.NOTHING and told == [0, 1000]
    assert term.step(1010, cache_revision=1010) is Step.BEGIN and told == [0, 1000]
