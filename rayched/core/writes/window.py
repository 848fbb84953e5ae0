"""The window of transactions: which guarded writes are under way, which of them have to be sent again, and what became of each.

A batch of writes is in the window from its first sending until each of its writes has a definite outcome, or the term ends. The
window holds at most TRANSACTIONS_MAX batches, so a store that does not answer stops whoever fills it.

```
              send                 answer: Committed, Conflict, Fenced, Refused
  (caller) ──────────▶ under way ────────────────────────────────────────────────▶ outcome to the caller
                        ▲     │ no answer, or the store took nothing for now
                        └─────┴── again, after a pause ──┘
```

* Without an answer nobody knows whether the writes happened. The same batch is sent again: of the two sendings only one can pass
  the conditions, the answer tells which (it recognises its own attempt), and a definite refusal of the second means that the
  first can never happen any more, because a revision that has moved on never comes back. Only a batch that asks for it (`once`)
  is given up instead.
* When the term ends, nothing is sent again. Batches under way are kept until their answers come, which `quiet` waits for.
* A batch that etcd refuses as it stands is taken apart, half by half, so one write that it cannot take spoils no other. A single
  one ends with that refusal. Where an earlier sending of it may still arrive it is sent some more times before, REFUSALS_MAX in
  all: that long its caller counts on either outcome.

No I/O, no clock. Cost: about 15 µs a write, to build and to read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rayched.store import transactions
from rayched.store.errors import NotApplied, RequestTooLarge, StoreError
from rayched.store.transactions import Guard, Outcome, Write

TRANSACTIONS_MAX: Final = 4
"""Batches in the window: enough to hide the disk's latency : four under way reach etcd's own limit (docs/adr/0012)."""
RESEND_SECONDS_MIN: Final = 0.05
RESEND_SECONDS_MAX: Final = 1.0
REFUSALS_MAX: Final = 8
"""Of a single write that may have been applied before: over these, 3.5 seconds pass."""


@dataclass(frozen=True, slots=True)
class Send:
    """A transaction for the carrier: it answers with the TxnResponse, or with the StoreError that came in its place."""

    number: int
    content: bytes
    """A TxnRequest, serialised."""
    op: str = ""
    """What its writes are for."""
    n_writes: int = 0
    problem: StoreError | None = None
    """There is no such request: this is its answer already, and nothing is to be sent."""


@dataclass(slots=True, eq=False)
class _SentBatch:
    writes: Sequence[Write]
    guard: Guard | None
    once: bool
    op: str
    pause_seconds: float = RESEND_SECONDS_MIN
    due: float = 0.0
    uncertain: bool = False
    """An earlier sending has no answer and may still arrive."""
    refusals: int = 0
    """How often it was refused as it stands, alone and uncertain."""
    over: bool = False
    """The term has ended: the answer is awaited, its outcome is ignored."""


class WriteWindow:
    """See the module. Numbers are never given twice."""

    def __init__(self) -> None:
        self._next_number = 1
        self._under_way: dict[int, _SentBatch] = {}
        self._again: list[_SentBatch] = []
        self.fenced: Counter[str] = Counter()
        """Writes that the store refused because their epoch was over, by what they were for; also those of ended terms."""

    @property
    def room(self) -> int:
        """How many more batches it takes now."""
        return max(0, TRANSACTIONS_MAX - len(self._under_way) - len(self._again))

    @property
    def quiet(self) -> bool:
        """No transaction is under way."""
        return not self._under_way

    def next_due(self) -> float | None:
        """When a batch has to be sent again; None: there is none, or an answer has to come before."""
        if len(self._under_way) >= TRANSACTIONS_MAX:
            return None
        return min((batch.due for batch in self._again), default=None)

    def send(self, writes: Sequence[Write], guard: Guard | None, *, op: str = "", once: bool = False) -> Send:
        """Put a batch into the window. One call for what `transactions.split` gives. `op`: what the writes are for."""
        return self._send(_SentBatch(writes, guard, once, op))

    def send_again(self, now: float) -> Iterator[Send]:
        """What is due once more, as far as the window takes it. To be called only while the epoch is believed in."""
        due = [batch for batch in self._again if batch.due <= now][: max(0, TRANSACTIONS_MAX - len(self._under_way))]
        for batch in due:
            self._again.remove(batch)
            yield self._send(batch)

    def answered(self, number: int, answer: Any, now: float) -> list[tuple[Write, Outcome]]:
        """The definite outcomes that an answer brings, in the order of the writes; `answer` may be a StoreError.

        With `once` an OutcomeUnknown or TransactionRefused is given out as well. Answers to unknown numbers and of ended terms
        bring nothing.
        """
        batch = self._under_way.pop(number, None)
        if batch is not None and not isinstance(answer, StoreError) and not answer.succeeded:
            self.fenced[batch.op] += len(batch.writes)
        if batch is None or batch.over:
            return []
        if not isinstance(answer, StoreError):
            return list(zip(batch.writes, transactions.read(answer, batch.writes), strict=True))
        if transactions.is_refused_as_it_stands(answer):
            return self._refused(batch, answer, now)
        if batch.once:
            return list(zip(batch.writes, transactions.without_answer(answer, batch.writes), strict=True))
        batch.uncertain |= not isinstance(answer, NotApplied)
        self._send_later(batch, now)
        return []

    def _refused(self, batch: _SentBatch, error: StoreError, now: float) -> list[tuple[Write, Outcome]]:
        """A batch that the store will never take as it stands: its halves are sent, or its outcome is known."""
        halves = transactions.halves(batch.writes, error)
        for half in halves:
            # The pieces stand where the batch stood, and pass on its doubt: an earlier sending has all of them.
            self._again.append(_SentBatch(half, batch.guard, batch.once, batch.op, due=now, uncertain=batch.uncertain))
        if halves:
            return []
        batch.refusals += 1
        if batch.uncertain and batch.refusals < REFUSALS_MAX:
            self._send_later(batch, now)
            return []
        return list(zip(batch.writes, transactions.without_answer(error, batch.writes), strict=True))

    def _send_later(self, batch: _SentBatch, now: float) -> None:
        batch.due = now + batch.pause_seconds
        batch.pause_seconds = min(2 * batch.pause_seconds, RESEND_SECONDS_MAX)
        self._again.append(batch)

    def end_term(self) -> list[Write]:
        """The epoch is over: what waits to be sent again is dropped, and answers still to come are ignored.

        Returns the writes whose outcome will never be known here.
        """
        lost = [write for batch in self._again for write in batch.writes]
        self._again.clear()
        for batch in self._under_way.values():
            if not batch.over:
                batch.over = True
                lost.extend(batch.writes)
        return lost

    def _send(self, batch: _SentBatch) -> Send:
        number = self._next_number
        self._next_number += 1
        self._under_way[number] = batch
        try:
            content, problem = transactions.build(batch.guard, batch.writes), None
        except RequestTooLarge as error:
            content, problem = b"", error
        return Send(number, content, batch.op, len(batch.writes), problem)
