"""What becomes of a gang that was bound and has fewer members than it needs: how long its room waits for it, and when it ends.

metadata:
  annotations:
    rayched.dev/incomplete-hold-seconds: "30"
    rayched.dev/release-after-seconds: "60"
"""

from __future__ import annotations

import re
from typing import Final

from rayched.v1.workloads_pb2 import PodGroup

HOLD_ANNOTATION: Final = "rayched.dev/incomplete-hold-seconds"
RELEASE_ANNOTATION: Final = "rayched.dev/release-after-seconds"
HOLD_SECONDS: Final = 30
"""Without the annotation."""
HOLD_SECONDS_MAX: Final = 3_600
RELEASE_SECONDS_MAX: Final = 7 * 86_400
_NUMBER: Final = re.compile(r"[0-9]{1,6}")


def hold_seconds(group: PodGroup) -> int:
    """How long the room of members that it lost is held for it."""
    found = _seconds(group, HOLD_ANNOTATION)
    return HOLD_SECONDS if found is None else found


def release_seconds(group: PodGroup) -> int | None:
    """After how long its other members are ended; None: never."""
    return _seconds(group, RELEASE_ANNOTATION)


def hold_fault(text: str) -> str | None:
    """What is wrong with the annotation's value; None: nothing."""
    return None if _number(text, 0, HOLD_SECONDS_MAX) is not None else f"want whole seconds from 0 to {HOLD_SECONDS_MAX}"


def release_fault(text: str) -> str | None:
    """What is wrong with the annotation's value; None: nothing."""
    return None if _number(text, 1, RELEASE_SECONDS_MAX) is not None else f"want whole seconds from 1 to {RELEASE_SECONDS_MAX}"


def _seconds(group: PodGroup, annotation: str) -> int | None:
    text = group.metadata.annotations.get(annotation, "")
    return _number(text, 0, RELEASE_SECONDS_MAX)


def _number(text: str, least: int, most: int) -> int | None:
    if _NUMBER.fullmatch(text) is None or not least <= int(text) <= most:
        return None
    return int(text)
