"""What a replica does besides standing for election, as one of its processes: what all such roles have in common."""

from __future__ import annotations

from collections.abc import Callable
from time import CLOCK_BOOTTIME, CLOCK_REALTIME

from leader.belief import BeliefCell
from rayched.store.fencing import Fence
from rayched.store.keys import Keys
from tests.simulation.candidate import MachineClock
from tests.simulation.world import SECOND, Link, Process, World


class Role:
    """One life of it."""

    def __init__(self, world: World, process: Process, link: Link, clock: MachineClock, keys: Keys, cell: BeliefCell) -> None:
        self.world, self.process, self.link, self._keys = world, process, link, keys
        self._machine_clock = clock
        self._fence = Fence(cell)
        self.before_next_write: Callable[[], None] | None = None
        """What happens to the process the next time that it is about to send something."""

    def _epoch(self) -> int | None:
        return self._fence.epoch(self._machine_clock.gettime_ns(CLOCK_BOOTTIME))

    def _wall_time(self) -> float:
        return self._machine_clock.gettime_ns(CLOCK_REALTIME) // 1000 / 1e6

    def _now(self) -> float:
        return self._machine_clock.gettime_ns(CLOCK_BOOTTIME) / SECOND

    def _is_about_to_write(self) -> None:
        if self.before_next_write is not None:
            happens, self.before_next_write = self.before_next_write, None
            happens()


class Caring(Role):
    """A role that looks now and then, and when something came, and does one thing at a time."""

    def __init__(self, world: World, process: Process, link: Link, clock: MachineClock, keys: Keys, cell: BeliefCell) -> None:
        super().__init__(world, process, link, clock, keys, cell)
        self._is_busy = False
        self._wake_number = 0

    def start(self) -> None:
        self._plan(0)

    def _plan(self, wait_ns: int) -> None:
        """Look then; what was planned before no longer counts."""
        self._wake_number += 1
        number, wait_ns = self._wake_number, self._machine_clock.true_delay_ns(wait_ns)
        self.world.after(wait_ns, lambda: self._wake_number == number and self.process.deliver(lambda: self._wake(number)))

    def _wake(self, number: int) -> None:
        if self._wake_number == number and not self._is_busy:
            self._look()

    def _look(self) -> None:
        raise NotImplementedError
