"""What an actor answers, or why it does not."""

from __future__ import annotations

import logging
from typing import Any

from rayched.actors.questions import NotAnswered

log = logging.getLogger("rayched.replica")


def unanswered(who: str, error: Exception) -> None:
    """An actor that is dead, has not begun or hangs: Ray's exceptions for it are many, and the supervision tells of it anyway.

    One that raised has a fault, which nobody else would tell of.
    """
    from ray.exceptions import RayTaskError

    level = logging.WARNING if isinstance(error, RayTaskError) else logging.DEBUG
    log.log(level, "no answer of the %s: %s", who, error, exc_info=error)


def why(error: Exception) -> str:
    """What an asker is told of what the scheduler raised, which the log has whole."""
    cause = getattr(error, "cause", error)
    return str(cause) if isinstance(cause, NotAnswered) else "the scheduler failed to answer; its replica's log says why"


async def awaited(reference: Any) -> Any:
    """What Ray's reference stands for, as a coroutine."""
    return await reference
