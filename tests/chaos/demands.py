"""What was demanded of a play, what it has shown, and whether that is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rayched.cli import printing


@dataclass(frozen=True, slots=True)
class Demand:
    """One line of a table."""

    play: str
    what: str
    demanded: str
    shown: str
    met: bool
    seconds: bool = False
    """A matter of the machine as well."""


class Demands:
    """Those of one play, told as they are judged."""

    def __init__(self, play: str, tell: Callable[[str], object]) -> None:
        self.play = play
        self.found: list[Demand] = []
        self._tell = tell

    def judge(self, what: str, demanded: str, shown: object, met: bool, *, seconds: bool = False) -> None:
        self.found.append(Demand(self.play, what, demanded, str(shown), met, seconds))
        self._tell(f"{self.play}: {what}: {shown}{'' if met else f' - MISSED, demanded is {demanded}'}")

    def at_most(self, what: str, most: float, shown: float, unit: str = "") -> None:
        self.judge(what, f"at most {most:g}{unit}", f"{round(shown, 2):g}{unit}", shown <= most, seconds=unit == " s")

    def at_least(self, what: str, least: float, shown: float, unit: str = "") -> None:
        self.judge(what, f"at least {least:g}{unit}", f"{round(shown, 2):g}{unit}", shown >= least)

    def none(self, what: str, found: Sequence[object]) -> None:
        """There is none of these; the first three are shown."""
        shown = f"{len(found)}: {', '.join(map(str, found[:3]))}" if found else "none"
        self.judge(what, "none", shown, not found)

    def holds(self, what: str, met: bool, otherwise: object = "no") -> None:
        self.judge(what, "yes", "yes" if met else otherwise, met)

    def as_data(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.found]


def table(demands: Sequence[Demand]) -> None:
    """On standard output."""
    printing.plain_table(
        ("PLAY", "WHAT", "DEMANDED", "SHOWN", "MET"),
        [(one.play, one.what, one.demanded, one.shown, "yes" if one.met else "NO") for one in demands],
    )
