"""A follower's watch over whoever leads: the threads and calls around `FailureDetector`.

    watch = FollowerWatch(endpoints, keys, votes, identity, retry_period=0.4, suspect_after=0.7)
    lock = EtcdLock(endpoints, record, epoch, watched=watch.seen)

It has connections to etcd of its own, so what it has to say never waits for a renewal or delays one, and asks members beside one
that is silent (member_channel.py): a host that falls silent may take its etcd member with it. Where silence counts, a
follower is present with a key below `votes`, under an etcd lease that it keeps alive; the key holds the epoch that it suspects.

Cost: one thread, one idle connection to the leader, and where silence counts a keepalive of etcd every three seconds.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from leader.channel import kept
from leader.clock import NS_PER_SECOND, Clock, SystemClock
from leader.connections import Connections
from leader.etcd_lease import keep_alive_call
from leader.etcd_requests import LockKeys
from leader.etcd_shim import rpc
from leader.events import EpochChanged, Event, Listed, RecordChanged
from leader.failure_detector import (
    Connect,
    Counted,
    DetectorEffect,
    DetectorEvent,
    Disconnect,
    FailureDetector,
    LeaderSeen,
    Leading,
    LookAround,
    Revoke,
    TimePassed,
    Unanswered,
    Vote,
)
from leader.member_channel import MemberChannel
from leader.observation import Observation
from leader.revocation import Evidence, HeldTerm, RevocationNote, revoke

_log = logging.getLogger("leader")

_CALL_SECONDS: Final = 1.5
"""A member that is silent is not waited for; an etcd that is slow is."""
_END_SECONDS_MAX: Final = 0.2
_PRESENCE_TTL_SECONDS: Final = 10
_PRESENCE_PERIOD_SECONDS: Final = 3.0


class FollowerWatch:
    """Of one candidate; while that leads it watches nobody. `start` and `close` once each, `seen` from any thread."""

    def __init__(
        self,
        endpoints: Sequence[str],
        keys: LockKeys,
        votes: bytes,
        identity: str,
        *,
        retry_period: float,
        suspect_after: float | None,
        suspects: Callable[[Evidence], object] = lambda _: None,
        acted: Callable[[Evidence, bool | None], object] = lambda *_: None,
        silent: Callable[[], object] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        """`votes`: what the keys of followers begin with, used where `suspect_after` is given. `suspects` is told each suspicion
        once, `acted` whether a term was ended: False where it had been, None where etcd gave no answer. `silent` is called
        when the leader begins to give no answer, before there is any suspicion. Times in seconds.

        Raises EndpointError at `start`."""
        self._endpoints, self._keys, self._votes, self._identity = kept(endpoints), keys, votes, identity
        self._is_present = suspect_after is not None
        self._suspects, self._acted, self._silent = suspects, acted, silent
        self._clock = clock or SystemClock()
        self._detector = FailureDetector(retry_period, suspect_after)
        self._observed = Observation()
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._happened: list[DetectorEvent] = []
        self._connections = Connections(self._happened.append)
        self._channel: MemberChannel | None = None
        self._lease: Any = None
        self._kv: Any = None
        self._keep: Any = None
        self._presence = 0
        """Its etcd lease; 0: none yet."""
        self._present_at = 0.0
        self._suspected = 0
        """The epoch of the last vote."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader-follower-watch", daemon=True)

    def start(self) -> None:
        channel = self._channel = MemberChannel(self._endpoints, repeats=True)
        # Once: a channel with TLS keeps each method that was made of it and called.
        self._lease, self._kv, self._keep = rpc.LeaseStub(channel), rpc.KVStub(channel), keep_alive_call(channel)
        self._thread.start()

    def close(self) -> None:
        """The thread ends; a call to etcd that does not return is not waited for."""
        self._closed.set()
        if self._thread.is_alive():
            self._connections.wake()
            self._thread.join(_END_SECONDS_MAX)

    def seen(self, event: Event) -> None:
        """What the watch of the lock has seen."""
        if not self._closed.is_set():
            self._inbox.put(event)
            self._connections.wake()

    # ---------------------------------------------------------------------------------------------------------- its thread

    def _run(self) -> None:
        channel = self._channel
        assert channel is not None
        try:
            while not self._closed.is_set():
                self._connections.wait(self._wait_seconds())
                self._take_news()
                self._happened.append(TimePassed())
                self._step()
                if self._is_present and time.monotonic() >= self._present_at:
                    self._stay_present()
        finally:
            self._connections.close_all()
            channel.close()

    def _wait_seconds(self) -> float:
        due_ns = self._detector.due_ns
        until_due = _PRESENCE_PERIOD_SECONDS if due_ns is None else (due_ns - self._clock.now().boot_ns) / NS_PER_SECOND
        return max(0.001, min(until_due, _PRESENCE_PERIOD_SECONDS))

    def _step(self) -> None:
        """Until nothing more comes of it."""
        while self._happened:
            happened = list(self._happened)
            self._happened.clear()
            for event in happened:
                for effect in self._detector.step(self._clock.now().boot_ns, event):
                    self._perform(effect)

    def _take_news(self) -> None:
        now = self._clock.now()
        while not self._inbox.empty():
            match self._inbox.get():
                case RecordChanged(record, revision):
                    changed = self._observed.see_record(record, revision, now)
                case EpochChanged(epoch, revision):
                    changed = self._observed.see_epoch(epoch, revision)
                case Listed(view, went_back):
                    if went_back:
                        self._observed.forget()
                    changed = self._observed.see(view, now)
                case _:
                    changed = False
            if changed:
                self._happened.append(LeaderSeen(leading_of(self._observed, self._identity)))

    def _perform(self, effect: DetectorEffect) -> None:
        match effect:
            case Connect(number, address, timeout_ns):
                host, _, port = address.rpartition(":")
                if host and port.isdecimal():
                    self._connections.open(number, host.strip("[]"), int(port), timeout_ns / NS_PER_SECOND)
                else:
                    self._happened.append(Unanswered(number))
            case Disconnect(number):
                self._connections.close(number)
            case LookAround():
                self._look_around()
            case Vote(epoch):
                self._vote(epoch)
            case Revoke(leading, evidence, detail):
                self._revoke(leading, evidence, detail)

    def _look_around(self) -> None:
        channel = self._channel
        assert channel is not None
        channel.look_around()
        self._silent()

    def _revoke(self, leading: Leading, evidence: Evidence, detail: str) -> None:
        channel = self._channel
        assert channel is not None
        words = f"epoch {leading.held.epoch} of {leading.holder}, {detail}"
        note = RevocationNote(leading.held.epoch, evidence, self._identity, detail)
        is_ended: bool | None = None
        if evidence is not Evidence.SILENT:  # that was told with the first vote
            self._suspects(evidence)
        try:
            is_ended = revoke(channel, self._keys, leading.held, note, _CALL_SECONDS)
            _log.warning("%s: %s", words, "its lease is revoked" if is_ended else "nothing to revoke, the term has ended")
        except grpc.RpcError as error:
            _log.warning("%s: its lease may not be revoked: %s", words, error.code().name)
        self._acted(evidence, is_ended)

    # --------------------------------------------------------------------------------------------------------------- votes

    def _vote(self, epoch: int) -> None:
        leading = leading_of(self._observed, self._identity)
        is_new, self._suspected = epoch != self._suspected, epoch
        if epoch and leading is not None and is_new:
            _log.warning("epoch %d of %s, who is silent: suspected", epoch, leading.holder)
            self._suspects(Evidence.SILENT)
        answer = self._call_with_presence(epoch)
        if answer is None or not epoch or leading is None:
            return
        found = {pair.key[len(self._votes) :].decode(errors="replace"): pair.value for pair in answer}
        others = {name: _voted(value) for name, value in found.items() if name != leading.holder}
        # A leader that was seen to renew meanwhile is left alone.
        self._take_news()
        self._happened.append(Counted(epoch, len(others), sum(voted == epoch for voted in others.values())))

    def _call_with_presence(self, epoch: int) -> Any:
        """Writes this follower's key and reads those of all; None where etcd did not answer."""
        try:
            if not self._presence:
                grant = rpc.LeaseGrantRequest(TTL=_PRESENCE_TTL_SECONDS)
                self._presence = int(self._lease.LeaseGrant(grant, timeout=_CALL_SECONDS).ID)
            put = rpc.PutRequest(
                key=self._votes + self._identity.encode(), value=json.dumps({"suspects": epoch}).encode(), lease=self._presence
            )
            read = rpc.RangeRequest(key=self._votes, range_end=self._votes[:-1] + bytes((self._votes[-1] + 1,)))
            operations = [rpc.RequestOp(request_put=put), rpc.RequestOp(request_range=read)]
            answer = self._kv.Txn(rpc.TxnRequest(success=operations), timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            _log.debug("the votes cannot be written or read: %s", error.code().name)
            self._presence = 0
            return None
        return answer.responses[1].response_range.kvs

    def _stay_present(self) -> None:
        self._present_at = time.monotonic() + _PRESENCE_PERIOD_SECONDS
        if not self._presence:
            self._call_with_presence(0)
            return
        request = rpc.LeaseKeepAliveRequest(ID=self._presence)
        try:
            answer = self._keep(request, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            _log.debug("the key of this follower is not kept alive: %s", error.code().name)
            return
        if answer.TTL <= 0:
            self._presence, self._present_at = 0, 0.0


def leading_of(observed: Observation, identity: str) -> Leading | None:
    """Who leads, as far as a follower is to watch it: by a record and an epoch of one run, under a lease, with an address."""
    record, epoch = observed.record, observed.epoch
    if record is None or epoch is None or record.record.instance != epoch.epoch.instance or not record.lease_id:
        return None
    leader = record.record
    if leader.holder in ("", identity) or not leader.address:
        return None
    return Leading(leader.holder, leader.address, HeldTerm(record.lease_id, epoch.mod_revision))


def _voted(value: bytes) -> int:
    """The epoch that a follower suspects; 0: none that could be read."""
    try:
        return int(json.loads(value)["suspects"])
    except (ValueError, TypeError, KeyError):
        return 0
