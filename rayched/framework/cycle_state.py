"""Store of one scheduling attempt: what plugins leave for later extension points of the same attempt.

Owned by the attempt and used by one thread at a time; `clone` gives a dry run its own copy.

Source: fwk.CycleState of kube-scheduler 1.34.
"""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable


@runtime_checkable
class Cloneable(Protocol):
    def clone(self) -> Self: ...


class CycleState:
    """Key-value store of one attempt."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, object] = {}

    def read(self, key: str) -> object:
        """Raises KeyError where nothing was written under `key`."""
        return self._values[key]

    def write(self, key: str, value: object) -> None:
        self._values[key] = value

    def delete(self, key: str) -> None:
        self._values.pop(key, None)

    def clone(self) -> CycleState:
        """A copy whose values are cloned where they say how, and shared where they do not (frozen values)."""
        copy = CycleState()
        copy._values = {k: v.clone() if isinstance(v, Cloneable) else v for k, v in self._values.items()}
        return copy
