"""Thresholds of node-pressure eviction, as flags give them. Pure.

    --eviction-hard=memory.available<100Mi,nodefs.available<10%
    --eviction-soft=memory.available<300Mi --eviction-soft-grace-period=memory.available=1m30s
    --eviction-minimum-reclaim=memory.available=500Mi

A flag that is given replaces all its defaults. 0% and 100% switch a signal off. A percentage is of the signal's capacity, cut
down to an integer. A soft threshold needs a grace period.

Source: kubelet's eviction helpers, Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rayched.api import quantity
from rayched.api.durations import duration_seconds
from rayched.nodes.agent.eviction.signals import SETTABLE, Signal

DEFAULT_HARD: Final = "memory.available<100Mi,nodefs.available<10%,imagefs.available<15%,nodefs.inodesFree<5%"
DEPRECATED_FLAGS: Final = {
    "--minimum-image-ttl-duration": "--eviction-hard or --eviction-soft",
    "--image-gc-high-threshold": "--eviction-hard or --eviction-soft",
    "--image-gc-low-threshold": "--eviction-minimum-reclaim",
    "--maximum-dead-containers": "nothing: the log of the last ended attempt is kept",
    "--maximum-dead-containers-per-container": "nothing: the log of the last ended attempt is kept",
    "--minimum-container-ttl-duration": "nothing: the log of the last ended attempt is kept",
    "--low-diskspace-threshold-mb": "--eviction-hard or --eviction-soft",
    "--outofdisk-transition-frequency": "--eviction-pressure-transition-period",
}
"""Kubelet's old flags of garbage collection, and what stands in their place."""


class ThresholdError(ValueError):
    """What a flag says is no threshold; one line that names the flag and what is allowed."""


@dataclass(frozen=True, slots=True)
class ThresholdValue:
    """A quantity in bytes or counts, or a percentage of the capacity."""

    quantity: int = 0
    percent: float | None = None

    def of(self, capacity: int) -> int:
        return self.quantity if self.percent is None else int(capacity * self.percent / 100.0)


@dataclass(frozen=True, slots=True)
class Threshold:
    """`grace` 0: a hard one."""

    signal: Signal
    value: ThresholdValue
    grace: float = 0.0
    minimum_reclaim: ThresholdValue = ThresholdValue()


@dataclass(frozen=True, slots=True)
class EvictionFlags:
    """As given; None: not given."""

    hard: str | None = None
    soft: str | None = None
    soft_grace_period: str = ""
    minimum_reclaim: str = ""
    merge_defaults: bool = False


def thresholds_of(flags: EvictionFlags, *, allocatable_enforced: bool = True) -> tuple[Threshold, ...]:
    """All that are in force. Raises ThresholdError."""
    hard = _statements("--eviction-hard", DEFAULT_HARD if flags.hard is None else flags.hard)
    if flags.merge_defaults and flags.hard is not None:
        given = {one.signal for one in hard} | _switched_off("--eviction-hard", flags.hard)
        hard += [one for one in _statements("--eviction-hard", DEFAULT_HARD) if one.signal not in given]
    soft = _statements("--eviction-soft", flags.soft or "")
    graces = _graces(flags.soft_grace_period)
    for position, one in enumerate(soft):
        if one.signal not in graces:
            raise ThresholdError(f"grace period must be specified for the soft eviction threshold {one.signal.value}")
        soft[position] = replace(one, grace=graces[one.signal])
    reclaims = _reclaims(flags.minimum_reclaim)
    found = [replace(one, minimum_reclaim=reclaims.get(one.signal, ThresholdValue())) for one in (*hard, *soft)]
    if allocatable_enforced:
        found += [
            replace(one, signal=Signal.ALLOCATABLE_MEMORY)
            for one in found
            if one.signal is Signal.MEMORY and one in hard_ones(found)
        ]
    return tuple(found)


def hard_ones(thresholds: Iterable[Threshold]) -> list[Threshold]:
    return [one for one in thresholds if not one.grace]


def ignored(thresholds: Sequence[Threshold]) -> list[str]:
    """Warnings: what is given and has no effect."""
    return [
        f"{one.signal.value}: is derived from nodefs or imagefs, the threshold given for it is ignored"
        for one in thresholds
        if one.signal in (Signal.CONTAINER_FS, Signal.CONTAINER_FS_INODES)
    ]


def duration(flag: str, text: str) -> float:
    """Seconds of a text such as 1m30s."""
    found = duration_seconds(text)
    if found is None or found < 0:
        raise ThresholdError(f"{flag}: {text!r} is no duration; want one such as 90s or 1m30s")
    return found


def _statements(flag: str, text: str) -> list[Threshold]:
    found: list[Threshold] = []
    seen: set[Signal] = set()
    for part in filter(None, text.split(",")):
        name, operator, value = part.partition("<")
        if not operator:
            raise ThresholdError(f"{flag}: {part!r} has no operator; allowed is SIGNAL<QUANTITY or SIGNAL<PERCENT%")
        signal = _signal(flag, name)
        if signal in seen:
            raise ThresholdError(f"{flag}: {signal.value} occurs twice")
        seen.add(signal)
        amount = _amount(flag, signal, value)
        if amount is not None:
            found.append(Threshold(signal, amount))
    return found


def _switched_off(flag: str, text: str) -> set[Signal]:
    return {_signal(flag, part.partition("<")[0]) for part in filter(None, text.split(","))}


def _signal(flag: str, name: str) -> Signal:
    if name not in {signal.value for signal in SETTABLE}:
        raise ThresholdError(
            f"{flag}: signal {name!r} is not known; allowed are {', '.join(signal.value for signal in SETTABLE)}"
        )
    return Signal(name)


def _amount(flag: str, signal: Signal, text: str) -> ThresholdValue | None:
    """None: it is switched off."""
    if text.endswith("%"):
        try:
            percent = float(text[:-1])
        except ValueError:
            raise ThresholdError(f"{flag}: {signal.value}<{text}: is no percentage; want 0% to 100%") from None
        if not 0 <= percent <= 100:
            raise ThresholdError(f"{flag}: {signal.value}<{text}: want 0% to 100%")
        return None if percent in (0, 100) else ThresholdValue(percent=percent)
    number = _quantity(flag, signal, text, "<")
    if number <= 0:
        raise ThresholdError(f"{flag}: {signal.value}<{text}: must be positive")
    return ThresholdValue(number)


def _quantity(flag: str, signal: Signal, text: str, operator: str) -> int:
    try:
        return quantity.value(text)
    except quantity.QuantityError as error:
        raise ThresholdError(f"{flag}: {signal.value}{operator}{text}: {error}") from None


def _pairs(flag: str, text: str) -> Mapping[Signal, str]:
    found: dict[Signal, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ThresholdError(f"{flag}: {part!r}: want SIGNAL=VALUE")
        signal = _signal(flag, name)
        if signal in found:
            raise ThresholdError(f"{flag}: {signal.value} occurs twice")
        found[signal] = value
    return found


def _graces(text: str) -> dict[Signal, float]:
    flag = "--eviction-soft-grace-period"
    found = {}
    for signal, value in _pairs(flag, text).items():
        found[signal] = duration(f"{flag}: {signal.value}", value)
    return found


def _reclaims(text: str) -> dict[Signal, ThresholdValue]:
    flag = "--eviction-minimum-reclaim"
    found = {}
    for signal, value in _pairs(flag, text).items():
        if value.endswith("%"):
            found[signal] = _amount(flag, signal, value) or ThresholdValue()
            continue
        number = _quantity(flag, signal, value, "=")
        if number < 0:
            raise ThresholdError(f"{flag}: {signal.value}={value}: must not be negative")
        found[signal] = ThresholdValue(number)
    return found
