"""The election's lock in etcd: requests through futures, a watch at each member, one lease, all on a channel of its own.

No call blocks the elector. Each request has one deadline for all it takes, the grant of a lease included. Whatever goes wrong
in a call is answered as unknown: a write may have been committed although its answer said otherwise, and the election finds
out by its guards and by reading back.

A member that is silent costs a request a moment, and the watches nothing (member_channel.py): of what they tell, what is older
than what is known is dropped. Renewals go to one member each, for the election sends the next beside one without an answer.

Cost: one connection and one thread per endpoint, one thread more, and per renewal one transaction and one keepalive.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from leader import effects as fx
from leader.channel import kept, target_of
from leader.clock import NS_PER_SECOND
from leader.etcd_lease import EtcdLease
from leader.etcd_requests import LockKeys, build, read_outcome
from leader.etcd_shim import rpc
from leader.etcd_watch import KeyWatch
from leader.events import Answered, Event, Outcome, Unknown, Written
from leader.member_channel import MemberChannel
from leader.revocation import HeldTerm, held_by

_log = logging.getLogger("leader.etcd")

_LEASE_RETRIES: Final = 1
"""A lease that etcd has forgotten is replaced within the same request, once."""


class EtcdLock:
    """An `ElectionLock`. One elector uses it, from `start` to `close`."""

    def __init__(
        self,
        endpoints: Sequence[str],
        record_key: str | bytes,
        epoch_key: str | bytes,
        held: Callable[[HeldTerm | None], object] = lambda _: None,
        watched: Callable[[Event], object] = lambda _: None,
    ) -> None:
        """`held` is told the term that etcd has confirmed, whenever it or its lease is another one than before, and None at its
        release; `watched` all that the watch sees. Both on other threads, so they must not block. Raises EndpointError."""
        target_of(endpoints)
        self._endpoints = kept(endpoints)
        self._keys = LockKeys(_bytes(record_key), _bytes(epoch_key))
        self._deliver: Callable[[Event], None] = _log_undelivered
        self._channel: MemberChannel | None = None
        self._tell_held, self._tell_watched = held, watched
        self._held: HeldTerm | None = None

    def start(self, deliver: Callable[[Event], None], ttl_seconds: int) -> None:
        self._deliver = deliver
        self._channel = MemberChannel(self._endpoints, repeats=True)
        self._txn = rpc.KVStub(self._channel).Txn
        self._lease = EtcdLease(self._channel, ttl_seconds)
        self._watches = [KeyWatch(member, self._keys, self._watched) for member in self._channel.members]

    def submit(self, request: fx.Request) -> None:
        deadline = time.monotonic() + request.timeout_ns / NS_PER_SECOND
        try:
            self._submit(request, deadline, _LEASE_RETRIES)
        except ValueError as error:  # grpc's word for a channel that is closed
            self._answer(request, Unknown(str(error)))

    def look_around(self) -> None:
        """A request may be wanted soon: finds out which members of etcd answer. From any thread between `start` and `close`."""
        if self._channel is not None:
            self._channel.look_around()

    def close(self) -> None:
        if self._channel is not None:
            for watch in self._watches:
                watch.close()
            self._lease.close()
            self._channel.close()

    def describe(self) -> str:
        return f"{self._keys.record.decode(errors='replace')} in etcd at {','.join(self._endpoints)}"

    def _submit(self, request: fx.Request, deadline: float, lease_retries: int) -> None:
        if isinstance(request, fx.Get | fx.Release):
            self._send(request, deadline, 0, 0)
            return
        self._lease.use(
            deadline,
            lambda lease_id: self._send(request, deadline, lease_id, lease_retries),
            lambda reason: self._answer(request, Unknown(reason)),
        )

    def _send(self, request: fx.Request, deadline: float, lease_id: int, lease_retries: int) -> None:
        def answered(call: Any) -> None:
            try:
                outcome = read_outcome(request, call.result(), self._keys)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND and lease_id:
                    self._lease.forget(lease_id)
                    if lease_retries:
                        self._submit(request, deadline, lease_retries - 1)
                        return
                outcome = Unknown(f"{error.code().name}: {error.details()}")
            except (grpc.FutureCancelledError, ValueError) as error:
                outcome = Unknown(str(error))
            if isinstance(outcome, Written) and isinstance(request, fx.Release):
                self._hold(None)
                self._lease.revoke()
            elif isinstance(outcome, Written):
                self._hold(held_by(request, outcome, lease_id))
                self._lease.renewed()
            self._answer(request, outcome)

        timeout = max(0.001, deadline - time.monotonic())
        begin = self._txn.alone if isinstance(request, fx.Renew) else self._txn.future
        begin(build(request, self._keys, lease_id), timeout=timeout).add_done_callback(answered)

    def _watched(self, event: Event) -> None:
        self._deliver(event)
        self._tell_watched(event)

    def _hold(self, held: HeldTerm | None) -> None:
        """Answers may come late and on any thread; an epoch that was passed does not come back."""
        if held is None or self._held is None or held.epoch >= self._held.epoch:
            changed, self._held = held != self._held, held
            if changed:
                self._tell_held(held)

    def _answer(self, request: fx.Request, outcome: Outcome) -> None:
        if isinstance(outcome, Unknown):
            _log.debug("%s %d: %s", type(request).__name__, request.number, outcome.reason)
        self._deliver(Answered(request.number, outcome))


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _log_undelivered(event: Event) -> None:
    _log.debug("not started, so nobody takes %r", event)
