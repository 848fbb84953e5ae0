"""Clocks that run fast and slow, and change how fast: those of the replicas, and the one by which etcd counts leases.

Which rates the election bears follows from its configuration:

* a leader's belief lasts for the renew deadline, and a follower waits for the lease duration: replicas' rates may differ by the
  ratio of the two;
* a record is written under a lease that was kept alive within the last third of its time to live, and believed in for the renew
  deadline after that: etcd's clock may be faster than a leader's by the ratio of the time to live to both together.

Within these bounds beliefs never overlap. Beyond them nothing but the guard is left, and it has to do: safety is judged for any
rates, and liveness after the healing, when all clocks run within the bounds again.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

from leader.config import FAST
from tests.simulation.replica import Replica
from tests.simulation.world import SECOND, World

REPLICAS_TOLERATED: Final = FAST.lease_duration / FAST.renew_deadline
ETCD_TOLERATED: Final = FAST.store_ttl_seconds / (FAST.store_ttl_seconds / 3 + FAST.renew_deadline)
_WIDTHS: Final = (0.05, 0.12, 0.19, 0.5)
"""How far from 1 rates may be: the first ones are borne, the last is not."""
_WILD: Final = (0.25, 4.0)
_MEAN_GAP_SECONDS: Final = 1.5


def tolerated(slowest: float, fastest: float, etcd: float) -> bool:
    """Whether beliefs must not overlap, with replicas of these rates."""
    return fastest / slowest < REPLICAS_TOLERATED and etcd / slowest < ETCD_TOLERATED


class Drift:
    """Not in every world: `is_on` says whether. Draws from a random source of its own."""

    def __init__(self, world: World, counts: Counter[str], until: int, *, allowed: bool) -> None:
        self._random = Random(f"{world.seed}/rates")
        self._world, self._counts, self._until = world, counts, until
        self.is_on = self._random.random() < 0.3 and allowed
        self._wild = self._random.random() < 0.2
        self._width = self._random.choice(_WIDTHS)
        self.slowest = self.fastest = 1.0
        """Rates that there may be."""
        if self.is_on:
            self.slowest, self.fastest = _WILD if self._wild else (1.0 - self._width, 1.0 + self._width)
        self._replicas: list[Replica] = []

    def rates(self, usual: list[float]) -> list[float]:
        """Of the replicas; sets etcd's."""
        if not self.is_on:
            return usual
        self._world.etcd_rate = self._rate()
        return [self._rate() for _ in usual]

    def is_tolerated(self, rates: list[float]) -> bool:
        """With the rates that there are, and all that there may be."""
        return tolerated(min(self.slowest, *rates), max(self.fastest, *rates), max(self._world.etcd_rate, 1.0))

    def start(self, replicas: list[Replica]) -> None:
        self._replicas = replicas
        if self.is_on:
            self._world.after(self._gap(), self._change)

    def heal(self) -> None:
        """All run as they should, more or less."""
        if self.is_on:
            self._world.etcd_rate = self._random.uniform(0.95, 1.05)
            for replica in self._replicas:
                replica.clock.set_rate(self._random.uniform(0.9, 1.1))

    def _rate(self) -> float:
        if self._wild:
            return self._random.choice((_WILD[0], 0.5, 1.0, 2.0, _WILD[1]))
        return 1.0 + self._random.uniform(-self._width, self._width)

    def _gap(self) -> int:
        return int(self._random.expovariate(1.0 / _MEAN_GAP_SECONDS) * SECOND)

    def _change(self) -> None:
        if self._world.now >= self._until:
            return
        replica = self._random.choice(self._replicas)
        rate = self._rate()
        self._counts["clock of another rate"] += 1
        self._world.trace("rate", replica.name, rate)
        self._world.tell(f"-- {replica.name}'s clock runs at {rate:.2f}")
        replica.clock.set_rate(rate)
        self._world.after(self._gap(), self._change)
