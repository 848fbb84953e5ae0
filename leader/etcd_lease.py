"""The etcd lease that a holder's record is bound to: granted when first needed, kept alive by each renewal and only by it.

The lease removes the record of a holder that is gone, and its end is a second trigger for the followers. It is never kept
alive on its own, so a holder that stopped renewing loses it within its time to live. A lease that etcd no longer knows is
replaced at the next renewal.

Calls never block their caller: granting goes through futures, keeping alive through a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import grpc

from leader.etcd_shim import rpc

_log = logging.getLogger("leader.etcd")

_KEEP_TIMEOUT_SECONDS: Final = 1.0
_REVOKE_WAIT_SECONDS: Final = 0.3


class EtcdLease:
    """Owned by one EtcdLock. `use` and `forget` may come from any thread."""

    def __init__(self, channel: grpc.Channel, ttl_seconds: int) -> None:
        self._stub = rpc.LeaseStub(channel)
        self._ttl_seconds = ttl_seconds
        self._guard = threading.Lock()
        self._lease_id = 0
        self._stale_after = 0.0
        """A lease that was granted and then not used for long may end too soon; a new one is granted instead."""
        self._revocation: Any = None
        self._due = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._keep_alive, name="leader-lease", daemon=True)
        self._thread.start()

    def use(self, deadline: float, then: Callable[[int], None], failed: Callable[[str], None]) -> None:
        """Call `then` with a live lease, or `failed`; `deadline` by time.monotonic()."""
        with self._guard:
            lease_id = self._lease_id if time.monotonic() < self._stale_after else 0
        if lease_id:
            then(lease_id)
            return

        def granted(call: Any) -> None:
            try:
                lease_id = int(call.result().ID)
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                failed(f"no etcd lease was granted: {error}")
                return
            with self._guard:
                self._lease_id = lease_id
                self._stale_after = time.monotonic() + self._ttl_seconds / 3
            then(lease_id)

        request = rpc.LeaseGrantRequest(TTL=self._ttl_seconds)
        self._stub.LeaseGrant.future(request, timeout=_remaining(deadline)).add_done_callback(granted)

    def renewed(self) -> None:
        """The record was written under the lease: keep it."""
        self._due.set()

    def forget(self, lease_id: int) -> None:
        """etcd says that this lease is gone."""
        with self._guard:
            if self._lease_id == lease_id:
                self._lease_id = 0

    def revoke(self) -> None:
        """The record was released. An answer is awaited by `close` alone; without one the lease runs out."""
        with self._guard:
            lease_id, self._lease_id = self._lease_id, 0
        if lease_id:
            self._revocation = self._stub.LeaseRevoke.future(rpc.LeaseRevokeRequest(ID=lease_id), timeout=_KEEP_TIMEOUT_SECONDS)

    def close(self) -> None:
        self._closed = True
        self._due.set()
        if self._revocation is not None:
            try:
                self._revocation.result(timeout=_REVOKE_WAIT_SECONDS)
            except (grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError) as error:
                _log.debug("revocation of the lease is left to its time to live: %s", error)

    def _keep_alive(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            if self._closed:
                return
            with self._guard:
                lease_id = self._lease_id
            if lease_id:
                self._keep_alive_once(lease_id)

    def _keep_alive_once(self, lease_id: int) -> None:
        sent = time.monotonic()
        request = rpc.LeaseKeepAliveRequest(ID=lease_id)
        try:
            answers = [answer.TTL for answer in self._stub.LeaseKeepAlive(iter([request]), timeout=_KEEP_TIMEOUT_SECONDS)]
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed meanwhile
            _log.debug("keeping the lease alive: %s", error)
            return
        if not answers or answers[0] <= 0:  # etcd's way to say that the lease is gone
            self.forget(lease_id)
            return
        with self._guard:
            self._stale_after = max(self._stale_after, sent + self._ttl_seconds * 2 / 3)


def _remaining(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())
