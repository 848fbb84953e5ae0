"""The real kubectl against the real gateway: each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cluster import PATIENCE_SECONDS, Result, Running

VERSION = os.environ.get("RAYCHED_KUBECTL", "")
"""Of kubectl, such as 1.27: the file kubectl.1.27 beside this host's kubectl, as Google's SDK has them. Empty: that kubectl."""
_UNVALIDATED = ("apply", "create", "edit", "replace")
"""What cannot validate before 1.29, as kubectl asks for OpenAPI v2 there, which the gateway does not serve."""


def _program() -> str | None:
    """None: it is not on this host."""
    found = shutil.which("kubectl")
    if found is None or not VERSION:
        return found
    beside = Path(found).resolve().parent / f"kubectl.{VERSION}"
    return str(beside) if beside.is_file() else None


KUBECTL = _program()
MISSING = f"there is no kubectl {VERSION}".rstrip() + " on this host"


@dataclass(frozen=True)
class Kubectl:
    """kubectl with a kubeconfig, and with a home of its own for what it keeps."""

    kubeconfig: Path
    home: Path

    def __call__(self, *words: str, stdin: str | None = None) -> Result:
        ended = subprocess.run(
            self._command(words),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env=self._environment(),
            check=False,
        )
        return Result(ended.returncode, ended.stdout, ended.stderr.splitlines())

    def ok(self, *words: str, stdin: str | None = None) -> list[str]:
        """The lines of a command that must go well."""
        result = self(*words, stdin=stdin)
        assert result.code == 0, result.errors
        return result.lines

    def refused(self, *words: str, stdin: str | None = None) -> str:
        """What a command that must fail says."""
        result = self(*words, stdin=stdin)
        assert result.code != 0, result.out
        return "\n".join(result.errors)

    def table(self, *words: str) -> list[list[str]]:
        """The lines of a table, split where columns are apart, headings first."""
        return [[cell for cell in line.split("  ") if cell.strip()] for line in self.ok(*words)]

    def object(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads("\n".join(self.ok(*words, "-o", "json")))
        return found

    @contextlib.contextmanager
    def started(self, *words: str) -> Iterator[Running]:
        """A command that goes on; ended with the block."""
        process = subprocess.Popen(
            self._command(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._environment(),
        )
        running = Running(process)
        running.read()
        try:
            yield running
        finally:
            process.kill()
            process.wait()

    def _command(self, words: tuple[str, ...]) -> list[str]:
        if KUBECTL is None:
            pytest.skip(MISSING)
        at = next((number for number, word in enumerate(words) if word in _UNVALIDATED), None)
        if at is not None and VERSION and int(VERSION.split(".")[1]) < 29:
            words = (*words[: at + 1], "--validate=false", *words[at + 1 :])
        return [KUBECTL, "--kubeconfig", str(self.kubeconfig), *words]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.home),
            "KUBECONFIG": str(self.kubeconfig),
            "KUBE_EDITOR": "sed -i s/as-it-was/as-edited/",
        }
