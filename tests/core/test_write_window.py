"""The window of transactions before a store that takes less than a batch: nothing is sent for ever, no write spoils another."""

from __future__ import annotations

import random
from typing import Any

import pytest

from leader.etcd_shim import rpc
from rayched.core.writes.window import REFUSALS_MAX, TRANSACTIONS_MAX, Send, WriteWindow
from rayched.store.errors import LeaseNotFound, NotApplied, RequestRefused, RequestTooLarge, StoreBusy, StoreUnavailable
from rayched.store.transactions import (
    ALSO_MAX,
    Committed,
    Conflict,
    Fenced,
    Guard,
    GuardedPut,
    Outcome,
    TransactionRefused,
    Write,
    bytes_of,
)
from tests.core.builders import a_pod
from tests.core.leading import a_replica, decide, put_pod, reason_of
from tests.core.model_store import ModelStore
from tests.core.replica import Replica

EPOCH = b"/epoch"
TOO_LARGE = RequestTooLarge("etcd: request is too large")
LOST = StoreUnavailable("no answer")


def puts(count: int) -> list[GuardedPut]:
    return [GuardedPut(b"/pods/%d" % number, 0, b"value") for number in range(count)]


def answered_by(store: ModelStore, send: Send) -> Any:
    if send.problem is not None:
        return send.problem
    try:
        return store.txn(rpc.TxnRequest.FromString(send.content))
    except NotApplied as error:
        return error


def run(
    window: WriteWindow, store: ModelStore, sends: list[Send], rng: random.Random, lost: float
) -> list[tuple[Write, Outcome]]:
    """Until nothing is left to send; `lost` is the chance that a request or its answer is. Late ones arrive in between."""
    outcomes: list[tuple[Write, Outcome]] = []
    late: list[Send] = []
    now = 0.0
    for _ in range(10_000):
        if not sends:
            due = window.next_due()
            if due is None:
                return outcomes
            now = max(now, due)
            sends = list(window.send_again(now))
        assert len(sends) <= TRANSACTIONS_MAX
        send = sends.pop(rng.randrange(len(sends)))
        chance = rng.random()
        if chance < lost / 2:
            late.append(send)
            answer: Any = LOST
        else:
            answer = answered_by(store, send)
            if chance < lost and not isinstance(answer, NotApplied):
                answer = LOST
        outcomes += window.answered(send.number, answer, now)
        if late and rng.random() < 0.3:
            answered_by(store, late.pop())
    raise AssertionError("it is sent for ever")


@pytest.mark.parametrize("seed", range(60))
def test_every_write_gets_one_outcome_from_a_store_that_takes_less_than_a_batch(seed: int) -> None:
    rng = random.Random(seed)
    store = ModelStore()
    epoch = store.put(EPOCH, b"{}")
    store.txn_ops_max, store.request_bytes_max = rng.choice([8, 16, 128]), rng.choice([600, 2_000, 20_000])
    guard = Guard(EPOCH, epoch)
    writes: list[Write] = []
    for number in range(rng.randint(1, 100)):
        others = rng.choice([0, 0, 0, 1, 5, ALSO_MAX])
        also = tuple((b"/also/%d/%d" % (number, other), 0) for other in range(others))
        writes.append(GuardedPut(b"/pods/%d" % number, 0, b"x" * rng.choice([1, 50, 1_000]), also, attempt=f"w{number}"))
    window = WriteWindow()
    outcomes = run(window, store, [window.send(writes, guard)], rng, rng.choice([0.0, 0.2]))
    assert sorted(write.key for write, _ in outcomes) == sorted(write.key for write in writes)
    assert window.quiet and window.next_due() is None and window.room == TRANSACTIONS_MAX
    for write, outcome in outcomes:
        if isinstance(outcome, TransactionRefused):
            too_many = 2 + len(write.also) > store.txn_ops_max
            assert too_many or bytes_of(write) + 100 > store.request_bytes_max
        else:
            # Nothing here tells an earlier sending of the same write by its attempt: it conflicts with itself.
            assert isinstance(outcome, Committed | Conflict) and write.key in store.now


def test_a_batch_that_may_have_happened_and_is_refused_now_is_not_called_refused() -> None:
    window = WriteWindow()
    send = window.send(puts(1), None)
    assert window.answered(send.number, LOST, 0.0) == []
    now, refusals = 0.0, 0
    while True:
        due = window.next_due()
        assert due is not None and due > now
        now = due
        (again,) = window.send_again(now)
        outcomes = window.answered(again.number, TOO_LARGE, now)
        refusals += 1
        if outcomes:
            break
    assert refusals == REFUSALS_MAX and now > 3.0
    assert [outcome for _, outcome in outcomes] == [TransactionRefused(TOO_LARGE)]
    assert window.next_due() is None and window.room == TRANSACTIONS_MAX


def test_halves_of_a_batch_that_may_have_happened_are_as_uncertain_as_the_batch() -> None:
    window = WriteWindow()
    send = window.send(puts(2), None)
    window.answered(send.number, LOST, 0.0)
    (again,) = window.send_again(1.0)
    assert window.answered(again.number, TOO_LARGE, 1.0) == []
    first, second = window.send_again(1.0)
    assert (first.n_writes, second.n_writes) == (1, 1)
    assert window.answered(first.number, TOO_LARGE, 1.0) == [], "the first sending may still bring it"


def test_a_batch_refused_at_once_is_halved_down_to_the_write_that_spoils_it() -> None:
    window, writes = WriteWindow(), puts(8)
    sends, outcomes, sizes = [window.send(writes, None)], [], []
    while sends:
        send = sends.pop(0)
        sizes.append(send.n_writes)
        spoilt = writes[5].key in send.content
        if spoilt:
            outcomes += window.answered(send.number, TOO_LARGE, 0.0)
        else:
            answer = rpc.TxnResponse(succeeded=True)
            for _ in range(send.n_writes):
                answer.responses.add().response_txn.succeeded = True
            outcomes += window.answered(send.number, answer, 0.0)
        sends += window.send_again(0.0)
    assert sizes == [8, 4, 4, 2, 2, 1, 1]
    assert [write.key for write, outcome in outcomes if isinstance(outcome, TransactionRefused)] == [writes[5].key]
    assert len(outcomes) == 8


def test_the_window_never_has_more_under_way_than_it_says_however_many_pieces_there_are() -> None:
    window = WriteWindow()
    for _ in range(TRANSACTIONS_MAX):
        send = window.send(puts(8), None)
        window.answered(send.number, TOO_LARGE, 0.0)
    assert window.room == 0
    first = list(window.send_again(0.0))
    assert len(first) == TRANSACTIONS_MAX and window.next_due() is None and not list(window.send_again(0.0))
    window.answered(first[0].number, TOO_LARGE, 0.0)
    assert window.next_due() == 0.0 and len(list(window.send_again(0.0))) == 1


@pytest.mark.parametrize("error", [RequestRefused("etcd: PERMISSION_DENIED"), TOO_LARGE], ids=["refused", "large"])
def test_what_is_asked_once_is_taken_apart_as_well(error: NotApplied) -> None:
    window = WriteWindow()
    send = window.send(puts(2), None, once=True)
    assert window.answered(send.number, error, 0.0) == []
    for piece in list(window.send_again(0.0)):
        assert [outcome for _, outcome in window.answered(piece.number, error, 0.0)] == [TransactionRefused(error)]


def test_a_lease_that_is_gone_is_gone_for_the_whole_batch() -> None:
    window = WriteWindow()
    send = window.send(puts(50), None, once=True)
    gone = LeaseNotFound("etcd: requested lease not found")
    assert [outcome for _, outcome in window.answered(send.number, gone, 0.0)] == [TransactionRefused(gone)] * 50


def test_a_busy_store_is_asked_again_with_the_whole_batch() -> None:
    window = WriteWindow()
    send = window.send(puts(50), None)
    assert window.answered(send.number, StoreBusy("etcd: too many requests"), 0.0) == []
    (again,) = window.send_again(1.0)
    assert again.n_writes == 50


def test_a_write_that_no_request_can_hold_ends_alone_and_is_never_sent() -> None:
    window = WriteWindow()
    large = GuardedPut(b"/large", 0, b"", also=tuple((b"/also/%d" % number, 0) for number in range(ALSO_MAX + 1)))
    send = window.send([*puts(1), large], None)
    assert isinstance(send.problem, RequestTooLarge)
    assert window.answered(send.number, send.problem, 0.0) == []
    first, second = window.send_again(0.0)
    assert first.problem is None and isinstance(second.problem, RequestTooLarge)
    ((write, outcome),) = window.answered(second.number, second.problem, 0.0)
    assert write is large and isinstance(outcome, TransactionRefused)


def test_a_fenced_batch_needs_no_halves() -> None:
    store, window = ModelStore(), WriteWindow()
    store.put(EPOCH, b"{}")
    send = window.send(puts(3), Guard(EPOCH, 99))
    assert all(isinstance(outcome, Fenced) for _, outcome in window.answered(send.number, answered_by(store, send), 0.0))


# ------------------------------------------------------------------------------------------------------- the whole leader


def bursting(replica: Replica, count: int) -> list[str]:
    names = [f"p{number}" for number in range(count)]
    for name in names:
        put_pod(replica.store, a_pod(name, cpu="10m"))
    return names


@pytest.mark.parametrize(("operations", "size"), [(16, 3 << 19), (128, 4_000), (6, 2_000)])
def test_a_leader_binds_all_it_can_through_a_store_with_smaller_limits(operations: int, size: int) -> None:
    replica = a_replica("n1", "n2")
    replica.store.txn_ops_max, replica.store.request_bytes_max = operations, size
    names = bursting(replica, 150)
    large = a_pod("large", cpu="10m")
    large.metadata.annotations["long"] = "x" * 10_000
    put_pod(replica.store, large)
    for _ in range(3):
        replica.settle()
        replica.clock.now += 1
    assert set(names) <= set(replica.bound())
    assert ("large" in replica.bound()) == (size > 10_000)
    if size < 10_000:
        assert replica.core.attempts["error"] > 0


def test_bindings_without_an_answer_that_a_restarted_store_finds_too_large_end_as_their_pods_errors() -> None:
    replica = a_replica("n1")
    for name in ("small", "large"):
        pod = a_pod(name, cpu="1")
        pod.metadata.annotations["long"] = "x" * (10_000 if name == "large" else 10)
        put_pod(replica.store, pod)
    decide(replica)
    replica.turn()
    replica.arrive(lose_request=True)
    replica.answer()
    replica.late.clear()
    replica.store.request_bytes_max = 5_000
    for _ in range(12):
        replica.clock.now += 0.5
        replica.settle()
    assert set(replica.bound()) == {"small"}
    assert replica.core.window.room == TRANSACTIONS_MAX and replica.core.attempts["error"] > 0
    # The pod cannot be told either; others are served, in the room that it does not hold.
    put_pod(replica.store, a_pod("next", cpu="3"))
    replica.settle()
    assert replica.bound()["next"] == "n1"


def test_a_failed_pod_is_told_why_where_only_its_binding_does_not_fit() -> None:
    replica = a_replica("n1")
    put_pod(replica.store, a_pod("web", cpu="1"))
    decide(replica)
    replica.turn()
    send = replica.to_store.pop()
    replica.core.transaction_answered(send.number, TOO_LARGE)
    replica.turn()
    replica.arrive()
    assert reason_of(replica, "web") == ("SchedulerError", "binding rejected: etcd: request is too large")
