"""Options in groups: a dataclass whose fields are options stands as one parameter of a command.

A group may have a `HEADINGS`: for a field, the heading in the help under which it and those behind it stand.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import typer

from rayched.cli.printing import wrong


def with_option_groups(
    groups: Mapping[str, type[Any]], refused: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`groups`: by the name of the parameter. `refused`: flags that end the command, with what stands in their place."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name not in groups]
        parameters = [*own, *(one for group in groups.values() for one in _parameters(group)), *map(_refused, refused)]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            for flag, successor in refused.items():
                if values.pop(_name(flag)) is not None:
                    wrong(f"{flag} is not known any more; in its place stands {successor}")
            made = {name: group(**{one.name: values.pop(one.name) for one in fields(group)}) for name, group in groups.items()}
            command(**values, **made)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _parameters(group: type[Any]) -> Iterator[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    headings: Mapping[str, str] = getattr(group, "HEADINGS", {})
    heading = ""
    for one in fields(group):
        heading = headings.get(one.name, heading)
        yield inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if one.default is MISSING else one.default,
            annotation=_under(heading, types[one.name]) if heading else types[one.name],
        )


def _under(heading: str, annotation: Any) -> Any:
    """The annotation of an option, which stands under this heading."""
    option = copy.copy(annotation.__metadata__[0])
    option.rich_help_panel = heading
    return Annotated[annotation.__origin__, option]


def _refused(flag: str) -> inspect.Parameter:
    annotation = Annotated[str | None, typer.Option(flag, hidden=True)]
    return inspect.Parameter(_name(flag), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
