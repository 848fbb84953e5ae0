"""One replica: a machine with clocks of its own, the elector, the scheduler with its queue, the API; killed and started again.

A replica stands for election once its scheduler has read the cluster. A scheduler that dies is replaced, and the elector begins a
new term at once, as the replica's supervisor does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from leader.config import FAST, ElectionConfig
from leader.etcd_requests import LockKeys
from rayched.core.writes.window import Send
from rayched.framework.profile import Profile
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery
from tests.simulation.api import Api
from tests.simulation.budget_caring import BudgetCaring
from tests.simulation.candidate import Candidate, MachineClock
from tests.simulation.node_caring import NodeCaring
from tests.simulation.peers import Following, Peers
from tests.simulation.scheduling import Scheduling
from tests.simulation.world import MS, SECOND, Link, Process, World

KEYS: Final = Keys("/sim")
_PROGRESS_LIMIT_LEASES: Final = 1.5
CARE: Final = 3
"""Place of the link for the care for nodes, in worlds that have it."""


class Replica:
    """`believing` and `delivered` are told what the checkers want to know."""

    def __init__(
        self,
        world: World,
        name: str,
        rate: float,
        profiles: Mapping[str, Profile],
        believing: Callable[[Replica], None],
        delivered: Callable[[Replica, Delivery], None],
        bound_since: Callable[[int, int], list[str]],
        *,
        cares_for_nodes: bool = False,
        wall_clocks_agree: bool = False,
        peers: Peers | None = None,
        keys_max: int | None = None,
        sending: Callable[[Replica, Send], None] = lambda replica, send: None,
    ) -> None:
        self.world, self.name = world, name
        self._keys_max, self._sending = keys_max, sending
        parts = ("elector", "scheduler", "API", "care for nodes") if cares_for_nodes else ("elector", "scheduler", "API")
        self.links = [Link(f"{name}'s {what}") for what in parts]
        random = world.random
        wall_offset_ns = random.randrange(-3600 * SECOND, 3600 * SECOND) if random.random() < 0.5 else random.randrange(SECOND)
        self.clock = MachineClock(world, rate, random.randrange(1, 1000) * SECOND, 0 if wall_clocks_agree else wall_offset_ns)
        self.caring: NodeCaring | None = None
        self.budget_caring: BudgetCaring | None = None
        self._profiles = profiles
        self._peers = peers
        self._believing, self._delivered, self._bound_since = believing, delivered, bound_since
        self.lives = 0
        self._schedulers = 0
        self.start()

    def start(self) -> None:
        """A new process, with an identity that never was before."""
        self.lives += 1
        world = self.world
        self.process = Process(world, f"{self.name}{self.lives}")
        config = ElectionConfig.of(
            FAST,
            identity=self.process.name,
            progress_limit=FAST.lease_duration * _PROGRESS_LIMIT_LEASES,
            address="" if self._peers is None else self.name,
        )
        self.candidate = Candidate(
            world,
            self.process,
            self.links[0],
            self.clock,
            LockKeys(KEYS.record, KEYS.epoch),
            config,
            self,
            lambda _: self._believing(self),
        )
        if self._peers is not None:
            self.candidate.following = Following(self._peers, self.candidate)
        self.api = Api(world, self.process, self.links[2], self.clock, KEYS)
        self._stands = False
        self._start_scheduler()
        if len(self.links) > CARE:
            link, cell = self.links[CARE], self.candidate.cell
            self.caring = NodeCaring(world, self.process, link, self.clock, KEYS, cell)
            self.caring.start()
            self.budget_caring = BudgetCaring(world, self.process, link, self.clock, KEYS, cell)
            self.budget_caring.start()

    @property
    def is_up(self) -> bool:
        return self.process.is_alive()

    def crash(self, down_ns: int) -> None:
        """SIGKILL of everything, and a new start later."""
        if not self.process.alive:
            return
        self.world.tell(f"{self.process.name} is killed")
        self.process.alive = False
        self.scheduling.stop()
        if self._peers is not None:
            self._peers.crashed(self)
        self.world.after(down_ns, self.start)

    def scheduler_crashes(self, down_ns: int) -> None:
        if not self.is_up or not self.scheduling.process.alive:
            return
        self.world.tell(f"{self.process.name}: the scheduler is killed")
        self.scheduling.stop()
        self.candidate.begin_new_term()

        def replaced() -> None:
            if self.is_up:
                self._start_scheduler()

        process = self.process
        self.world.after(down_ns, lambda: process.deliver(replaced))

    # ------------------------------------------------------------------------------------------------- the elector's work

    def drained(self) -> bool:
        scheduling = self.scheduling
        return not scheduling.process.alive or scheduling.core.drained

    def end_now(self) -> None:
        self.scheduler_crashes(200 * MS)

    # ----------------------------------------------------------------------------------------------------------- scheduler

    def _start_scheduler(self) -> None:
        self._schedulers += 1
        world = self.world
        process = Process(world, f"{self.process.name}'s scheduler {self._schedulers}", self.process)
        self.scheduling = Scheduling(
            world,
            process,
            self.links[1],
            self.clock,
            KEYS,
            self._profiles,
            self.candidate.cell,
            incarnation=f"{self.process.name}-{self._schedulers}",
            session=self.clock.gettime_ns(-1) // MS,
            delivered=lambda delivery: self._delivered(self, delivery),
            synced=self._synced,
            bound_since=self._bound_since,
            keys_max=self._keys_max,
            sending=lambda send: self._sending(self, send),
        )
        self.scheduling.start()

    def _synced(self) -> None:
        if not self._stands:
            self._stands = True
            self.process.deliver(self.candidate.start)
