"""When the scheduler may decide: belief in an epoch, and a cache that has seen it.

```
             belief E, cache below E                 cache at E
  STANDBY ───────────────────────────▶ CATCHING_UP ─────────────▶ LEADING(E)
     ▲                                      │                        │ belief lost, epoch changed, fenced
     └──────────────────────────────────────┴────────────────────────┘
```

* Nothing is decided before the cache's revision has reached the epoch: all that was written under earlier epochs lies before it.
* Belief may come back under the same epoch; then nobody led in between, and what is still under way is still ours. Under another
  epoch all assumptions are void.
* A fenced epoch is over, whatever the belief says: the store has spoken. Only that one, and until another one is believed: where
  etcd lost writes, the next epoch is a lower one, and the fenced one may come again later, as another election's.

Pure. Owner: the SchedulerCore. Source: docs/adr/0001, and the table in leader/election.py.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import ClassVar


class TermPhase(enum.Enum):
    STANDBY = "standby"
    CATCHING_UP = "catching up"
    LEADING = "leading"


class Step(enum.Enum):
    """What has to be done now."""

    NOTHING = "nothing"
    STOP = "stop"
    """Decide and send nothing any more; drop what was not sent."""
    BEGIN = "begin"
    """A new epoch: assumptions of earlier ones are void."""
    RESUME = "resume"
    """The same epoch as before."""


class Term:
    """The epoch under which this scheduler decides."""

    RULE_THE_CACHE_REACHES_THE_EPOCH: ClassVar[bool] = True
    """Broken by tests alone."""

    def __init__(self) -> None:
        self.phase = TermPhase.STANDBY
        self.epoch = 0
        """The last epoch led under; 0 before the first."""
        self._fenced: int | None = None
        self.on_catching_up: Callable[[], object] = lambda: None
        """Called when a belief has come and the cache is behind it."""

    @property
    def leads(self) -> bool:
        return self.phase is TermPhase.LEADING

    def fenced(self, epoch: int) -> None:
        """The store refused a write of this epoch."""
        self._fenced = epoch

    def step(self, belief: int | None, cache_revision: int) -> Step:
        """Where belief and cache lead from here."""
        if belief is not None and belief != self._fenced:
            self._fenced = None
        believed = belief if belief != self._fenced else None
        if self.leads:
            if believed == self.epoch:
                return Step.NOTHING
            self.phase = TermPhase.STANDBY
            return Step.STOP
        if believed is None:
            self.phase = TermPhase.STANDBY
            return Step.NOTHING
        if cache_revision < believed and self.RULE_THE_CACHE_REACHES_THE_EPOCH:
            if self.phase is not TermPhase.CATCHING_UP:
                self.phase = TermPhase.CATCHING_UP
                self.on_catching_up()
            return Step.NOTHING
        self.phase = TermPhase.LEADING
        step = Step.RESUME if believed == self.epoch else Step.BEGIN
        self.epoch = believed
        return step
