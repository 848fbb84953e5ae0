"""The systemd units: sections and keys, commands that the real command parses, and systemd's own word where it is installed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rayched.replica.settings import split_address
from tests.deploy.commands import checked, parsed

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
DROP_INS = sorted(FOLDER.glob("*.service.d/*.conf"))
BINARY = "/opt/rayched/bin/rayched"
EXPOSURE_MAX = 2.5
"""Of 10, by `systemd-analyze security`; a service that says nothing has 9.6."""

KEYS = {
    "Unit": {"Description", "Wants", "After", "StartLimitIntervalSec"},
    "Install": {"WantedBy"},
    "Service": {
        "Type",
        "EnvironmentFile",
        "ExecStart",
        "Restart",
        "RestartSec",
        "KillMode",
        "TimeoutStopSec",
        "LimitNOFILE",
        "DynamicUser",
        "SupplementaryGroups",
        "StateDirectory",
        "StateDirectoryMode",
        "Environment",
        "UMask",
        "IPAddressDeny",
        "IPAddressAllow",
        "NoNewPrivileges",
        "CapabilityBoundingSet",
        "AmbientCapabilities",
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectClock",
        "ProtectControlGroups",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "ProtectProc",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "LockPersonality",
        "SystemCallArchitectures",
        "SystemCallFilter",
        "SystemCallErrorNumber",
    },
}
"""Of systemd.unit, systemd.service, systemd.exec, systemd.kill and systemd.resource-control, those that are used."""


def entries(file: Path) -> list[tuple[str, str, str]]:
    """Section, key, value of each line."""
    found, section = [], ""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
            continue
        key, equals, value = line.partition("=")
        assert equals and section, f"{file.name}:{number}: neither a section nor KEY=VALUE"
        found.append((section, key, value))
    return found


def only(file: Path, key: str) -> str:
    (value,) = [value for _, name, value in entries(file) if name == key]
    return value


def command(unit: Path) -> list[str]:
    """ExecStart with the example of the environment file: as systemd does, ${A} is one word and $A any number of them."""
    environment = dict(
        line.split("=", 1)
        for line in (FOLDER / Path(only(unit, "EnvironmentFile")).name).read_text().splitlines()
        if line and not line.startswith("#")
    )
    binary, *words = only(unit, "ExecStart").split()
    assert binary == BINARY
    found: list[str] = []
    for word in words:
        if variable := re.fullmatch(r"\$(\w+)", word):
            found += shlex.split(environment[variable[1]])
        else:
            found.append(re.sub(r"\$\{(\w+)\}", lambda match: environment[match[1]], word))
    return found


@pytest.mark.parametrize("file", [*UNITS, *DROP_INS], ids=lambda file: file.name)
def test_sections_and_keys_are_those_of_systemd(file: Path) -> None:
    for section, key, value in entries(file):
        assert key in KEYS[section], f"{section} {key}={value}"


def test_a_replica_is_started_with_flags_that_exist_and_on_the_ports_that_are_told() -> None:
    replica = checked(command(FOLDER / "rayched-replica.service"))
    assert replica.tls is not None and replica.client_deny_list is not None and replica.etcd_tls is not None
    assert split_address("--listen", replica.listen)[1] == 7420
    assert replica.http_place is not None and replica.http_place[1] == 7520
    assert replica.advertise_address == replica.listen


def test_hollow_nodes_are_started_with_flags_that_exist_and_ask_the_replicas() -> None:
    given = parsed(command(FOLDER / "rayched-hollow-nodes.service"))
    assert (given["count"], given["context"]) == (100, "/etc/rayched/hollow/context.yaml")


def test_the_group_that_may_read_the_keys_is_that_of_the_units_and_of_the_page() -> None:
    """DynamicUser has no user that could own them."""
    groups = {only(unit, "SupplementaryGroups") for unit in UNITS}
    page = (FOLDER.parent / "README.md").read_text()
    (group,) = groups
    assert f"groupadd --system --force {group}" in page and f"install -D -m 0640 -g {group} -t /etc/rayched/tls" in page


def test_the_unit_keeps_everybody_out_but_the_host_until_peers_are_named() -> None:
    unit = [(key, value) for _, key, value in entries(FOLDER / "rayched-replica.service") if key.startswith("IPAddress")]
    assert unit == [("IPAddressDeny", "any"), ("IPAddressAllow", "localhost")]
    named = " ".join(
        value for _, key, value in entries(FOLDER / "rayched-replica.service.d" / "peers.conf") if key == "IPAddressAllow"
    )
    replica = checked(command(FOLDER / "rayched-replica.service"))
    for endpoint in (*replica.etcd_endpoints, replica.listen):
        assert endpoint.removeprefix("https://").partition(":")[0] in named.split()


def test_a_replica_has_more_time_to_stop_than_it_takes_and_nothing_is_left_of_it() -> None:
    unit = FOLDER / "rayched-replica.service"
    assert only(unit, "KillMode") == "mixed"
    assert int(only(unit, "TimeoutStopSec").removesuffix("s")) > 5
    assert only(unit, "DynamicUser") == "yes"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_has_nothing_to_say_against_a_unit_and_finds_it_closed(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(BINARY, sys.executable))
    drop_ins = FOLDER / f"{unit.name}.d"
    if drop_ins.is_dir():
        shutil.copytree(drop_ins, tmp_path / drop_ins.name)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(copy)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", judged.stdout)
    assert exposure is not None, judged
    assert float(exposure[1]) <= EXPOSURE_MAX
