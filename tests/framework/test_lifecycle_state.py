"""The store of one attempt: what one extension point leaves there, the later ones find; a clone goes its own way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import pytest

from rayched.framework.cycle_state import CycleState


@dataclass
class Counts:
    """A value that says how it is cloned."""

    by_zone: dict[str, int] = field(default_factory=dict)

    def clone(self) -> Self:
        return type(self)(dict(self.by_zone))


@pytest.mark.row("F5")
def test_a_clone_is_its_own_and_values_that_can_be_cloned_are() -> None:
    state = CycleState()
    state.write("counts", Counts({"a": 1}))
    state.write("frozen", ("kept", "as", "it", "is"))
    clone = state.clone()
    counts = clone.read("counts")
    assert isinstance(counts, Counts)
    counts.by_zone["a"] = 99
    clone.write("only here", 1)
    clone.delete("frozen")
    assert state.read("counts") == Counts({"a": 1}) and state.read("frozen") == ("kept", "as", "it", "is")
    with pytest.raises(KeyError):
        state.read("only here")


@pytest.mark.row("F5")
def test_what_nobody_wrote_cannot_be_read_and_deleting_it_is_no_error() -> None:
    state = CycleState()
    state.delete("nothing")
    with pytest.raises(KeyError):
        state.read("nothing")
