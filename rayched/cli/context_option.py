"""--context, which every command has that asks a cluster: what the cluster is reached with.

A parameter of its own in each of these commands would say the same again and again. So it is added to each that has --server,
and the connection asks here what was said.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

_Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME|FILE",
        envvar="RAYCHED_CONTEXT",
        help="What to reach them with, or `none`: no TLS. Not given: the context that lists them.",
        show_default=False,
    ),
]
_PARAMETER: Final = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Context)

_chosen: list[str] = []
"""What the command in progress was told."""


def chosen_context() -> str | None:
    """None: nobody named one."""
    return _chosen[0] if _chosen else None


def with_context_option(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with the option behind --server where it has that."""
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    places = [index for index, one in enumerate(parameters) if one.name == "server"]
    if not places:
        return command
    # The order of parameters is that of the help.
    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    named.insert(places[0] + 1, _PARAMETER)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        name = given.pop("context")
        _chosen[:] = [name] if name else []
        command(**given)

    run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in named}
    return run
