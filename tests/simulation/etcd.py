"""A model of one etcd: requests of etcd's API go in, its answers come out, at once and without time of its own.

Kept as plain as it can be: a dictionary of what is there, the list of all that ever happened, sets of keys by lease. The caller
decides when a request arrives, when leases run out, and when a watch gets its next message. What is modelled is what rayched
relies on:

* transactions, nested ones too: all comparisons hold against the state before, reads see what the same transaction wrote before
  them, all writes get one revision; no key is written twice; nothing is done where anything is refused;
* reads of keys and ranges, also of the past, up to a compaction;
* leases: keys go with them, in one revision, in the order of the keys; a put moves its key to another lease or to none;
* watches from any revision, several on a stream, fragments, cancellation of a watch whose past was compacted, answers to requests
  for progress;
* the alarm NOSPACE: who would put, or wants a lease, is refused. As in etcd 3.5, puts of transactions within transactions do not
  count.

Errors are gRPC's, with etcd's own texts, so that the production code that reads them runs too. Not modelled: members, elections
of etcd, users, how much space there is. `test_etcd_model.py` plays the same random histories against this model and a real etcd.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from leader.etcd_shim import kv, rpc
from tests.simulation.etcd_errors import compacted, future_revision, no_lease, no_space
from tests.simulation.etcd_transactions import Path, Transaction, check_operations, in_range, keys_written, read_transaction

CLUSTER_ID: Final = 77
_COMPARED: Final = {
    rpc.Compare.VERSION: "version",
    rpc.Compare.CREATE: "create_revision",
    rpc.Compare.MOD: "mod_revision",
    rpc.Compare.LEASE: "lease",
}
TXN_OPS_MAX: Final = 128
"""etcd's default."""


@dataclass(slots=True)
class ModelLease:
    id: int
    ttl_seconds: int
    keys: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Revision:
    """What one revision changed: etcd's events, in order."""

    number: int
    events: tuple[Any, ...]


class ModelEtcd:
    """See the module. `history[i]` is revision i + 2: revision 1 is that of an empty etcd."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.history: list[Revision] = []
        self.leases: dict[int, ModelLease] = {}
        self.is_full = False
        """The alarm NOSPACE is raised."""
        self._now: dict[bytes, Any] = {}
        self._keys: list[bytes] = []
        self._next_lease = 1000
        self._batch: _Batch | None = None

    # ---------------------------------------------------------------------------------------------------------- questions

    def get(self, key: bytes) -> Any:
        """The KeyValue as it is; None where there is none."""
        return self._now.get(key)

    def under(self, prefix: bytes) -> list[Any]:
        """The KeyValues below a prefix, in the order of the keys."""
        return [self._now[key] for key in _keys_in(self._keys, prefix, _end_of(prefix))]

    def header(self) -> Any:
        return rpc.ResponseHeader(cluster_id=CLUSTER_ID, revision=self.revision)

    def events_from(self, revision: int, key: bytes, range_end: bytes) -> list[Any]:
        """Events of a range from a revision on."""
        begin = max(0, revision - 2)
        if begin >= len(self.history):
            return []
        return [event for change in self.history[begin:] for event in change.events if in_range(event.kv.key, key, range_end)]

    # ----------------------------------------------------------------------------------------------------------- requests

    def range(self, request: Any) -> Any:
        self._check_range(request)
        past = 0 < request.revision < self.revision
        pairs = self._at(request.revision) if past else self._now
        return self._range_in(request, pairs, sorted(pairs) if past else self._keys)

    def put(self, request: Any) -> Any:
        self._check_space([request])
        self._check_put(request)
        self._begin()
        answer = self._put(request)
        self._commit()
        answer.header.CopyFrom(self.header())
        return answer

    def delete_range(self, request: Any) -> Any:
        self._begin()
        answer = self._delete(request)
        self._commit()
        answer.header.CopyFrom(self.header())
        return answer

    def txn(self, request: Any) -> Any:
        transaction = read_transaction(request)
        check_operations(transaction, TXN_OPS_MAX)
        keys_written(transaction.success)
        keys_written(transaction.failure)
        self._check_space([op for kind, op in (*transaction.success, *transaction.failure) if kind == "request_put"])
        path = self._compared(transaction)
        self._check(path, "request_put", self._check_put)
        self._check(path, "request_range", self._check_range)
        self._begin()
        answer = rpc.TxnResponse()
        self._run(path, answer)
        self._commit()
        answer.header.CopyFrom(self.header())
        return answer

    def compact(self, request: Any) -> Any:
        if request.revision <= self.compacted:
            raise compacted()
        if request.revision > self.revision:
            raise future_revision()
        self.compacted = request.revision
        return rpc.CompactionResponse(header=self.header())

    # ------------------------------------------------------------------------------------------------------------- leases

    def grant(self, request: Any) -> Any:
        self._check_space([request])
        self._next_lease += 1
        lease = request.ID or self._next_lease
        self.leases[lease] = ModelLease(lease, request.TTL)
        return rpc.LeaseGrantResponse(header=self.header(), ID=lease, TTL=request.TTL)

    def keep_alive(self, request: Any) -> Any:
        lease = self.leases.get(request.ID)
        return rpc.LeaseKeepAliveResponse(header=self.header(), ID=request.ID, TTL=lease.ttl_seconds if lease else 0)

    def revoke(self, request: Any) -> Any:
        if request.ID not in self.leases:
            raise no_lease()
        self.end_lease(request.ID)
        return rpc.LeaseRevokeResponse(header=self.header())

    def end_lease(self, lease_id: int) -> None:
        """It was revoked or ran out."""
        lease = self.leases.pop(lease_id, None)
        if lease is not None and lease.keys:
            self._begin()
            for key in sorted(lease.keys):
                self._delete(rpc.DeleteRangeRequest(key=key))
            self._commit()

    # -------------------------------------------------------------------------------------------------------- transactions

    def _compared(self, transaction: Transaction) -> Path:
        """Which way the transaction goes, and each transaction within it; decided on the state before any of it."""
        holds = all(map(self._holds, transaction.compare))
        taken = transaction.success if holds else transaction.failure
        return Path(holds, [(kind, self._compared(op) if kind == "request_txn" else op) for kind, op in taken])

    def _holds(self, compare: Any) -> bool:
        if not compare.range_end:
            return self._holds_for(compare, self._now.get(compare.key))
        found = _keys_in(self._keys, compare.key, compare.range_end)
        return all(self._holds_for(compare, pair) for pair in [self._now[key] for key in found] or [None])

    def _holds_for(self, compare: Any, pair: Any) -> bool:
        target = compare.WhichOneof("target_union")
        wanted = getattr(compare, target) if target else 0
        if compare.target == rpc.Compare.VALUE:
            if pair is None:
                return False  # etcd: a value that is not there equals nothing and differs from nothing
            found: Any = pair.value
        else:
            found = 0 if pair is None else getattr(pair, _COMPARED[compare.target])
        match compare.result:
            case rpc.Compare.EQUAL:
                return bool(found == wanted)
            case rpc.Compare.GREATER:
                return bool(found > wanted)
            case rpc.Compare.LESS:
                return bool(found < wanted)
            case _:
                return bool(found != wanted)

    def _check(self, path: Path, checked: str, check: Callable[[Any], None]) -> None:
        """Refuses before anything is written; leases of all puts come before revisions of all reads."""
        for kind, op in path.taken:
            if kind == "request_txn":
                self._check(op, checked, check)
            elif kind == checked:
                check(op)

    def _check_space(self, taking: Sequence[Any]) -> None:
        if self.is_full and taking:
            raise no_space()

    def _check_put(self, request: Any) -> None:
        if request.lease and request.lease not in self.leases:
            raise no_lease()

    def _check_range(self, request: Any) -> None:
        if request.revision > self.revision:
            raise future_revision()
        if 0 < request.revision < self.compacted:
            raise compacted()

    def _run(self, path: Path, answer: Any) -> None:
        answer.succeeded = path.holds
        for kind, op in path.taken:
            response = answer.responses.add()
            match kind:
                case "request_txn":
                    response.response_txn.SetInParent()
                    self._run(op, response.response_txn)
                case "request_put":
                    response.response_put.CopyFrom(self._put(op))
                case "request_delete_range":
                    response.response_delete_range.CopyFrom(self._delete(op))
                case "request_range":
                    response.response_range.CopyFrom(self._range_within(op))

    def _range_within(self, request: Any) -> Any:
        if 0 < request.revision <= self.revision:
            pairs = self._at(request.revision)
            return self._range_in(request, pairs, sorted(pairs))
        return self._range_in(request, self._now, self._keys)

    def _begin(self) -> None:
        self._batch = _Batch(self.revision + 1)

    def _commit(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None and batch.events:
            self.revision = batch.revision
            self.history.append(Revision(batch.revision, tuple(batch.events)))

    def _put(self, request: Any) -> Any:
        batch, key = self._batch, request.key
        assert batch is not None
        old = self._now.get(key)
        answer = rpc.PutResponse()
        if request.prev_kv and old is not None:
            answer.prev_kv.CopyFrom(old)
        if old is None:
            self._keys.insert(bisect_left(self._keys, key), key)
        elif old.lease and old.lease in self.leases:
            self.leases[old.lease].keys.discard(key)
        pair = kv.KeyValue(
            key=key,
            value=request.value,
            create_revision=batch.revision if old is None else old.create_revision,
            mod_revision=batch.revision,
            version=1 if old is None else old.version + 1,
            lease=request.lease,
        )
        if request.lease:
            self.leases[request.lease].keys.add(key)
        self._now[key] = pair
        batch.events.append(kv.Event(type=kv.Event.PUT, kv=pair))
        return answer

    def _delete(self, request: Any) -> Any:
        batch = self._batch
        assert batch is not None
        answer = rpc.DeleteRangeResponse()
        for key in _keys_in(self._keys, request.key, request.range_end):
            old = self._now.pop(key)
            del self._keys[bisect_left(self._keys, key)]
            if old.lease and old.lease in self.leases:
                self.leases[old.lease].keys.discard(key)
            answer.deleted += 1
            if request.prev_kv:
                answer.prev_kvs.append(old)
            batch.events.append(kv.Event(type=kv.Event.DELETE, kv=kv.KeyValue(key=key, mod_revision=batch.revision)))
        return answer

    # --------------------------------------------------------------------------------------------------------------- reads

    def _at(self, revision: int) -> dict[bytes, Any]:
        """All keys as of a revision, by replaying everything."""
        found: dict[bytes, Any] = {}
        for change in self.history:
            if change.number > revision:
                break
            for event in change.events:
                if event.type == kv.Event.DELETE:
                    del found[event.kv.key]
                else:
                    found[event.kv.key] = event.kv
        return found

    def _range_in(self, request: Any, pairs: dict[bytes, Any], keys: list[bytes]) -> Any:
        answer = rpc.RangeResponse(header=self.header())
        if not request.range_end:
            matching = [request.key] if request.key in pairs else []
        else:
            matching = _keys_in(keys, request.key, request.range_end)
        answer.count = len(matching)
        if request.min_mod_revision:
            matching = [key for key in matching if pairs[key].mod_revision >= request.min_mod_revision]
        if request.count_only:
            return answer
        if request.limit and len(matching) > request.limit:
            matching, answer.more = matching[: request.limit], True
        for key in matching:
            pair = answer.kvs.add()
            pair.CopyFrom(pairs[key])
            if request.keys_only:
                pair.ClearField("value")
        return answer


@dataclass(slots=True)
class _Batch:
    """A write under way."""

    revision: int
    events: list[Any] = field(default_factory=list)


def _keys_in(keys: list[bytes], first: bytes, range_end: bytes) -> list[bytes]:
    """Those of a range, of keys in order."""
    begin = bisect_left(keys, first)
    if not range_end:
        return keys[begin : begin + 1] if keys[begin : begin + 1] == [first] else []
    return keys[begin:] if range_end == b"\0" else keys[begin : bisect_left(keys, range_end, begin)]


def _end_of(prefix: bytes) -> bytes:
    """The first key behind all that begin so. The prefix ends with a slash or the like."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


# ----------------------------------------------------------------------------------------------------------------- watches


@dataclass(slots=True)
class _Watch:
    id: int
    key: bytes
    range_end: bytes
    next_revision: int
    fragment: bool


class WatchStream:
    """The server's side of one stream of watches: `take` gives what it has to send now."""

    def __init__(self, etcd: ModelEtcd) -> None:
        self._etcd = etcd
        self._watches: dict[int, _Watch] = {}
        self._said: list[Any] = []
        self._next_id = 0

    def request(self, request: Any) -> None:
        match request.WhichOneof("request_union"):
            case "create_request":
                self._create(request.create_request)
            case "cancel_request":
                if self._watches.pop(request.cancel_request.watch_id, None) is not None:
                    self._say(watch_id=request.cancel_request.watch_id, canceled=True)
            case "progress_request":
                self._said.append("progress")

    def take(self, fragment_events: int = 1_000_000) -> list[Any]:
        """The WatchResponses that are due. Watches that want fragments get at most so many events in each."""
        messages: list[Any] = []
        said, self._said = self._said, []
        messages.extend(message for message in said if message != "progress")
        for watch in list(self._watches.values()):
            messages.extend(self._events(watch, fragment_events))
        if "progress" in said:
            messages.append(rpc.WatchResponse(header=self._etcd.header(), watch_id=-1))
        return messages

    def _create(self, request: Any) -> None:
        watch_id = request.watch_id
        if not watch_id:
            while self._next_id in self._watches:
                self._next_id += 1
            watch_id = self._next_id
            self._next_id += 1
        start = request.start_revision or self._etcd.revision + 1
        self._watches[watch_id] = _Watch(watch_id, request.key, request.range_end, start, request.fragment)
        self._say(watch_id=watch_id, created=True)

    def _say(self, **fields: Any) -> None:
        self._said.append(rpc.WatchResponse(header=self._etcd.header(), **fields))

    def _events(self, watch: _Watch, fragment_events: int) -> list[Any]:
        etcd = self._etcd
        if watch.next_revision > etcd.revision:
            return []
        header = etcd.header()
        if watch.next_revision < etcd.compacted:
            del self._watches[watch.id]
            return [rpc.WatchResponse(header=header, watch_id=watch.id, compact_revision=etcd.compacted, canceled=True)]
        events = etcd.events_from(watch.next_revision, watch.key, watch.range_end)
        watch.next_revision = etcd.revision + 1
        step = fragment_events if watch.fragment else max(1, len(events))
        return [
            rpc.WatchResponse(
                header=header,
                watch_id=watch.id,
                events=events[start : start + step],
                fragment=start + step < len(events),
            )
            for start in range(0, len(events), step)
        ]
