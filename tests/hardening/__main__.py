"""`make audit`: what the tree and its locks could be blamed for, without a network. Exit code 1 where there is something.

    make audit
    make audit SBOM=rayched.cdx.json      also writes a bill of materials of what an installation has (CycloneDX 1.5)

* each lock pins one version with hashes of SHA-256, and the container's and the build's versions are the project's
* no pinned version has a hole that advisories.toml knows of and does not accept; with pip-audit on $PATH, none that this knows of
* the environment has what the lock pins, and nothing of another version
* ruff's rules on security (S, after bandit) hold for the code, but for those in RUFF_IGNORED and RUFF_IGNORED_IN
* no secret lies in the tree, and nobody but its owner may write a file of it
* files that the code makes are for their owner alone, or allowed.toml says why not
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.hardening import advisories, secrets_in_tree, written_files
from tests.hardening.locks import PinnedPackage, bill_of_materials, disagreements, normalised, read_lock

ROOT: Final = Path(__file__).parents[2]
LOCK, CONTAINER_LOCK, BUILD_LOCK = "requirements.lock", "deploy/container/requirements.lock", "requirements-build.lock"
ROOMS: Final = ("rayched", "leader")
RUFF_IGNORED: Final = {
    "S101": "assert: they tell mypy what holds, and a wrong input never meets one",
    "S104": "binding to all interfaces: an address is compared with, and none is bound without being told to",
    "S108": "files below /tmp: Ray's, in directories of mode 0700",
    "S311": "random numbers that need no secrecy: jitter, and the choice between equal nodes",
    "S603": "a program without a shell: that is how it should be",
    "S606": "the same",
}
RUFF_IGNORED_IN: Final = {
    "rayched/cli/manifests/remote_files.py:S310": "what is fetched begins with http:// or https://, which is looked at before",
    "rayched/nodes/agent/network_probes.py:S323": "a probe asks whether a container answers, not who, as kubelet's do",
    "rayched/raynodes/connection.py:S105": "words for a token that is missing",
    "rayched/pki/client_token.py:S105": "how every token begins",
    "rayched/server/call_guard.py:S105": "where a token is shown, and words about one that does not count",
}
_NOT_OURS: Final = ("rayched/v1/",)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make audit")
    parser.add_argument("--sbom", type=Path, default=None)
    given = parser.parse_args(arguments)
    names = tracked()
    locks = {name: read_lock(ROOT / name) for name in (LOCK, CONTAINER_LOCK, BUILD_LOCK)}
    whole = locks[LOCK].packages
    everything = [one for lock in locks.values() for one in lock.packages]
    holes, accepted = advisories.open_holes(whole, advisories.read_holes())
    checks: dict[str, Callable[[], list[str]]] = {
        f"{len(everything)} pinned versions have hashes": lambda: [fault for lock in locks.values() for fault in lock.faults],
        "the locks agree": lambda: disagreements([*locks[CONTAINER_LOCK].packages, *locks[BUILD_LOCK].packages], whole),
        f"no hole that is known here ({len(accepted)} accepted)": lambda: holes,
        "the environment is what the lock pins": lambda: strangers(whole),
        "ruff's rules on security": _ruff,
        f"no secret in {len(names)} files": lambda: secrets_in_tree.in_files(ROOT, names),
        "nobody else may write the tree": lambda: written_files.modes(ROOT, names),
        "what the code writes is its owner's": lambda: written_files.faults(ROOT, ROOMS, written_files.read_allowed()),
    }
    program = shutil.which("pip-audit")
    if program is None:
        print("-      pip-audit is not installed: what it knows of is not looked at")
    else:
        checks["no hole that pip-audit knows of"] = lambda: _pip_audit(program)
    wrong = 0
    for what, check in checks.items():
        found = check()
        wrong += len(found)
        print(f"{'FOUND' if found else 'ok':<7}{what}")
        for line in found:
            print(f"       {line}")
    for line in accepted:
        print(f"       {line}")
    if given.sbom is not None:
        bill = bill_of_materials(locks[CONTAINER_LOCK].packages, importlib.metadata.version("rayched"))
        given.sbom.write_text(json.dumps(bill, indent=1) + "\n")
        print(f"the bill of materials is in {given.sbom}")
    return 1 if wrong else 0


def tracked() -> list[str]:
    """Files that git has, by their names below the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name]


def strangers(whole: Sequence[PinnedPackage]) -> list[str]:
    """Packages of this environment that the lock does not pin so."""
    pinned = {(one.name, one.version) for one in whole}
    ours = {"rayched", "pip", "setuptools"}
    # Ray has packages of its own below its own, which are seen where it is imported.
    found = {
        (normalised(one.name), one.version) for one in importlib.metadata.distributions(path=[sysconfig.get_path("purelib")])
    }
    return [f"{name}=={version}: the lock does not pin that" for name, version in sorted(found - pinned) if name not in ours]


def _ruff() -> list[str]:
    command = [
        *(sys.executable, "-m", "ruff", "check", "--isolated", "--select", "S", "--ignore", ",".join(RUFF_IGNORED)),
        *("--target-version", "py311", "--output-format", "concise", "--quiet", *ROOMS, "--exclude", ",".join(_NOT_OURS)),
        *("--per-file-ignores", ",".join(RUFF_IGNORED_IN)),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if re.match(r"\S+:\d+", line)] or (
        [] if done.returncode == 0 else [done.stderr.strip()]
    )


def _pip_audit(program: str) -> list[str]:
    done = subprocess.run(
        [program, "--require-hashes", "--disable-pip", "--progress-spinner", "off", "-r", LOCK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [] if done.returncode == 0 else (done.stdout + done.stderr).strip().splitlines()


if __name__ == "__main__":
    sys.exit(main())
