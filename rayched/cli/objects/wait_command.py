"""wait: until objects have a condition or a value, are there, or are gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import grpc
import typer

from rayched.api.kinds import AnyObject, wrap
from rayched.api.manifest import write_object
from rayched.cli.connection import connected
from rayched.cli.options import Namespace, Selector, Server, seconds_of
from rayched.cli.output.json_path import PathFault, as_text, compiled
from rayched.cli.printing import fail, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NamedObject, references, targets
from rayched.cli.work.following import WEEK_SECONDS
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.client.object_wait import Wanted

_ONE_LOOK_SECONDS = 2.0
_FORMS = "delete, create, condition=NAME[=VALUE], jsonpath={PATH}[=VALUE]"


def wait(
    words: Annotated[list[str], typer.Argument(metavar="OBJECT", hidden=True)],
    wanted: Annotated[str, typer.Option("--for", metavar="WHAT", help=f"What to wait for: {_FORMS}.", show_default=False)],
    namespace: Namespace = "",
    server: Server = None,
    selector: Selector = "",
    wait_all: Annotated[bool, typer.Option("--all", help="Select all objects of the type in the namespace.")] = False,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long, as in 90s or 5m; 0s: look once; negative: a week.")
    ] = "30s",
) -> None:
    """Wait until objects are as they should be.

    \b
      rayched wait --for=condition=Complete job/count --timeout=5m
      rayched wait --for=delete pod/web-0
      rayched wait --for=jsonpath='{.status.phase}'=Running pod -l app=web

    Exit code 1 when the time is over.
    """
    until = _wanted(wanted)
    seconds = WEEK_SECONDS if timeout.startswith("-") else seconds_of("--timeout", timeout)
    # A look takes a moment too.
    deadline = time.monotonic() + max(seconds, _ONE_LOOK_SECONDS if seconds == 0 else 0.0)
    with connected(server) as client:
        found = list(targets(client, references(words), namespace or DEFAULT_NAMESPACE, selector, wait_all))
        if not found:
            if wanted.lower() == "delete":
                return
            fail("no matching resources found")
        for target in found:
            _wait(client, target, until, deadline, wanted, once=seconds == 0)


def _wait(client: Client, target: NamedObject, until: Wanted, deadline: float, wanted: str, *, once: bool) -> None:
    """Ends the command where the time is over, or where the object is not there and nothing will bring it."""
    present: AnyObject | None = None
    try:
        present = client.get(target.kind, target.name, target.namespace)
    except ApiError as error:
        if error.code is not grpc.StatusCode.NOT_FOUND or wanted.lower() not in ("delete", "create"):
            raise
    if present is None and wanted.lower() == "delete":
        # It was gone before anybody waited: kubectl has nothing to say then.
        return
    if present is not None and target.uid and present.metadata.uid != target.uid:
        # Another object has its name by now: the one that was meant is gone.
        present = None
    if not until(present):
        if once:
            _too_late(target)
        try:
            client.wait_for(
                target.kind,
                target.name,
                target.namespace,
                until=_of_this(present, until),
                timeout_seconds=max(deadline - time.monotonic(), 0.001),
            )
        except ApiError as error:
            if error.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            _too_late(target)
    out(f"{target} condition met")


def _of_this(present: AnyObject | None, until: Wanted) -> Wanted:
    """Another object of the same name is not the one that was there."""
    if present is None:
        return until
    uid = present.metadata.uid
    return lambda found: until(found if found is not None and found.metadata.uid == uid else None)


def _too_late(target: NamedObject) -> None:
    fail(f"timed out waiting for the condition on {target.kind.plural}/{target.name}")


def _wanted(text: str) -> Wanted:
    """Ends the command where the text is none of the forms."""
    form, _, rest = text.partition("=")
    found: Wanted | None = None
    match form.lower():
        case "delete" if not rest:
            found = _is_gone
        case "create" if not rest:
            found = _is_made
        case "condition" if rest:
            name, _, value = rest.partition("=")
            found = _has_condition(name, value or "true")
        case "jsonpath" if rest:
            found = _has_value(rest)
    if found is None:
        wrong(f"--for {text!r}: want {_FORMS}")
    return found


def _is_gone(found: AnyObject | None) -> bool:
    return found is None


def _is_made(found: AnyObject | None) -> bool:
    return found is not None


def _document(found: AnyObject) -> dict[str, Any]:
    return write_object(wrap(found))


def _has_condition(name: str, value: str) -> Wanted:
    """Case does not count. One that was observed on an earlier desire does not hold for this one."""

    def until(found: AnyObject | None) -> bool:
        if found is None:
            return False
        document = _document(found)
        status = document.get("status", {})
        for condition in status.get("conditions", ()):
            if condition.get("type", "").lower() == name.lower():
                observed = condition.get("observedGeneration", status.get("observedGeneration", 0))
                if observed and observed < document["metadata"].get("generation", 0):
                    return False
                return bool(condition.get("status", "").lower() == value.lower())
        return False

    return until


def _has_value(text: str) -> Wanted:
    path, value = _split(text)
    try:
        find: Callable[[Any], list[Any]] = compiled(path)
    except PathFault as error:
        wrong(f"--for jsonpath: {error}")

    def until(found: AnyObject | None) -> bool:
        values = [] if found is None else find(_document(found))
        if value is None:
            return bool(values)
        if len(values) > 1:
            fail(f"jsonpath {path}: leads to {len(values)} values; want a path that leads to one")
        if values and isinstance(values[0], dict | list):
            fail(f"jsonpath {path}: leads to an object or a list; want a path that leads to a plain value")
        return bool(values) and as_text(values[0]) == value

    return until


def _split(text: str) -> tuple[str, str | None]:
    """The path and the value behind it; an equals sign within brackets or braces is the path's."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character in "{[(") - (character in "}])")
        if character == "=" and depth <= 0:
            value = text[place + 1 :]
            if not value:
                wrong(f"--for jsonpath={text!r}: has no value behind the equals sign")
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            return text[:place], value[1:-1] if quoted else value
    return text, None
