"""The etcd lease that a holder's record is bound to: granted when first needed, kept alive by each renewal and only by it.

The lease removes the record of a holder that is gone, and its end is a second trigger for the followers. It is never kept
alive on its own, so a holder that stopped renewing loses it within its time to live. Which lease may be used when is `LeaseUse`'s
to say.

Calls never block their caller: granting goes through futures, keeping alive through a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc

from leader.etcd_shim import rpc
from leader.lease_use import LeaseUse
from leader.member_channel import MemberChannel

_log = logging.getLogger("leader.etcd")

_KEEP_TIMEOUT_SECONDS: Final = 1.0
_REVOKE_TIMEOUT_SECONDS: Final = 1.0
_REVOKE_WAIT_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class _Wish:
    """Somebody wants to write under the lease; `deadline` by time.monotonic()."""

    deadline: float
    then: Callable[[int], None]
    failed: Callable[[str], None]


class EtcdLease:
    """Owned by one EtcdLock. `use` and `forget` may come from any thread."""

    def __init__(self, channel: grpc.Channel, ttl_seconds: int) -> None:
        self._stub = rpc.LeaseStub(channel)
        self._keep = keep_alive_call(channel)
        self._ttl_seconds = ttl_seconds
        self._guard = threading.Lock()
        self._use = LeaseUse(ttl_seconds)
        self._waiting: _Wish | None = None
        """Waits until the lease was kept alive or granted. A later wish replaces it: what it was for has been sent again."""
        self._granting = False
        """A grant is under way: a second lease beside it would let the record vanish with the first one."""
        self._revocation: Any = None
        self._due = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._keep_alive, name="leader-lease", daemon=True)
        self._thread.start()

    def use(self, deadline: float, then: Callable[[int], None], failed: Callable[[str], None]) -> None:
        """Call `then` with a live lease, or `failed`; `deadline` by time.monotonic()."""
        wish = _Wish(deadline, then, failed)
        with self._guard:
            usable, known = self._use.usable(time.monotonic()), self._use.lease_id
            if not usable:
                self._waiting = wish
        if usable:
            then(usable)
        elif known:
            self._due.set()
        else:
            self._grant()

    def renewed(self) -> None:
        """The record was written under the lease: keep it."""
        self._due.set()

    def forget(self, lease_id: int) -> None:
        """etcd says that this lease is gone."""
        with self._guard:
            self._use.gone(lease_id)

    def revoke(self) -> None:
        """The record was released. An answer is awaited by `close` alone; without one the lease runs out."""
        with self._guard:
            lease_id = self._use.lease_id
            self._use.gone(lease_id)
        if lease_id:
            revoke = rpc.LeaseRevokeRequest(ID=lease_id)
            self._revocation = self._stub.LeaseRevoke.future(revoke, timeout=_REVOKE_TIMEOUT_SECONDS)

    def close(self) -> None:
        self._closed = True
        self._due.set()
        if self._revocation is not None:
            try:
                self._revocation.result(timeout=_REVOKE_WAIT_SECONDS)
            except (grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError) as error:
                _log.debug("revocation of the lease is left to its time to live: %s", error)

    def _grant(self) -> None:
        """For whoever waits when the answer comes."""
        with self._guard:
            wish = self._waiting
            if wish is None or self._granting:
                return
            self._granting = True
        sent = time.monotonic()

        def granted(call: Any) -> None:
            lease_id, reason = 0, ""
            try:
                lease_id = int(call.result().ID)
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                reason = f"no etcd lease was granted: {error}"
            with self._guard:
                self._granting = False
                wish, self._waiting = self._waiting, None
                if lease_id:
                    self._use.granted(lease_id, sent)
            if wish is not None and lease_id:
                wish.then(lease_id)
            elif wish is not None:
                wish.failed(reason)

        request = rpc.LeaseGrantRequest(TTL=self._ttl_seconds)
        try:
            self._stub.LeaseGrant.future(request, timeout=_remaining(wish.deadline)).add_done_callback(granted)
        except ValueError:
            with self._guard:
                self._granting = False
            raise

    def _keep_alive(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            if self._closed:
                return
            with self._guard:
                lease_id, wish = self._use.lease_id, self._waiting
            if lease_id:
                self._keep_alive_once(lease_id, _KEEP_TIMEOUT_SECONDS if wish is None else _remaining(wish.deadline))
                self._fulfil()

    def _fulfil(self) -> None:
        """After an attempt to keep the lease alive: for whoever waits by now."""
        with self._guard:
            usable, known, wish = self._use.usable(time.monotonic()), self._use.lease_id, self._waiting
            if wish is None:
                return
            if known:
                self._waiting = None
        try:
            if usable:
                wish.then(usable)
            elif known:
                wish.failed("the etcd lease could not be kept alive")
            else:
                self._grant()
        except ValueError as error:  # the channel was closed meanwhile
            wish.failed(str(error))

    def _keep_alive_once(self, lease_id: int, timeout_seconds: float) -> None:
        sent = time.monotonic()
        request = rpc.LeaseKeepAliveRequest(ID=lease_id)
        try:
            answer = self._keep(request, timeout=timeout_seconds)
        except (grpc.RpcError, grpc.FutureCancelledError, ValueError) as error:  # ValueError: the channel was closed meanwhile
            _log.debug("keeping the lease alive: %s", error)
            return
        with self._guard:
            self._use.kept(lease_id, answer.TTL, sent)


def keep_alive_call(channel: grpc.Channel | MemberChannel) -> Any:
    """`LeaseKeepAlive` for one request and its answer, which on the wire is a call like any other. So a MemberChannel goes on to
    the next member where one does not answer soon: one that is far from etcd's leader has to ask that first."""
    make = channel.cheap_call if isinstance(channel, MemberChannel) else channel.unary_unary
    return make(
        "/etcdserverpb.Lease/LeaseKeepAlive",
        request_serializer=rpc.LeaseKeepAliveRequest.SerializeToString,
        response_deserializer=rpc.LeaseKeepAliveResponse.FromString,
    )


def _remaining(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())
