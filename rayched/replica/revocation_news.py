"""How the term before was ended, where that was before its lease: whoever succeeds it logs it, counts it and writes an Event.

Guardians and followers leave a note in etcd (leader/revocation.py). It belongs to the term before the own one if it names the
epoch that the own one has replaced. Nothing waits for any of this: it happens on a thread of its own, once a takeover.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from leader.channel import kept, open_channel
from leader.etcd_requests import never
from leader.etcd_shim import rpc
from leader.record import RecordError
from leader.revocation import Evidence, RevocationNote
from rayched.core.writes.event_reasons import term_revoked
from rayched.store.errors import StoreError
from rayched.store.event_writes import LEASE_SECONDS, EventWrites
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.transactions import Guard

_ATTEMPTS: Final = 3
"""An Event of the same reason may be there, which is found at the first."""

log = logging.getLogger("rayched.replica")


class RevocationNews:
    """Of one replica. `revoked` is called for each term that it succeeds and that was ended so."""

    def __init__(self, endpoints: Sequence[str], keys: Keys, identity: str, revoked: Callable[[Evidence], object]) -> None:
        self._endpoints, self._keys, self._identity = kept(endpoints), keys, identity
        self._revoked = revoked

    def ask(self, epoch: int) -> threading.Thread:
        """This replica has begun to lead under this epoch."""
        thread = threading.Thread(target=self._ask, args=(epoch,), name="revocation-news", daemon=True)
        thread.start()
        return thread

    def _ask(self, epoch: int) -> None:
        try:
            with open_channel(self._endpoints) as channel:
                store = StoreClient(channel)
                note = self._note(store, epoch)
                if note is not None:
                    words = f"{note.by} has ended epoch {note.epoch} of a leader {note.detail}"
                    log.warning("took over before the lease was over: %s", words)
                    self._revoked(note.evidence)
                    self._tell(store, epoch, words)
        except (StoreError, RecordError) as problem:
            log.warning("how the term before epoch %d has ended cannot be told: %s", epoch, problem)

    def _note(self, store: StoreClient, epoch: int) -> RevocationNote | None:
        """Of the term that this epoch has replaced."""
        stored = store.get(self._keys.revocation)
        if stored is None:
            return None
        read = rpc.RangeRequest(key=self._keys.epoch, revision=epoch - 1)
        answer = store.txn(rpc.TxnRequest(success=[rpc.RequestOp(request_range=read)], failure=[never(self._keys.epoch)]))
        note = RevocationNote.from_json(stored.value)
        return note if [pair.mod_revision for pair in answer.responses[0].response_range.kvs] == [note.epoch] else None

    def _tell(self, store: StoreClient, epoch: int, words: str) -> None:
        writes = EventWrites(self._keys, uuid.uuid4().hex[:12], repeating=True)
        now = time.monotonic()
        writes.emit(term_revoked(words, self._identity), now, time.time())
        for _ in range(_ATTEMPTS):
            if writes.lease_wanted(now):
                writes.lease_granted(store.grant_lease(LEASE_SECONDS).id, now)
            batch = writes.batch(epoch, epoch, now, under_pressure=False)
            for write, outcome in zip(batch, store.commit(Guard(self._keys.epoch, epoch), batch) if batch else (), strict=True):
                writes.outcome(write, outcome, now)
