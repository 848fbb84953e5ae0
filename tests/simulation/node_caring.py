"""A replica's care for nodes: the real `NodeCare` and `HeartbeatAges`, carried by the simulation.

What `NodeController` does with a thread and a connection is done here with plans of the world: one turn at a time, each a
coroutine that goes on when etcd answers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final

from leader.belief import BeliefCell
from rayched.controllers.heartbeat_ages import HeartbeatAges
from rayched.controllers.node_care import CareDecision, NodeCare
from rayched.controllers.node_settings import NodeSettings
from rayched.controllers.node_writes import NodeWrites
from rayched.store.entries import Entry
from rayched.store.errors import StoreError
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery
from rayched.store.revision_clock import RevisionClock
from rayched.store.transactions import Committed, Fenced, Guard, split
from tests.simulation.api import CALL_NS, Call, SimulatedStore
from tests.simulation.candidate import MachineClock
from tests.simulation.following import Following
from tests.simulation.role import Caring
from tests.simulation.world import MS, Answer, Link, Process, World

SETTINGS: Final = NodeSettings(
    node_monitor_period=0.2,
    node_monitor_grace_period=1.0,
    node_startup_grace_period=1.5,
    node_eviction_rate=10.0,
    orphan_quarantine=0.6,
    termination_margin=1.0,
)
_READING_GAPS_MAX: Final = 2.0
_LOOK_NS: Final = 250 * MS
_COALESCE_NS: Final = 20 * MS


class NodeCaring(Caring):
    """One life of a replica's care for nodes."""

    def __init__(self, world: World, process: Process, link: Link, clock: MachineClock, keys: Keys, cell: BeliefCell) -> None:
        super().__init__(world, process, link, clock, keys, cell)
        self._store = SimulatedStore(world)
        self._ages = HeartbeatAges(_READING_GAPS_MAX * SETTINGS.node_monitor_period)
        self._revisions = RevisionClock()
        self._writes = NodeWrites(keys, f"{process.name}care")
        self._care: NodeCare | None = None
        self._following: Following | None = None
        self._next_reading = 0.0

    def _look(self) -> None:
        self._lead()
        self._is_busy = True
        self._go_on(self._turn(), None)

    def _go_on(self, work: Coroutine[Call, Answer, None], answer: Answer) -> None:
        try:
            call = work.send(answer)
        except StopIteration:
            self._is_busy = False
            self._plan(_LOOK_NS)
            return

        def send() -> None:
            self.world.call(self.process, self.link, call.handle, CALL_NS, lambda answer: self._go_on(work, answer))

        # At once, unless the process was paused since it decided.
        self.process.deliver(send)

    # ---------------------------------------------------------------------------------------------------------------- turns

    def _lead(self) -> None:
        leads = self._epoch() is not None
        if self._following is not None and not leads:
            self._following.stop()
            self._following = self._care = None
        if self._following is None and leads:
            self._care = NodeCare(self._keys, SETTINGS, self._ages, self._revisions, self._writes)
            prefix, page_size = self._keys.cluster_prefix, self.world.random.choice((3, 20, 2000))
            take = self._taker(self._care)
            self._following = Following(self.world, self.process, self.link, self._machine_clock, prefix, page_size, take)
            self._following.start()

    def _taker(self, care: NodeCare) -> Callable[[Delivery], None]:
        def take(delivery: Delivery) -> None:
            if care.deliver(delivery) and not self._is_busy:
                self._plan(_COALESCE_NS)

        return take

    async def _turn(self) -> None:
        """What etcd does not answer is tried again at the next one."""
        try:
            if self._now() >= self._next_reading:
                self._next_reading = self._now() + SETTINGS.node_monitor_period
                await self._read_heartbeats(self._care)
            if self._care is not None:
                await self._act(self._care)
        except StoreError:
            pass

    async def _read_heartbeats(self, care: NodeCare | None) -> None:
        page = await self._store.list_keys(self._keys.heartbeats_prefix)
        names = ((self._keys.node_of_heartbeat(entry.key), entry.mod_revision) for entry in page.entries)
        self._ages.observed({name: revision for name, revision in names if name is not None}, self._now())
        self._revisions.observed(page.revision, self._now())
        if care is not None:
            care.judge(self._now())

    async def _act(self, care: NodeCare) -> None:
        decided = care.decide(self._epoch(), self._now(), self._wall_time())
        if decided is None:
            return
        done: set[bytes] = set()
        try:
            await self._write(care, decided, done)
        finally:
            care.settle(decided, done)

    async def _write(self, care: NodeCare, decided: CareDecision, done: set[bytes]) -> None:
        """Puts the keys that were written into `done`."""
        pods = (await self._store.get_many(decided.pod_keys)).entries if decided.ends else ()
        uids = decided.record_uids
        found = (await self._store.get_many([self._keys.submission(uid) for uid in uids])).entries if uids else ()
        records: dict[str, Entry] = {uid: entry for uid, entry in zip(uids, found, strict=True) if entry is not None}
        for batch in split(care.writes(decided, pods, records)):
            self._is_about_to_write()
            outcomes = await self._store.send(Guard(self._keys.epoch, decided.epoch), batch)
            self.world.fenced += any(isinstance(outcome, Fenced) for outcome in outcomes)
            done.update(write.key for write, outcome in zip(batch, outcomes, strict=True) if isinstance(outcome, Committed))
