"""The answer to a question for an explanation, in the pieces in which the core finds it out.

Owner: the loop of the SchedulerActor.
"""

from __future__ import annotations

import time
from collections.abc import Generator

from rayched.actors.scheduler_values import Explained
from rayched.core.explaining import CannotExplain, look_at
from rayched.core.scheduler_core import SchedulerCore
from rayched.v1.services_pb2 import ExplainRequest


def explained(core: SchedulerCore, request: ExplainRequest) -> Generator[None, None, Explained]:
    """While the core leads; whoever does not go on closes it."""
    seconds = 0.0
    pieces = look_at(core.groups.looks.of, core.cache, core.scheduler, core.snapshot, request)
    try:
        while core.term.leads:
            began = time.perf_counter()
            try:
                next(pieces)
            except StopIteration as end:
                end.value.about.seconds = seconds + time.perf_counter() - began
                return Explained(True, end.value)
            except CannotExplain as problem:
                return Explained(True, None, str(problem))
            seconds += time.perf_counter() - began
            yield
    finally:
        pieces.close()
    return Explained(False, None)
