"""What people should know and were not told: objects that cannot be read, plugins that raised, faults that the queue found."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from rayched.core.cache.cache import UNREPORTED_MAX, Cache
from rayched.scheduler.scheduler import Scheduler


class Problems:
    """Those of the cache, of the scheduler, and of the queue."""

    def __init__(self, cache: Cache, scheduler: Scheduler) -> None:
        self._cache = cache
        self._scheduler = scheduler
        self._of_queue: deque[str] = deque(maxlen=UNREPORTED_MAX)

    def of_queue(self, problems: Iterable[str]) -> None:
        """The queue's last answer had these."""
        self._of_queue.extend(problems)

    def take(self) -> list[str]:
        """Each a line, with a traceback below where something raised."""
        cache, plugins, raised = self._cache.unreported, self._scheduler.plugin_problems, self._scheduler.raised.take()
        if not cache and not plugins and not raised and not self._of_queue:
            return []
        problems = [*cache, *(problem.message() for problem in plugins), *raised, *self._of_queue]
        for taken in (cache, plugins, self._of_queue):
            taken.clear()
        return problems
