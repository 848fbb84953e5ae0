"""Outcome of an extension point: a closed code, reasons for people, and the plugin that said so.

Expected outcomes are a Status; an exception is a bug of the plugin and ends the attempt with Code.ERROR.

Source: fwk.Code and fwk.Status of kube-scheduler 1.34; the numbers are the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Code(enum.IntEnum):
    """What an extension point answers. The values lie in code columns, so they fit into a uint8."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    """Rejected; removing other pods may help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """Rejected; no removal of pods can help."""
    WAIT = 4
    SKIP = 5
    PENDING = 6
    """Waits for something outside the cluster's own events."""


_SUCCESS: Final = Code.SUCCESS
"""To look a member up in its class takes 0.1 µs, and each attempt asks."""


CODE_LABELS: Final = {code: "".join(word.capitalize() for word in code.name.split("_")) for code in Code} | {
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable"
}
"""Codes as kube-scheduler's metrics name them."""


@dataclass(frozen=True, slots=True)
class Status:
    """A code, its reasons and the plugin that gave them; immutable."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def ok(self) -> bool:
        return self.code is _SUCCESS

    @property
    def rejected(self) -> bool:
        """The pod was turned down, not the plugin broken."""
        return self.code in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)

    def message(self) -> str:
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        return Status(self.code, self.reasons, plugin)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def error(*reasons: str) -> Status:
    return Status(Code.ERROR, reasons)
