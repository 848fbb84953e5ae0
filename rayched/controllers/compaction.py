"""Compaction of etcd: to the revision that was current two turns before, so that 10 minutes are kept at the usual 5 a turn.

Without it etcd keeps every version of every object until its quota is full, and then refuses even leases. A watcher that is
further behind has to list again.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from rayched.store.client import StoreClient
from rayched.store.errors import Compacted

TURNS_KEPT: Final = 2

log = logging.getLogger(__name__)


class Compaction:
    """A duty. A standby takes part in every turn as well, so that it has a past when it leads."""

    name: Final = "compaction"
    period_seconds: Final = 300.0

    def __init__(self) -> None:
        self._revisions: deque[int] = deque(maxlen=TURNS_KEPT + 1)

    def turn(self, store: StoreClient, epoch: int | None) -> None:
        self._revisions.append(store.revision())
        if epoch is None or len(self._revisions) <= TURNS_KEPT:
            return
        try:
            store.compact(self._revisions[0])
        except Compacted:
            # Another leader was faster, or an administrator.
            return
        log.info("etcd compacted to revision %d", self._revisions[0])
