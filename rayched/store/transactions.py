"""Guarded transactions: many writes in one request, each with its own conditions and its own outcome. No I/O.

```
If   mod_revision(epoch key) = E                                  the guard; absent for writes of the API
Then for each write:
       If   mod_revision(its key) = R  and  mod_revision(each key in `also`) = its revision
       Then put or delete it, and write `with_puts`
       Else get its key and each key in `also`                    so a refusal carries the objects as they are
Else get the epoch key                                            nothing at all was written
```

* All comparisons hold against the state before the transaction; all that commits gets one revision. A mod_revision of 0 means
  "not there", so a creation is a write with 0.
* One transaction never writes a key twice (etcd refuses that), nor writes what another write in it relies on: two such writes
  could each pass on the state that the other ends. `split` keeps them apart, in order.
* A key in `also` that ends with a slash stands for all keys below it: none of them was written after that revision. It does not
  notice deletions.
* A write that stands for many (`TogetherPut`) is one nested transaction with all their conditions and puts. Small ones share a
  request, as far as etcd's default limit of operations goes; a larger one is alone in its own.
* A creation may leave a mark: a key that others rely on. One that a single write of a transaction names is put with it; one that
  several name is put once beside them, whether these pass their conditions or not: it may so be moved by nothing, never left
  where it was by something.
* Up to 100 writes or 1 MiB a transaction. What etcd refuses as it stands is taken apart (`halves`), down to single writes.
* An etcd whose space is used up still takes transactions that put nothing: a deletion says which of its puts it can do without.
* Without an answer the outcome is Unknown. The write may still happen after a read that does not show it, so `settle` decides
  only what can be known: it is there (its attempt id is), or it can never happen (the key or the epoch has moved on). What stays
  Unknown is decided by sending the same write again: only one of the two can pass its conditions, and `read` recognises its own
  attempt in what refuses it.

Source: etcd API v3 (nested transactions). Cost: about 2 microseconds a write to build and 1 to read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rayched.store.codec import last_attempt
from rayched.store.entries import Entry, first_entry
from rayched.store.errors import LeaseNotFound, NotApplied, RequestTooLarge, StoreBusy, StoreError, StoreFull
from rayched.store.txn_encoding import delete_operation, nested_transaction, put_operation, unchanged, unchanged_often

WRITES_MAX: Final = 100
BYTES_MAX: Final = 1 << 20
WRITE_BYTES_MAX: Final = (3 << 19) - (1 << 14)
"""Of a single write: etcd's default limit of a request, less what stands around it."""
ALSO_MAX: Final = 20
"""Further keys that one write may compare, or put: etcd's default limit of 128 operations is for 100 writes and the operations of
the largest of them together."""
TOGETHER_MAX: Final = 1_000
"""The same of a write that is a transaction of its own (`TogetherPut`). rayched's own etcd takes 1,100 operations; one that is
left at its default of 128 refuses larger ones."""
OPERATIONS_MAX: Final = 128
"""etcd's default limit, of the operations and comparisons on each path through nested transactions."""
_WRITES_AND_MARKS_MAX: Final = OPERATIONS_MAX - 1 - ALSO_MAX
"""Operations beside those of the largest write."""
_BYTES_A_COMPARISON: Final = 32
"""What a comparison or an operation costs on the wire besides keys and values."""


RULE_WRITES_ARE_GUARDED: bool = True
RULE_ATTEMPTS_ARE_RECOGNISED: bool = True
"""Broken by tests alone."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The leader's right to write: its epoch, which is the mod_revision of the epoch key at the acquisition."""

    epoch_key: bytes
    epoch: int


class GuardedPut(NamedTuple):
    """Put `value` if the key is still at `mod_revision` (0: not there) and each key of `also` at its revision.

    `with_puts` are written together with it, unconditionally. `attempt` is the attempt id inside `value`, where there is one.
    With a `lease` the key goes when the lease does. `mark`: see the module.
    """

    key: bytes
    mod_revision: int
    value: bytes
    also: tuple[tuple[bytes, int], ...] = ()
    with_puts: tuple[tuple[bytes, bytes], ...] = ()
    attempt: str = ""
    lease: int = 0
    mark: bytes = b""


class TogetherPut(GuardedPut):
    """A put that stands for many: all of `with_puts` happen with it or none does, and it compares far more keys than others may.

    It is sent alone, or with others as far as `further_max` goes.
    """

    __slots__ = ()


class GuardedDelete(NamedTuple):
    """Delete the key if it is still at `mod_revision`; `also` and `with_puts` as in GuardedPut.

    `spare`: the key of a put, and of its condition, without which the deletion may happen where etcd takes no more puts.
    """

    key: bytes
    mod_revision: int
    also: tuple[tuple[bytes, int], ...] = ()
    with_puts: tuple[tuple[bytes, bytes], ...] = ()
    spare: bytes = b""

    def bare(self) -> GuardedDelete | None:
        """Without what may be spared; None where it still puts something, or puts nothing anyway."""
        if not self.spare or any(key != self.spare for key, _ in self.with_puts):
            return None
        return GuardedDelete(self.key, self.mod_revision, tuple(pair for pair in self.also if pair[0] != self.spare))


Write = GuardedPut | GuardedDelete


class Committed(NamedTuple):
    """The write happened, at this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """This sending wrote nothing: a condition is not met and never will be. `current` and `also` are the keys as they are."""

    current: Entry | None
    also: tuple[Entry | None, ...]
    revision: int

    def is_against(self, last: Sequence[tuple[bytes, int]]) -> bool:
        """Whether one of these, which the write compared last, is not met."""
        found = self.also[len(self.also) - len(last) :]
        return any(_revision_of(entry) != revision for entry, (_, revision) in zip(found, last, strict=True))


@dataclass(frozen=True, slots=True)
class Fenced:
    """This sending wrote nothing: the epoch is over. `epoch` is the present one, 0 when there is none."""

    epoch: int


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """Nobody can tell yet whether the write happened or will."""

    message: str


@dataclass(frozen=True, slots=True)
class TransactionRefused:
    """This sending wrote nothing: etcd refused the whole request, for example for want of space."""

    error: NotApplied


Outcome = Committed | Conflict | Fenced | OutcomeUnknown | TransactionRefused


def create(key: bytes, value: bytes, record_key: bytes, record: bytes) -> GuardedPut:
    """A creation by submission: the object and the record of its submission, if neither is there."""
    return GuardedPut(key, 0, value, also=((record_key, 0),), with_puts=((record_key, record),))


def split(writes: Iterable[Write], *, writes_max: int = WRITES_MAX, bytes_max: int = BYTES_MAX) -> Iterator[list[Write]]:
    """The writes in order, in batches that one transaction takes. A single write above `bytes_max` is a batch of its own."""
    writes = list(writes)
    if len(writes) <= writes_max and _are_one_batch(writes, bytes_max):
        if writes:
            yield writes
        return
    batch: list[Write] = []
    size = 0
    written: set[bytes] = set()
    relied_on: set[bytes] = set()
    marks: set[bytes] = set()
    for write in writes:
        writing = _keys_written(write)
        mark = _mark_of(write)
        relying = {key for key, _ in write.also}.difference(writing)
        clash = not (written.isdisjoint(writing) and written.isdisjoint(relying) and relied_on.isdisjoint(writing))
        own = bytes_of(write)
        is_full = len(batch) >= writes_max or len(batch) + 1 + len(marks | mark) > _WRITES_AND_MARKS_MAX
        if batch and (clash or is_full or size + own > bytes_max):
            yield batch
            batch, size, written, relied_on, marks = [], 0, set(), set(), set()
        batch.append(write)
        marks |= mark
        size += own
        written.update(writing)
        relied_on |= relying
    yield batch


def _are_one_batch(writes: Sequence[Write], bytes_max: int) -> bool:
    """Most are: none of them writes what another writes or relies on. False also where it takes a closer look to tell."""
    keys = [key for write in writes for key in _keys_written(write)]
    written = set(keys)
    if len(written) < len(keys) or sum(map(bytes_of, writes)) > bytes_max:
        return False
    if len(writes) + len(_marks_of(writes)) > _WRITES_AND_MARKS_MAX:
        return False
    # Most rely on what they write themselves: that it is not there yet.
    return all(key not in written or key in _keys_written(write) for write in writes for key, _ in write.also)


def further_max(n_writes: int) -> int:
    """So many further keys each of several `TogetherPut` in one transaction may compare, or put."""
    # The transaction's writes, and the write's own key, are on the path as well.
    return OPERATIONS_MAX - n_writes - 1


def build(guard: Guard | None, writes: Sequence[Write]) -> bytes:
    """The TxnRequest for one batch, serialised. Raises RequestTooLarge for what no etcd is asked to take."""
    if not writes or len(writes) > WRITES_MAX:
        raise RequestTooLarge(f"a transaction of {len(writes)} writes: want 1 to {WRITES_MAX}")
    parts = [unchanged(guard.epoch_key, guard.epoch)] if guard is not None and RULE_WRITES_ARE_GUARDED else []
    named = _marks_of(writes)
    for write in writes:
        also, with_puts = write.also, write.with_puts
        if len(also) > ALSO_MAX or len(with_puts) > ALSO_MAX:
            most = ALSO_MAX
            if isinstance(write, TogetherPut):
                most = TOGETHER_MAX if len(writes) == 1 else further_max(len(writes))
            if max(len(also), len(with_puts)) > most:
                found = f"a write with {len(also)} further keys and {len(with_puts)} puts"
                raise RequestTooLarge(f"{found}: want at most {most}")
        pieces = _conditions_and_operations(write)
        if named:
            pieces += [put_operation(mark, b"") for mark in _mark_of(write) if named[mark] == 1]
        parts += nested_transaction(pieces)
    parts += [put_operation(mark, b"") for mark, count in sorted(named.items()) if count > 1]
    return b"".join(parts)


def read(answer: Any, writes: Sequence[Write]) -> list[Outcome]:
    """What the TxnResponse to `build(guard, writes)` says about each write, in order."""
    if not answer.succeeded:
        return [Fenced(_epoch_in(answer.responses[0].response_range))] * len(writes)
    revision = answer.header.revision
    committed = Committed(revision)
    return [
        committed if response.response_txn.succeeded else _refusal(response.response_txn, write, revision)
        # Behind them come those of marks.
        for response, write in zip(answer.responses[: len(writes)], writes, strict=True)
    ]


def without_answer(error: StoreError, writes: Sequence[Write]) -> list[Outcome]:
    """The outcomes of writes whose transaction failed as a whole."""
    outcome = TransactionRefused(error) if isinstance(error, NotApplied) else OutcomeUnknown(str(error))
    return [outcome] * len(writes)


def bare_deletions(writes: Sequence[Write], outcomes: Sequence[Outcome]) -> dict[int, GuardedDelete]:
    """Of a batch that a full etcd refused: the deletions that it takes without what they put, by their place in the batch."""
    found: dict[int, GuardedDelete] = {}
    for place, (write, outcome) in enumerate(zip(writes, outcomes, strict=True)):
        if isinstance(write, GuardedDelete) and isinstance(outcome, TransactionRefused) and isinstance(outcome.error, StoreFull):
            bare = write.bare()
            if bare is not None:
                found[place] = bare
            elif not write.with_puts:
                # It shared its transaction with a put.
                found[place] = write
    return {} if len(found) == len(writes) and all(found[place] is writes[place] for place in found) else found


def is_refused_as_it_stands(error: StoreError) -> bool:
    """etcd will never take this very request; neither does it want for space or time."""
    return isinstance(error, NotApplied) and not isinstance(error, StoreBusy | StoreFull)


def halves(writes: Sequence[Write], error: StoreError) -> tuple[Sequence[Write], ...]:
    """What to send in place of a batch that was refused as it stands, so that one write spoils no other; (): nothing helps."""
    if len(writes) < 2 or isinstance(error, LeaseNotFound):
        return ()
    middle = (len(writes) + 1) // 2
    return writes[:middle], writes[middle:]


def halves_of_refused(batch: Sequence[Write], outcomes: Sequence[Outcome]) -> tuple[Sequence[Write], ...]:
    """`halves`, from the outcomes of a batch; () also where it was not refused."""
    first = outcomes[0]
    if not isinstance(first, TransactionRefused) or not is_refused_as_it_stands(first.error):
        return ()
    return halves(batch, first.error)


def keys_to_settle(guard: Guard | None, writes: Sequence[Write]) -> list[bytes]:
    """What `settle` wants to have read: each key once."""
    keys = [guard.epoch_key] if guard is not None else []
    return list(dict.fromkeys(keys + [key for write in writes for key in _keys_read(write)]))


def settle(entries: Mapping[bytes, Entry | None], revision: int, guard: Guard | None, writes: Sequence[Write]) -> list[Outcome]:
    """What became of writes with an unknown outcome, from a linearizable reading of `keys_to_settle` at `revision`.

    Committed needs the attempt id in the object as it is now. A creation by submission and a deletion have none, and a later
    leader's write replaces it: then the Conflict says only that nothing more will happen, and its entries what has happened.
    Unknown remains where nothing has moved: the write may still arrive.
    """
    return [_settled(entries, revision, guard, write) for write in writes]


def _settled(entries: Mapping[bytes, Entry | None], revision: int, guard: Guard | None, write: Write) -> Outcome:
    current = entries[write.key]
    own_revision = _own_revision(write, current)
    if own_revision is not None:
        return Committed(own_revision)
    conditions = ((write.key, write.mod_revision), *write.also)
    if any(_revision_of(entries[key]) != mod_revision for key, mod_revision in conditions):
        return Conflict(current, tuple(entries[key] for key, _ in write.also), revision)
    if guard is not None and _revision_of(entries[guard.epoch_key]) != guard.epoch:
        return Fenced(_revision_of(entries[guard.epoch_key]))
    return OutcomeUnknown("it is not there, but may still arrive")


def _refusal(answer: Any, write: Write, revision: int) -> Outcome:
    """Of a write whose conditions do not hold."""
    current, *also = (first_entry(response.response_range) for response in answer.responses)
    own_revision = _own_revision(write, current)
    if own_revision is not None:
        # An earlier sending of the same write, whose answer was lost, is why this one was refused.
        return Committed(own_revision)
    return Conflict(current, tuple(also), revision)


def _own_revision(write: Write, current: Entry | None) -> int | None:
    """When the write itself put what is there now; None when it did not, or left no attempt id to tell it by."""
    if not isinstance(write, GuardedPut) or not write.attempt or current is None or not RULE_ATTEMPTS_ARE_RECOGNISED:
        return None
    return current.mod_revision if last_attempt(current) == write.attempt else None


def _epoch_in(answer: Any) -> int:
    return _revision_of(first_entry(answer))


def _revision_of(entry: Entry | None) -> int:
    return entry.mod_revision if entry is not None else 0


def _keys_written(write: Write) -> list[bytes]:
    return [write.key, *(key for key, _ in write.with_puts)] if write.with_puts else [write.key]


def _mark_of(write: Write) -> set[bytes]:
    return {write.mark} if isinstance(write, GuardedPut) and write.mark else set()


def _marks_of(writes: Sequence[Write]) -> Counter[bytes]:
    """And how many of the writes name each."""
    return Counter([write.mark for write in writes if isinstance(write, GuardedPut) and write.mark])


def _keys_read(write: Write) -> list[bytes]:
    return [write.key, *(key for key, _ in write.also)]


def bytes_of(write: Write) -> int:
    """About what the write takes in its request, rather more than less."""
    key = len(write.key)
    # Compared keys stand in the request twice: in the comparison and in the read that answers a refusal.
    size = 3 * key + 2 * _BYTES_A_COMPARISON
    for other, _ in write.also:
        size += 2 * (len(other) + _BYTES_A_COMPARISON)
    for other, value in write.with_puts:
        size += len(other) + len(value) + _BYTES_A_COMPARISON
    return size + len(write.value) + 2 * len(write.mark) if isinstance(write, GuardedPut) else size


def _conditions_and_operations(write: Write) -> list[bytes]:
    """Of the transaction of one write."""
    key = write.key
    pieces = [unchanged(key, write.mod_revision)]
    for other, revision in write.also:
        # What is there already is relied on by many writes: the namespace of pods, a node.
        pieces.append(unchanged_often(other, revision) if revision else unchanged(other, revision))
    if isinstance(write, GuardedDelete):
        pieces.append(delete_operation(key))
    else:
        pieces.append(put_operation(key, write.value, write.lease))
    for other, value in write.with_puts:
        pieces.append(put_operation(other, value))
    return pieces
