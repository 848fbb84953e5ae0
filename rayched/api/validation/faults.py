"""The list that rules write to: errors with their paths, bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field

from rayched.api.errors import FieldError, one_of, quoted
from rayched.api.validation import limits


@dataclass(slots=True)
class Faults:
    """Errors of one object, in the order of its fields."""

    errors: list[FieldError] = field(default_factory=list)

    def add(self, path: str, message: str) -> None:
        if len(self.errors) < limits.ERRORS:
            self.errors.append(FieldError(path, message))

    def check(self, path: str, fault: str | None) -> None:
        """Add a fault that a rule about a text found."""
        if fault is not None:
            self.add(path, fault)

    def text(self, path: str, text: str, rule: Callable[[str], str | None]) -> None:
        """An optional text that follows a rule when it is there."""
        if text:
            self.check(path, rule(text))

    def choice(self, path: str, text: str, allowed: Sequence[str]) -> None:
        """A text out of a closed set."""
        if text not in allowed:
            self.add(path, f"{quoted(text)} is not supported; allowed is {one_of(allowed)}" if text else _required(allowed))

    def within(self, path: str, number: int, low: int, high: int) -> None:
        """An integer between two bounds, both included."""
        if not low <= number <= high:
            self.add(path, f"{number} must lie between {low} and {high}")

    def not_negative(self, path: str, number: int) -> None:
        if number < 0:
            self.add(path, f"{number} must not be negative")

    def at_most(self, path: str, items: Sized, most: int) -> bool:
        """Whether a list is short enough to be looked at."""
        if len(items) <= most:
            return True
        self.add(path, f"has {len(items)} entries; at most {most} are allowed")
        return False


def _required(allowed: Sequence[str]) -> str:
    return f"is required; allowed is {one_of(allowed)}"
