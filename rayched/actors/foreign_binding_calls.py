"""Bindings of other schedulers, as they are asked of a SchedulerActor: each waits on a thread of Ray for what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from leader.clock import boottime
from rayched.actors.inbox import Inbox
from rayched.core.scheduler_core import SchedulerCore
from rayched.core.writes.foreign_bindings import BindingEnd, ForeignBinding, ForeignBindingAnswer

BINDINGS: Final = "bindings"
"""Ray's concurrency group for `bind`."""
BINDINGS_AT_ONCE: Final = 32
"""That wait in the process; the others wait at Ray. They go into one transaction."""
_SECONDS_MAX: Final = 8.0
"""Less than whoever asks waits."""


@dataclass(frozen=True)
class ForeignBound:
    """What became of one."""

    leads: bool
    answer: ForeignBindingAnswer


def bound_by(inbox: Inbox, core: SchedulerCore, wanted: ForeignBinding, clock: Callable[[], float] = boottime) -> ForeignBound:
    """On any thread but the core's; once its outcome is known. Without one in time it is nobody's who leads, and what was not
    sent by then never is. `clock`: the core's."""
    until = clock() + _SECONDS_MAX
    told: Future[ForeignBindingAnswer] = Future()

    def ask() -> None:
        if core.term.leads and core.link is not None:
            core.bindings.foreign.ask(wanted, told.set_result, until)
        else:
            told.set_result(ForeignBindingAnswer(BindingEnd.NOT_LEADING))

    inbox.put(ask)
    try:
        answer = told.result(_SECONDS_MAX)
    except TimeoutError:
        answer = ForeignBindingAnswer(BindingEnd.NOT_LEADING)
    return ForeignBound(answer.end is not BindingEnd.NOT_LEADING, answer)
