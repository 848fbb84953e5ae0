"""NodeController: the leader's care for nodes and for pods that have to end, on one thread with one connection.

Every replica reads the heartbeats, so whoever becomes the leader knows already for how long nodes have been silent, and, as each
reading has a revision, since when taints and deletions are there. Only the leader follows the objects and writes, under its
epoch; what is decided on a state that is no longer true fails by its conditions and is decided again.

A turn that etcd does not answer is tried again at the next one.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from leader.channel import kept, open_channel
from rayched.controllers.heartbeat_ages import HeartbeatAges
from rayched.controllers.loop_thread import LoopThread
from rayched.controllers.node_care import NodeCare
from rayched.controllers.node_lifecycle import EndKind, NodeEdit, PodEnd
from rayched.controllers.node_settings import NodeSettings
from rayched.controllers.node_writes import NodeWrites
from rayched.controllers.zones import ZoneChange
from rayched.store.entries import Entry
from rayched.store.errors import StoreError
from rayched.store.following import ClusterChanges, OwnWatches
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery
from rayched.store.refusals import count_fenced_among
from rayched.store.revision_clock import RevisionClock
from rayched.store.transactions import Committed, Conflict, Guard

_LOOK_SECONDS: Final = 0.25
"""Between two looks at what is due."""
_COALESCE_SECONDS: Final = 0.02
"""What comes within this time is decided together."""
_READING_GAPS_MAX: Final = 2.0
"""Of the period: time between two readings of the heartbeats beyond this does not count as silence."""

_ANEW_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class _Led:
    """What exists while this replica leads. The thread of the deliveries and the controller's meet at the lock."""

    def __init__(
        self,
        changes: ClusterChanges,
        keys: Keys,
        settings: NodeSettings,
        ages: HeartbeatAges,
        revisions: RevisionClock,
        writes: NodeWrites,
        wake: threading.Event,
    ) -> None:
        self.lock = threading.Lock()
        self.care = NodeCare(keys, settings, ages, revisions, writes, changes.decode)
        self._wake = wake
        self.following = changes.follow(keys.cluster_prefix, self._deliver)

    def _deliver(self, delivery: Delivery) -> None:
        with self.lock:
            if self.care.deliver(delivery):
                self._wake.set()


class NodeController:
    """Owns its threads. `start` and `stop` once."""

    def __init__(
        self,
        endpoints: Sequence[str],
        keys: Keys,
        settings: NodeSettings,
        epoch: Callable[[], int | None],
        wall_clock: Callable[[], float] = time.time,
        changes: ClusterChanges | None = None,
    ) -> None:
        """`epoch` gives the epoch to write under now; None on a standby. Without `changes` it follows etcd itself."""
        self._endpoints = kept(endpoints)
        self._keys = keys
        self._settings = settings
        self._epoch = epoch
        self._wall_clock = wall_clock
        self._ages = HeartbeatAges(_READING_GAPS_MAX * settings.node_monitor_period)
        self._revisions = RevisionClock()
        self._writes = NodeWrites(keys, uuid.uuid4().hex[:12])
        self._changes = changes or OwnWatches(endpoints)
        self._led: _Led | None = None
        self._next_reading = time.monotonic()
        self._loop = LoopThread("node-controller", self._run)
        self._stopped, self._wake = self._loop.stopped, self._loop.wake
        self.start, self.stop, self.problem = self._loop.start, self._loop.stop, self._loop.problem

    def _run(self) -> None:
        with open_channel(self._endpoints) as channel:
            store = StoreClient(channel)
            try:
                while not self._stopped.is_set():
                    self._lead()
                    self._turn(store)
                    if self._wake.wait(_LOOK_SECONDS):
                        self._wake.clear()
                        self._stopped.wait(_COALESCE_SECONDS)
            finally:
                self._let_go()

    def _lead(self) -> None:
        """Begins and ends following the objects; what failed begins anew."""
        leads = self._epoch() is not None
        if self._led is not None and (not leads or not self._led.following.alive):
            self._let_go()
        if self._led is None and leads:
            self._led = _Led(self._changes, self._keys, self._settings, self._ages, self._revisions, self._writes, self._wake)

    def _let_go(self) -> None:
        if self._led is not None:
            self._led.following.stop()
            self._led = None

    def _turn(self, store: StoreClient) -> None:
        try:
            if time.monotonic() >= self._next_reading:
                self._next_reading = time.monotonic() + self._settings.node_monitor_period
                self._read_heartbeats(store, self._led)
            if self._led is not None:
                self._act(store, self._led)
        except StoreError as error:
            log.warning("nodes: %s; tried again", error)
        except Exception:
            # A bug shall not leave the cluster without this care for good: what is known is thrown away and read anew.
            log.critical("the care for nodes failed; it begins anew", exc_info=True)
            self._let_go()
            self._stopped.wait(_ANEW_SECONDS)

    def _read_heartbeats(self, store: StoreClient, led: _Led | None) -> None:
        page = store.list_all(self._keys.heartbeats_prefix, keys_only=True)
        revisions = {
            name: entry.mod_revision for entry in page.entries if (name := self._keys.node_of_heartbeat(entry.key)) is not None
        }
        if led is None:
            self._observed(revisions, page.revision)
            return
        with led.lock:
            self._observed(revisions, page.revision)
            turn = led.care.judge(time.monotonic())
        if turn is not ZoneChange.NONE:
            log.warning("%s", _TURNS[turn])

    def _observed(self, heartbeats: Mapping[str, int], revision: int) -> None:
        now = time.monotonic()
        self._ages.observed(heartbeats, now)
        self._revisions.observed(revision, now)

    def _act(self, store: StoreClient, led: _Led) -> None:
        with led.lock:
            decided = led.care.decide(self._epoch(), time.monotonic(), self._wall_clock())
        if decided is None:
            return
        done: set[bytes] = set()
        try:
            pods = store.get_many(decided.pod_keys).entries if decided.ends else ()
            writes = led.care.writes(decided, pods, self._records(store, decided.record_uids))
            outcomes = store.commit(Guard(self._keys.epoch, decided.epoch), writes)
            count_fenced_among("nodes", outcomes)
            for write, outcome in zip(writes, outcomes, strict=True):
                if isinstance(outcome, Committed):
                    done.add(write.key)
                elif not isinstance(outcome, Conflict):
                    log.warning("%s: not written: %s; tried again", write.key.decode(), outcome)
        finally:
            with led.lock:
                led.care.settle(decided, done)
        _tell([edit for edit in decided.edits if edit.facts.key in done], [end for end in decided.ends if end.facts.key in done])

    def _records(self, store: StoreClient, uids: Sequence[str]) -> dict[str, Entry]:
        """Of submissions, by uid."""
        found = store.get_many([self._keys.submission(uid) for uid in uids]).entries if uids else ()
        return {uid: entry for uid, entry in zip(uids, found, strict=True) if entry is not None}


_DONE: Final = {EndKind.EVICT: "evicted", EndKind.FAIL: "failed", EndKind.REMOVE: "removed"}
_TURNS: Final = {
    ZoneChange.ALL_LOST: "no node is ready in any zone: nothing is evicted until one is",
    ZoneChange.FOUND_AGAIN: "nodes are ready again: evictions of lost nodes go on",
}


def _tell(edits: Sequence[NodeEdit], ends: Sequence[PodEnd]) -> None:
    for edit in edits:
        if edit.heartbeat is not None:
            log.warning("node %s is not heard of any more", edit.name)
    for end, count in Counter(end.end for end in ends).items():
        if end in _DONE:
            log.info("pods %s: %d (%s)", _DONE[end], count, end.value)
