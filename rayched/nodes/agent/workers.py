"""Threads for what blocks. What comes of it is told in the agent's loop, whatever happens to the work: who waits goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class Workers:
    """Used by any thread."""

    def __init__(self, executor: Executor, post: Callable[[Callable[[], None]], None]) -> None:
        """`post` runs something in the agent's loop."""
        self._executor = executor
        self._post = post

    def submit(self, what: str, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """`done` gets what `work` gives, or what it raised, in the loop. What it raised is logged as well: `what` has failed."""

        def carry_out() -> None:
            found: T | Exception
            try:
                found = work()
            except Exception as error:
                found = error
                log.warning("%s has failed", what, exc_info=error)
            self._post(partial(done, found))

        self._executor.submit(carry_out)
