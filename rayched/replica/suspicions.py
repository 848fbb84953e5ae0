"""Pods in whose scheduling cycle a scheduler of this replica died or hung, told to every scheduler through etcd.

Whoever leads next would take up the same pod first, and might die the same way. So the replica writes down which pod it was, as
soon as the scheduler has given no sign of life for a while: before the lease ends, and so before anybody else's epoch begins. It
is no decision and carries no epoch; the record ends with a lease of its own.

Owner: the actors' supervisor. Writes are made on a thread of their own, as etcd may be slow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from leader.channel import open_channel
from rayched.store.errors import StoreError
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys, KeyTextError
from rayched.v1.storage_pb2 import Suspect

RECORD_SECONDS: Final = 3600
"""How long a suspicion holds, after the last death."""
AGAIN_SECONDS: Final = 30.0
"""A hung scheduler and its death are one."""
log = logging.getLogger("rayched.replica")


class Suspicions:
    """Of one replica."""

    def __init__(self, endpoints: Sequence[str], keys: Keys, identity: str) -> None:
        self._endpoints = endpoints
        self._keys = keys
        self._identity = identity
        self._last: tuple[str, float] | None = None

    def note(self, uid: str, now: float) -> threading.Thread | None:
        """A scheduler died or hangs in the cycle of this pod; "" is nobody. `now`: seconds of any steady clock."""
        if not uid or (self._last is not None and self._last[0] == uid and now - self._last[1] < AGAIN_SECONDS):
            return None
        self._last = uid, now
        log.warning("the scheduler was deciding about the pod with uid %.100r; it is tried last from now on", uid)
        thread = threading.Thread(target=self._write, args=(uid,), name="suspicion", daemon=True)
        thread.start()
        return thread

    def _write(self, uid: str) -> None:
        try:
            key = self._keys.suspect(uid)
            with open_channel(self._endpoints) as channel:
                store = StoreClient(channel)
                found = store.get(key)
                deaths = Suspect.FromString(found.value).deaths if found is not None else 0
                suspect = Suspect(deaths=deaths + 1, last_at_ms=int(time.time() * 1000), told_by=self._identity)
                store.put(key, suspect.SerializeToString(), store.grant_lease(RECORD_SECONDS).id)
        except (StoreError, KeyTextError) as problem:
            log.warning("no other replica can be notified of the pod with uid %.100r: %s", uid, problem)
