"""Whatever a container leaves behind dies with it: children, daemons, and those that hide, in each tier of containment."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayched.client import Client
from rayched.nodes.agent.containment import ContainmentTier, tier_of, tracking_root
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.nodes.bare_shim import bare_shim
from tests.nodes.real_node import (
    AgentProcess,
    a_pod,
    agent_thread,
    gone,
    in_phase,
    registered,
    settings,
    sh,
    status,
    uid_of,
    until,
)
from tests.server.serving import serving

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client(etcd: EtcdServer) -> Iterator[Client]:
    options = ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(f"/containment-{os.getpid()}"))
    with serving(options) as server, Client(server.address, timeout_seconds=10.0) as found:
        yield found


@pytest.fixture
def cgroups(tmp_path: Path) -> Iterator[Path]:
    """Where containers of the agent in `node` have theirs; the test is skipped where this host has none."""
    found = tracking_root(tmp_path / "node")
    if found is None:
        pytest.skip("this host has no cgroup of the second version that may be written to")
    yield found
    for below in sorted(found.rglob("*"), reverse=True):
        if below.is_dir():
            below.rmdir()
    found.rmdir()


def sleeping(seconds: int) -> list[int]:
    """Living processes that were told to sleep for so long; whose they are they may hide."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", str(seconds).encode()]:
                found.append(int(entry.name))
    return found


def leaving_behind(seconds: int) -> str:
    """A child, one in a session of its own, a daemon that was forked twice, and one that forgot its environment."""
    one = f"sleep {seconds}"
    return f"{one} & setsid {one} & (setsid sh -c '{one} & exit 0' &) ; env -i setsid {one} & "


@pytest.mark.row("N50")
@pytest.mark.parametrize("tier", [*(one.value for one in ContainmentTier), "pidns"])
def test_what_main_leaves_behind_dies_with_it(client: Client, tmp_path: Path, tier: str, request: pytest.FixtureRequest) -> None:
    if tier not in [one.value for one in ContainmentTier]:
        pytest.skip(f"agents do not contain pods by {tier} yet")
    where = request.getfixturevalue("cgroups") if tier != "tree" else None
    if tier == "cgroup" and tier_of(where) is not ContainmentTier.CGROUP:
        pytest.skip("the cgroup of the second version has no controllers of cpu, memory and pids on this host")
    node, seconds = f"contains-{next(_numbers)}", 100_000 + os.getpid() % 50_000 * 10 + next(_numbers)
    with agent_thread(settings(tmp_path / "node", node, cgroups=where), client.endpoints[0]):
        name = f"pod-of-{node}"
        ends = tmp_path / "ends"
        client.submit(a_pod(node, name, *sh(f"{leaving_behind(seconds)} while [ ! -e {ends} ]; do sleep 0.1; done; exit 0")))
        in_phase(client, name, "Running")
        until(lambda: len(sleeping(seconds)) == 4, "all four run")
        if where is not None:
            (cgroup,) = where.glob("*/main-0")
            inside = set(map(int, (cgroup / "cgroup.procs").read_text().split()))
            assert set(sleeping(seconds)) < inside
        ends.touch()
        in_phase(client, name, "Succeeded")
        assert not sleeping(seconds), "it was called ended while something of it lived"
        if where is not None:
            until(lambda: not [entry for entry in where.iterdir() if entry.is_dir()], "its cgroup is gone")
        client.delete("pod", name)
        gone(client, name)


@pytest.mark.row("N50")
def test_what_hides_from_a_dead_shim_is_found_by_its_cgroup(client: Client, tmp_path: Path, cgroups: Path) -> None:
    """It descends from nobody and carries no mark once agent and shim are killed."""
    node, seconds = f"contains-{next(_numbers)}", 100_000 + os.getpid() % 50_000 * 10 + next(_numbers)
    first = AgentProcess(tmp_path / "node", node, client.endpoints[0], "--containment", "tracking")
    name = f"pod-of-{node}"
    client.submit(a_pod(node, name, *sh(f"env -i setsid sleep {seconds} & exec sleep 1000"), policy="Always", grace=1))
    in_phase(client, name, "Running")
    until(lambda: sleeping(seconds), "it runs")
    (hidden,) = sleeping(seconds)
    assert registered(client, node).metadata.labels["rayched.dev/containment"] == "tracking"
    uid = uid_of(client, name)
    first.kill()
    shim = json.loads((tmp_path / "node" / "pods" / uid / "shim" / "state.json").read_text())["pid"]
    os.kill(shim, signal.SIGKILL)
    with agent_thread(settings(tmp_path / "node", node, cgroups=cgroups), client.endpoints[0]):
        until(lambda: status(client, name).container_statuses[0].restart_count == 1, "it is restarted")
        until(lambda: hidden not in sleeping(seconds), "the hidden one is gone")
        assert len(sleeping(seconds)) <= 1
        client.delete("pod", name)
        gone(client, name)
        assert not sleeping(seconds)


def test_where_there_is_no_second_version_there_is_no_tracking(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("24 1 0:21 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
    assert tracking_root(tmp_path, mounts) is None
    mounts.write_text(f"24 1 0:21 / {tmp_path} rw,nosuid - cgroup2 cgroup2 rw\n")
    assert tracking_root(tmp_path, mounts) is None, "what is mounted there kills nothing"
    assert [entry.name for entry in tmp_path.iterdir()] == ["mountinfo"]


def test_a_start_that_fails_leaves_no_cgroup(tmp_path: Path, cgroups: Path) -> None:
    with bare_shim(tmp_path / "pod") as shim:
        for number, changed in enumerate(({"argv": ["no-such-program"]}, {"cwd": "/no/such/directory"}, {"user": 10**9 * 5})):
            shim.attempt("main", "sleep 1000", number, cgroup=str(cgroups / "pod" / f"main-{number}"), **changed)
            answer = shim.asked("start", container="main", attempt=number)
            assert not answer["ok"] and answer["kind"] == "start", answer
            assert [entry for entry in cgroups.iterdir() if entry.is_dir()] == []
        shim.attempt("main", "sleep 1000", 7, cgroup=str(cgroups / "pod" / "main-7"))
        assert shim.asked("start", container="main", attempt=7)["ok"]
        shim.attempt("other", "sleep 1000", 0, cgroup=str(cgroups / "pod" / "other-0"), argv=["no-such-program"])
        assert not shim.asked("start", container="other", attempt=0)["ok"]
        assert [entry.name for entry in (cgroups / "pod").iterdir() if entry.is_dir()] == ["main-7"], "the other goes on"


def test_what_a_container_made_of_its_cgroup_goes_with_it(tmp_path: Path, cgroups: Path) -> None:
    with bare_shim(tmp_path / "pod") as shim:
        own = cgroups / "pod" / "main-0"
        script = f"mkdir {own}/inner; env -i setsid sh -c 'echo 0 > {own}/inner/cgroup.procs; sleep 1001' & exec sleep 1000"
        shim.attempt("main", script, cgroup=str(own))
        assert shim.asked("start", container="main", attempt=0)["ok"]
        until(lambda: (own / "inner").exists() and (own / "inner" / "cgroup.procs").read_text().split(), "it hides inside")
        shim.asked("kill")
        until(lambda: not shim.below() and not (cgroups / "pod").exists(), "all of it is gone")
