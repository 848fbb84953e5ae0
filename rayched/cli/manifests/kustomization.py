"""`-k DIR`: what a kustomization.yaml makes of manifests. It reads files, and changes nothing.

Built here: resources (files, directories with a kustomization, URLs of files), namespace, namePrefix, nameSuffix, commonLabels,
labels, commonAnnotations, images, replicas, patches, patchesStrategicMerge, patchesJson6902. Where a kustomization has more
(generators, components, replacements, charts), `kustomize` or `kubectl` build the whole, if one of them is on $PATH.

Selectors of affinity and topology spread get no common labels. A name is changed also where it is named:
a StatefulSet's serviceName, a pod's priorityClassName and runtimeClassName.

Source: kustomize 5.7.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rayched.api.manifest import Document, ManifestErrors, TextError, read_documents
from rayched.api.yaml_text import MAX_TEXT_BYTES, dump_all, load_all
from rayched.cli.manifests.kustomized import KustomizedObject, KustomizeFault, kustomized
from rayched.cli.manifests.remote_files import fetched, is_url

FILES: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_BUILT: Final = frozenset(
    {
        "apiVersion",
        "bases",
        "commonAnnotations",
        "commonLabels",
        "images",
        "kind",
        "labels",
        "metadata",
        "namePrefix",
        "nameSuffix",
        "namespace",
        "patches",
        "patchesJson6902",
        "patchesStrategicMerge",
        "replicas",
        "resources",
    }
)
_FIRST: Final = ("Namespace", "Service", "PriorityClass", "RuntimeClass", "StatefulSet", "PodDisruptionBudget")
"""Kinds that others need, in kustomize's order; all else comes behind them in the order of the files."""
_DEPTH_MAX: Final = 16
_SECONDS_MAX: Final = 60.0
_BUILDERS: Final = (("kustomize", "build"), ("kubectl", "kustomize"))


class _NotBuiltHere(Exception):
    """A kustomization with fields that only kustomize knows."""

    def __init__(self, file: Path, fields: tuple[str, ...]) -> None:
        super().__init__(file, fields)
        self.file = file
        self.fields = fields


def kustomization_text(directory: str) -> str:
    """What it makes, as YAML. Raises KustomizeFault."""
    path = Path(directory)
    if not path.is_dir():
        raise KustomizeFault(f"{directory}: is no directory; -k names one with a {FILES[0]}")
    try:
        found = sorted(_built(path, 0), key=lambda one: _FIRST.index(one.kind) if one.kind in _FIRST else len(_FIRST))
        return dump_all([resource.document for resource in found])
    except _NotBuiltHere as more:
        return _built_elsewhere(path, more)


def _built(directory: Path, depth: int) -> list[KustomizedObject]:
    if depth > _DEPTH_MAX:
        raise KustomizeFault(f"{directory}: more than {_DEPTH_MAX} kustomizations lie in each other; does one name itself?")
    file = next((directory / name for name in FILES if (directory / name).is_file()), None)
    if file is None:
        raise KustomizeFault(f"{directory}: holds no kustomization ({', '.join(FILES)})")
    plan = _plan(file)
    if more := sorted(field for field, found in plan.items() if field not in _BUILT and found):
        raise _NotBuiltHere(file, tuple(more))
    resources = [one for name in _names(plan, file, "resources", "bases") for one in _resources(directory, name, depth)]
    try:
        return kustomized(resources, _with_texts(plan, directory, file))
    except KustomizeFault as fault:
        raise KustomizeFault(f"{file}: {fault}") from None


def _plan(file: Path) -> Document:
    found = _documents(_text(file), str(file))
    if len(found) != 1 or not isinstance(found[0], dict):
        raise KustomizeFault(f"{file}: want one object, as in `resources: [web.yaml]`")
    return found[0]


def _names(plan: Document, file: Path, *fields: str) -> Iterator[str]:
    for field in fields:
        names = plan.get(field) or []
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise KustomizeFault(f"{file}: {field}: want a list of files and directories")
        yield from names


def _resources(directory: Path, name: str, depth: int) -> list[KustomizedObject]:
    if is_url(name):
        return _of_text(_fetched(name), name)
    path = directory / name
    if path.is_dir():
        return _built(path, depth + 1)
    return _of_text(_text(_inside(directory, name)), str(path))


def _inside(directory: Path, name: str) -> Path:
    """A file of the kustomization's own: what somebody else wrote cannot take files from elsewhere."""
    path = (directory / name).resolve()
    if not path.is_relative_to(directory.resolve()):
        raise KustomizeFault(
            f"{directory / name}: a kustomization takes files from its own directory and below; what lies elsewhere is a base"
        )
    return directory / name


def _of_text(text: str, source: str) -> list[KustomizedObject]:
    try:
        return [KustomizedObject.of(document) for document in read_documents(text, source)]
    except TextError as error:
        raise KustomizeFault(str(error)) from None
    except ManifestErrors as errors:
        raise KustomizeFault("; ".join(map(str, errors.errors))) from None


def _with_texts(plan: Document, directory: Path, file: Path) -> Document:
    """The plan, in which patches stand themselves where it names their files."""
    found = dict(plan)
    for field in ("patches", "patchesJson6902"):
        entries = plan.get(field) or []
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            raise KustomizeFault(f"{file}: {field}: want a list of objects with a patch, or a path")
        found[field] = [{**one, "patch": _patches(one, directory, file, field)} for one in entries]
    entries = plan.get("patchesStrategicMerge") or []
    if not isinstance(entries, list) or not all(isinstance(one, str) for one in entries):
        raise KustomizeFault(f"{file}: patchesStrategicMerge: want a list of files, or of patches")
    texts = [(text, str(file)) if "\n" in text or ":" in text else _named_text(directory, text) for text in entries]
    found["patchesStrategicMerge"] = [patch for text, source in texts for patch in _documents(text, source)]
    return found


def _patches(entry: Document, directory: Path, file: Path, field: str) -> list[Any]:
    text, path = entry.get("patch"), entry.get("path")
    if isinstance(text, str) and text and not path:
        return _documents(text, str(file))
    if isinstance(path, str) and path and not text:
        return _documents(*_named_text(directory, path))
    raise KustomizeFault(f"{file}: {field}: want either a patch or a path in each")


def _named_text(directory: Path, name: str) -> tuple[str, str]:
    return _text(_inside(directory, name)), str(directory / name)


def _documents(text: str, source: str) -> list[Any]:
    try:
        return [found for found in load_all(text, source) if found is not None]
    except TextError as error:
        raise KustomizeFault(str(error)) from None


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_TEXT_BYTES:
            raise KustomizeFault(f"{file}: more than {MAX_TEXT_BYTES} bytes; no more are read")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise KustomizeFault(f"{file}: not a text in UTF-8") from None
    except OSError as error:
        raise KustomizeFault(f"{file}: {error.strerror}") from None


def _fetched(url: str) -> str:
    try:
        return fetched(url)
    except UnicodeDecodeError:
        raise KustomizeFault(f"{url}: not a text in UTF-8; a repository is fetched by git, and named by its directory") from None
    except OSError as error:
        raise KustomizeFault(f"{url}: {error}") from None


def _built_elsewhere(directory: Path, more: _NotBuiltHere) -> str:
    fields = ", ".join(more.fields)
    for command, verb in _BUILDERS:
        program = shutil.which(command)
        if program is None:
            continue
        try:
            done = subprocess.run(
                [program, verb, str(directory)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
            raise KustomizeFault(f"{directory}: `{command} {verb}` failed: {type(error).__name__}") from None
        if done.returncode:
            said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            raise KustomizeFault(f"{directory}: `{command} {verb}` failed: {said.removeprefix('error: ')}")
        return done.stdout
    raise KustomizeFault(
        f"{more.file}: {fields}: not built here, and neither kustomize nor kubectl is on $PATH; built here are "
        f"{', '.join(sorted(_BUILT - {'apiVersion', 'kind', 'metadata', 'bases'}))}"
    )
