"""What rayched stands on may be weaker than it: an etcd with holes or with users, a Ray that takes whoever comes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rayched.replica.etcd.etcd_binary import find_etcd
from rayched.replica.etcd.known_holes import holes_of
from rayched.testing.raylets import RayletCluster
from tests.etcd_tls import a_client_of_etcd, enable_users, etcd_over_tls
from tests.pki.made import an_authority
from tests.probe.attack import Attack, Shown
from tests.probe.world import ProbeWorld

_SECONDS_MAX: Final = 120.0


def _check_of_users(world: ProbeWorld) -> subprocess.CompletedProcess[str]:
    """`rayched etcd check`, as a user who may use rayched's keys alone."""
    authority = an_authority()
    directory = Path(tempfile.mkdtemp(dir=world.directory))
    with etcd_over_tls(directory, authority) as endpoint:
        files = a_client_of_etcd(authority, directory / "client")
        enable_users(endpoint, files)
        tls = ("--etcd-cafile", files.ca, "--etcd-certfile", files.certificate, "--etcd-keyfile", files.key)
        return _command(["etcd", "check", "--etcd-endpoints", endpoint, *map(str, tls)])


def _holes(world: ProbeWorld) -> Shown:
    done, version = _check_of_users(world), find_etcd().version
    told = [line.partition(":")[0].partition(",")[0] for line in done.stderr.splitlines() if "fixed in" in line]
    known = [hole.id for hole in holes_of(version)]
    confined = re.search(r"^write any key +no$", done.stdout, re.MULTILINE) is not None
    words = f"etcd {'.'.join(map(str, version))}: {', '.join(told) or 'no hole'}; its user's keys alone: {confined}"
    return words, told == known and confined and done.returncode == (1 if known else 0)


def _compaction(world: ProbeWorld) -> Shown:
    done = _check_of_users(world)
    (may,) = re.findall(r"^compact +(\S+)$", done.stdout, re.MULTILINE)
    is_told = "--auto-compaction-mode=periodic" in done.stderr
    return f"this etcd lets its user compact: {may}; what helps is told: {is_told}", (may == "yes") is not is_told


def _open_ray(_world: ProbeWorld) -> Shown:
    raylets = RayletCluster(1, 1)
    raylets.environment["RAY_AUTH_MODE"] = "disabled"
    del raylets.environment["RAY_AUTH_TOKEN"]
    with raylets:
        words = ["replica", "--listen", "127.0.0.1:0", "--http-address", "off", "--insecure-loopback"]
        done = _command([*words, "--ray-address", raylets.address])
    return f"exit code {done.returncode}", done.returncode == 1 and "this Ray takes whoever comes" in done.stderr


def _command(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-m", "rayched.cli.main", *words],
        env={**environment, "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )


ATTACKS: Final = (
    Attack("F17", "an etcd with known holes", "used without a word", "each is named", _holes),
    Attack("F18", "compaction, in an etcd with users", "denied, and its file fills", "done, or told", _compaction),
    Attack("F22", "a Ray without a token", "whoever reaches it is rayched", "refused", _open_ray),
)
