"""Manifests named on a command line: files, directories, standard input. All of them are read and judged before any is used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rayched.api.manifest import ManifestErrors, ReadResult, TextError, read_text
from rayched.cli.printing import fail_all, note

_SUFFIXES = (".yaml", ".yml", ".json")


def read_manifests(names: list[str], *, recursive: bool = False) -> list[ReadResult]:
    """The objects of all sources, in order. Any error ends the command, after all have been told."""
    results: list[ReadResult] = []
    errors: list[str] = []
    for name in names:
        for source, text in _texts(name, recursive, errors):
            try:
                results += read_text(text, source)
            except TextError as error:
                errors.append(str(error))
            except ManifestErrors as found:
                errors += [f"{source}: {error}" for error in found.errors]
    if errors:
        fail_all(errors)
    for result in results:
        for warning in result.warnings:
            note(f"Warning: {warning}")
    return results


def _texts(name: str, recursive: bool, errors: list[str]) -> Iterator[tuple[str, str]]:
    if name == "-":
        yield "standard input", sys.stdin.read()
        return
    path = Path(name)
    if not path.exists():
        errors.append(f"{name}: no such file or directory")
        return
    files = sorted(path.rglob("*") if recursive else path.iterdir()) if path.is_dir() else [path]
    files = [file for file in files if file == path or (file.is_file() and file.suffix in _SUFFIXES)]
    if not files:
        errors.append(f"{name}: the directory holds no manifest ({', '.join(_SUFFIXES)})")
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            errors.append(f"{file}: not a text in UTF-8")
        except OSError as error:
            errors.append(f"{file}: {error.strerror}")
