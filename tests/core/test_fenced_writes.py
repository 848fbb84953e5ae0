"""What the store refuses for an epoch that is over is counted, also when nobody waits for the answer any more."""

from __future__ import annotations

import pytest

from leader.etcd_shim import rpc
from rayched.core.writes.window import WriteWindow
from rayched.store.refusals import FENCED_WRITES, count_fenced, count_fenced_among, fenced_writes
from rayched.store.transactions import Committed, Fenced, Guard, GuardedPut, OutcomeUnknown


def refusal() -> object:
    answer = rpc.TxnResponse(succeeded=False)
    answer.responses.add().response_range.kvs.add(key=b"epoch", mod_revision=9)
    return answer


@pytest.mark.parametrize("term_has_ended", [False, True])
def test_each_write_of_a_refused_transaction_counts(term_has_ended: bool) -> None:
    window = WriteWindow()
    writes = [GuardedPut(f"pod-{number}".encode(), 1, b"") for number in range(3)]
    send = window.send(writes, Guard(b"epoch", 5), op="bind")
    if term_has_ended:
        window.end_term()
    window.answered(send.number, refusal(), 0.0)
    window.answered(send.number, refusal(), 0.0)
    assert window.fenced == {"bind": 3}


def test_the_metric_tells_what_the_writes_were_for() -> None:
    before = FENCED_WRITES.labels("status")._value.get()
    count_fenced({"status": 2, "bind": 0})
    assert FENCED_WRITES.labels("status")._value.get() == before + 2


def test_what_was_fenced_is_told_without_zeros() -> None:
    before = fenced_writes()
    count_fenced({"status": 2, "bind": 0, "group": 1})
    found = fenced_writes()
    assert found == {**before, "status": before.get("status", 0) + 2, "group": before.get("group", 0) + 1}
    assert all(found.values())


def test_refusals_are_found_among_other_outcomes() -> None:
    before = FENCED_WRITES.labels("nodes")._value.get()
    assert count_fenced_among("nodes", [Committed(7), Fenced(9), OutcomeUnknown("no answer"), Fenced(9)]) == 2
    assert count_fenced_among("nodes", [Committed(7)]) == 0
    assert FENCED_WRITES.labels("nodes")._value.get() == before + 2
