"""patch and edit: changes of objects that are there, as kubectl makes them."""

from __future__ import annotations

import enum
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.api.manifest import ManifestErrors, TextError, read_text, write_text
from rayched.api.yaml_text import load_all
from rayched.cli.connection import acting, connected
from rayched.cli.objects.dry_runs import would_change
from rayched.cli.options import DryRunBy, DryRunOption, Namespace, Server, Words
from rayched.cli.printing import fail, note, out, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NamedObject, Reference, references, targets
from rayched.client.client import Client
from rayched.client.edits import patch_edit
from rayched.client.errors import ApiError
from rayched.v1.services_pb2 import ApplyResponse

_EDITORS = ("RAYCHED_EDITOR", "KUBE_EDITOR", "VISUAL", "EDITOR")
_ROUNDS_MAX = 10


class PatchType(enum.StrEnum):
    """How a patch is meant."""

    strategic = "strategic"
    merge = "merge"
    json = "json"


def patch(
    words: Words,
    text: Annotated[str, typer.Option("--patch", "-p", metavar="JSON|YAML", help="The patch.", show_default=False)] = "",
    patch_file: Annotated[
        str, typer.Option("--patch-file", metavar="FILE", help="A file with the patch.", show_default=False)
    ] = "",
    patch_type: Annotated[
        PatchType, typer.Option("--type", metavar="strategic|merge|json", help="The type of the patch.")
    ] = PatchType.strategic,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
    dry_run: DryRunOption = DryRunBy.none,
) -> None:
    """Change fields of objects.

    \b
      rayched patch rs web -p '{"spec": {"replicas": 3}}'
      rayched patch node node-001 -p '{"spec": {"unschedulable": true}}'
      rayched patch no n --type=json -p='[{"op":"remove","path":"/spec/taints"}]'
    """
    change = _patch_of(text, patch_file)
    with acting(server) as (client, failures):
        for target in targets(client, references(words), namespace, "", False):
            with failures.told():
                changed = _patched(client, target, change, patch_type, dry_run)
                out(f"{target} patched{'' if changed else ' (no change)'}{dry_run.suffix}")


def _patch_of(text: str, file: str) -> Any:
    """The patch as plain data."""
    if bool(text) == bool(file):
        wrong("name what changes: --patch, or --patch-file")
    try:
        found = load_all(text or Path(file).read_text(encoding="utf-8"), "--patch" if text else file)
    except (TextError, UnicodeDecodeError) as error:
        wrong(str(error))
    except OSError as error:
        wrong(f"--patch-file {file}: {error.strerror}")
    if len(found) != 1 or not isinstance(found[0], dict | list):
        wrong('a patch is one object or list, as in \'{"spec": {"replicas": 3}}\'')
    return found[0]


def _patched(client: Client, target: NamedObject, change: Any, patch_type: PatchType, dry_run: DryRunBy) -> bool:
    """Whether that changed anything."""
    try:
        if dry_run is not DryRunBy.none:
            return would_change(client, target, patch_edit(change, patch_type.value), dry_run)
        answer = client.patch(target.kind, target.name, target.namespace, patch=change, patch_type=patch_type.value)
    except ManifestErrors as error:
        fail("; ".join(f"{target}: {one}" for one in error.errors))
    except ValueError as error:
        fail(f"{target}: {error}")
    return answer.action == ApplyResponse.CONFIGURED


def edit(
    words: Words,
    namespace: Namespace = DEFAULT_NAMESPACE,
    server: Server = None,
) -> None:
    """Change an object in an editor.

    The editor is that of RAYCHED_EDITOR, KUBE_EDITOR, VISUAL or EDITOR, else vi. A file saved unchanged or empty changes nothing.
    What is refused is opened again with the reason; if you leave it so, it is kept in a file.

    \b
      rayched edit rs web
      EDITOR='code --wait' rayched edit node/node-001
    """
    wanted = references(words)
    if len(wanted) != 1 or not wanted[0].name:
        wrong("name one object: TYPE NAME or TYPE/NAME")
    with connected(server) as client:
        _edit(client, wanted[0], namespace)


def _edit(client: Client, wanted: Reference, namespace: str) -> None:
    original = write_text([kinds.wrap(client.get(wanted.kind, wanted.name, namespace))])
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", prefix="rayched-edit-", delete=False, encoding="utf-8") as file:
        path = Path(file.name)
    text, reasons = original, list[str]()
    for _ in range(_ROUNDS_MAX):
        shown = "".join(f"# {line}\n" for line in (*_HEADER, *reasons)) + text
        path.write_text(shown, encoding="utf-8")
        _open_editor(path, os.environ)
        saved = path.read_text(encoding="utf-8")
        changed = "".join(line for line in saved.splitlines(keepends=True) if not line.startswith("#"))
        if saved == shown or not changed.strip() or changed == original:
            _give_up(path, reasons)
            return
        text = changed
        reasons = _tried(client, wanted, changed)
        if not reasons:
            path.unlink()
            return
    _give_up(path, reasons)


_HEADER = (
    "The object as it is. Lines that begin with # are left out, and an empty file changes nothing.",
    "What is refused is opened again with the reason.",
)


def _tried(client: Client, wanted: Reference, text: str) -> list[str]:
    """What is wrong with the object; nothing: it is stored."""
    try:
        results = read_text(text, "the edited text")
    except TextError as error:
        return [str(error)]
    except ManifestErrors as errors:
        return [str(error) for error in errors.errors]
    if len(results) != 1 or kinds.of(results[0].object) is not wanted.kind:
        return [f"want one {wanted.kind.name}"]
    item: AnyObject = kinds.unwrap(results[0].object)
    if item.metadata.name != wanted.name:
        return [f'metadata.name: "{item.metadata.name}" is another object; want {wanted.name}']
    try:
        answer = client.update(item)
    except ApiError as error:
        return [str(violation) for violation in error.violations] or [error.message]
    out(f"{wanted} {'edited' if answer.action == ApplyResponse.CONFIGURED else 'skipped'}")
    return []


def _give_up(path: Path, reasons: list[str]) -> None:
    """Nothing was changed: that is fine where nothing was refused."""
    if reasons:
        fail(f"{'; '.join(reasons)}; what was edited lies in {path}")
    path.unlink()
    note("Edit cancelled, no changes made.")


def _open_editor(path: Path, environment: Mapping[str, str]) -> None:
    editor = next((environment[name] for name in _EDITORS if environment.get(name)), "vi")
    try:
        subprocess.run([*shlex.split(editor), str(path)], check=True)
    except FileNotFoundError:
        fail(f"there is no editor {editor!r}; name one in EDITOR")
    except subprocess.CalledProcessError as error:
        fail(f"the editor {editor!r} ended with {error.returncode}; what was edited lies in {path}")
