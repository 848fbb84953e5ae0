"""How much a command says about its calls: kubectl's `-v LEVEL`. From 1 on errors name gRPC's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    # Every command starts by way of this module, also one that has nothing to do with a client.
    from rayched.client.errors import ApiError

_level: Final[list[int]] = [0]
"""Of the command in progress."""


def set_verbosity(level: int) -> None:
    _level[0] = level


def verbose() -> bool:
    """Whether errors are for somebody who looks into calls."""
    return _level[0] > 0


def words_of(error: ApiError) -> str:
    """What the error says; gRPC's code behind it where calls are looked into."""
    return str(error) if verbose() else error.message
