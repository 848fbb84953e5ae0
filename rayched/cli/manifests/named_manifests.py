"""Manifests named on a command line: files, directories, standard input. All of them are read and judged before any is used."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import grpc

from rayched.api import kinds
from rayched.api.defaulting import default
from rayched.api.errors import FieldError
from rayched.api.manifest import ManifestErrors, ReadResult, TextError, read_text
from rayched.api.validation import validate
from rayched.cli.manifests.remote_files import fetched, is_url
from rayched.cli.options import NAMESPACE_VARIABLE
from rayched.cli.printing import fail, fail_all, note, wrong
from rayched.cli.references import DEFAULT_NAMESPACE, NamedObject, label_of
from rayched.client.errors import ApiError, Violation
from rayched.v1.workloads_pb2 import Object

_NO_NAMESPACE = re.compile(r"namespace (\S+) does not exist")
_SUFFIXES = (".yaml", ".yml", ".json")
_SOME_UID = "00000000-0000-4000-8000-000000000000"


def read_manifests(names: list[str], *, recursive: bool = False, namespace: str = "", warnings: bool = True) -> list[ReadResult]:
    """The objects of all sources, in order. Any error ends the command, after all have been told.

    `namespace` is for objects that name none themselves; one that names another is an error.
    """
    errors: list[str] = []
    names = [part for name in names for part in _parts(name)]
    texts = (found for name in names for found in _texts(name, recursive, errors))
    return _judged(texts, errors, names, namespace, warnings)


def named_manifests(
    filename: Sequence[str] | None, kustomize: str, *, recursive: bool = False, namespace: str = "", warnings: bool = True
) -> list[ReadResult]:
    """Those of -f, or what the kustomization of -k makes; the same otherwise."""
    if bool(filename) == bool(kustomize):
        wrong("name manifests: either -f FILE, or -k DIR with a kustomization")
    if filename:
        return read_manifests(list(filename), recursive=recursive, namespace=namespace, warnings=warnings)
    # Not at the top: few commands have one.
    from rayched.cli.manifests.kustomization import kustomization_text
    from rayched.cli.manifests.kustomized import KustomizeFault

    try:
        text = kustomization_text(kustomize)
    except KustomizeFault as fault:
        fail(str(fault))
    return _judged([(kustomize, text)], [], [kustomize], namespace, warnings)


def objects_of(filename: Sequence[str] | None, kustomize: str, namespace: str, recursive: bool) -> Iterator[NamedObject]:
    """What the manifests name, whatever else they say of it."""
    for result in named_manifests(filename, kustomize, recursive=recursive, namespace=namespace, warnings=False):
        kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
        yield NamedObject(kind, metadata.namespace or DEFAULT_NAMESPACE if kind.namespaced else "", metadata.name)


def _judged(
    texts: Iterable[tuple[str, str]], errors: list[str], names: Sequence[str], namespace: str, warnings: bool
) -> list[ReadResult]:
    """`errors`: those of the texts are added while they are read."""
    results: list[ReadResult] = []
    for source, text in texts:
        try:
            results += read_text(text, source)
        except TextError as error:
            errors.append(str(error))
        except ManifestErrors as found:
            errors += [text if (text := str(error)).startswith(source) else f"{source}: {text}" for error in found.errors]
    errors += [text for result in results if (text := _place(result, namespace))]
    if errors:
        fail_all(errors)
    if not results:
        fail(f"{', '.join(names)}: no object in there")
    if warnings:
        for result in results:
            metadata = kinds.unwrap(result.object).metadata
            label = label_of(kinds.of(result.object), metadata.name or metadata.generate_name)
            for warning in result.warnings:
                note(f"Warning: {label}: {warning}")
    return results


def _parts(name: str) -> list[str]:
    """Several may stand in one word, as in kubectl; a file may have a comma in its name, and a URL."""
    if "," not in name or "://" in name or Path(name).exists():
        return [name]
    return [part for part in name.split(",") if part]


def _texts(name: str, recursive: bool, errors: list[str]) -> Iterator[tuple[str, str]]:
    if name == "-":
        try:
            yield "standard input", sys.stdin.read()
        except UnicodeDecodeError:
            errors.append("standard input: not a text in UTF-8")
        return
    if is_url(name):
        try:
            yield name, fetched(name)
        except UnicodeDecodeError:
            errors.append(f"{name}: not a text in UTF-8")
        except OSError as error:
            errors.append(f"{name}: {error}")
        return
    path = Path(name)
    if not path.exists():
        errors.append(f"{name}: no such file or directory")
        return
    files = sorted(path.rglob("*") if recursive else path.iterdir()) if path.is_dir() else [path]
    files = [file for file in files if file == path or (file.is_file() and file.suffix in _SUFFIXES)]
    if not files:
        below = "; --recursive looks further down" if not recursive and any(file.is_dir() for file in path.iterdir()) else ""
        errors.append(f"{name}: the directory holds no manifest ({', '.join(_SUFFIXES)}){below}")
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            errors.append(f"{file}: not a text in UTF-8")
        except OSError as error:
            errors.append(f"{file}: {error.strerror}")


def _place(result: ReadResult, namespace: str) -> str:
    """Sets the namespace of an object that has none; what is wrong with that."""
    kind, metadata = kinds.of(result.object), kinds.unwrap(result.object).metadata
    if not kind.namespaced or not namespace:
        return ""
    # What only the environment names is for objects that name none.
    if metadata.namespace and (metadata.namespace == namespace or namespace == os.environ.get(NAMESPACE_VARIABLE)):
        return ""
    if metadata.namespace:
        fault = FieldError(
            "metadata.namespace", f'"{metadata.namespace}" is not the {namespace} of --namespace; leave one of them out'
        )
        return f"{kind.name} {metadata.name}: {fault}"
    metadata.namespace = namespace
    return ""


def namespace_hint(error: ApiError) -> str:
    """How to make the namespace that a refused object names."""
    found = _NO_NAMESPACE.search(error.message)
    return f"`rayched create namespace {found[1]}` makes it" if found else ""


def judged_here(item: Object) -> None:
    """Raises ApiError with all that validation says of an object that is sent to nobody."""
    copy = Object()
    copy.CopyFrom(item)
    message = kinds.unwrap(copy)
    # The server gives every object one, by which a Job selects its pods.
    message.metadata.uid = message.metadata.uid or _SOME_UID
    default(message)
    faults = validate(message)
    if faults:
        subject = f"{kinds.of(item).name} {message.metadata.name}"
        violations = [Violation(subject, fault.path, fault.message) for fault in faults]
        raise ApiError(grpc.StatusCode.INVALID_ARGUMENT, f"{subject} is refused", violations)
