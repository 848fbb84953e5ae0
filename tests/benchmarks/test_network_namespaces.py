"""Hosts as network namespaces: what is said to happen to their network does, and ends. Skipped where there are no namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from benchmarks.network_namespaces import HostNetwork, NamespacesNotAllowed, NetworkFailed, made_network
from rayched.replica.ray.processes import alive, dying_with_us

pytestmark = pytest.mark.slow
HOSTS = ("one", "two", "three")
PATIENCE = 0.3
STREAM_BYTES = 400_000


@pytest.fixture(scope="module")
def network() -> Iterator[HostNetwork]:
    with ExitStack() as owned:
        try:
            made = owned.enter_context(made_network(HOSTS))
        except NamespacesNotAllowed as why:
            pytest.skip(str(why))
        yield made


class HostsThatTalk:
    """A program on each host (network_talker.py)."""

    def __init__(self, network: HostNetwork, owned: ExitStack) -> None:
        self._network = network
        self._programs = {}
        for name in network.hosts:
            command = network.command(name, [sys.executable, "-m", "tests.benchmarks.network_talker"])
            program = subprocess.Popen(dying_with_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            owned.callback(program.communicate)
            self._programs[name] = program
        for program in self._programs.values():
            assert json.loads(program.stdout.readline()) == "ready"

    def ask(self, source: str, target: str, seconds: float = PATIENCE) -> float | None:
        """Seconds until an echo came; None: none did."""
        return self._tell(source, do="ask", to=self._network.address(target), seconds=seconds)

    def send(self, source: str, target: str, count: int) -> None:
        self._tell(source, do="send", to=self._network.address(target), count=count)

    def came(self, source: str, target: str) -> int:
        """Datagrams from there, so far."""
        return self._tell(target, do="counts").get(self._network.address(source), 0)

    def fetch(self, source: str, target: str, count: int) -> int:
        return self._tell(source, do="fetch", to=self._network.address(target), bytes=count, seconds=5.0)

    def _tell(self, name: str, **wish: Any) -> Any:
        program = self._programs[name]
        program.stdin.write(json.dumps(wish) + "\n")
        program.stdin.flush()
        return json.loads(program.stdout.readline())


@pytest.fixture(scope="module")
def hosts(network: HostNetwork) -> Iterator[HostsThatTalk]:
    with ExitStack() as owned:
        yield HostsThatTalk(network, owned)


def reachable(hosts: HostsThatTalk, tries: int = 8) -> set[tuple[str, str]]:
    """Which pairs hear each other; a host that was away may be looked for for a moment."""
    return {(a, b) for a in HOSTS for b in HOSTS if a < b and any(hosts.ask(a, b) for _ in range(tries))}


ALL = {("one", "three"), ("one", "two"), ("three", "two")}


def test_a_host_whose_interface_is_down_is_silent_and_comes_back(network: HostNetwork, hosts: HostsThatTalk) -> None:
    assert reachable(hosts) == ALL
    network.down("two")
    assert reachable(hosts, 2) == {("one", "three")}
    network.up("two")
    assert reachable(hosts) == ALL


def test_a_cut_one_way_loses_what_is_sent_and_not_what_is_answered(network: HostNetwork, hosts: HostsThatTalk) -> None:
    network.cut("one", ["two"])
    before = hosts.came("one", "two"), hosts.came("two", "one")
    hosts.send("one", "two", 5)
    hosts.send("two", "one", 5)
    assert reachable(hosts, 2) == ALL - {("one", "two")}
    assert (hosts.came("one", "two") - before[0], hosts.came("two", "one") - before[1]) == (0, 5)
    network.mend("one", ["two"])
    assert reachable(hosts) == ALL


def test_a_cable_that_is_slow_makes_what_a_host_sends_late(network: HostNetwork, hosts: HostsThatTalk) -> None:
    network.shape("one", delay_seconds=0.15)
    late = hosts.ask("one", "two", 2.0), hosts.ask("two", "one", 2.0)
    assert all(seconds is not None and 0.15 <= seconds < 0.6 for seconds in late), late
    assert (hosts.ask("two", "three") or 1.0) < 0.15
    assert hosts.fetch("two", "one", STREAM_BYTES) == STREAM_BYTES
    counts = network.straighten("one")
    assert counts.passed > 10 and (counts.lost, counts.refused) == (0, 0)
    assert (hosts.ask("one", "two") or 1.0) < 0.15


def test_a_cable_that_loses_loses_as_much_as_asked_for(network: HostNetwork, hosts: HostsThatTalk) -> None:
    network.shape("one", loss=0.5)
    before = hosts.came("one", "two"), hosts.came("two", "one")
    hosts.send("one", "two", 200)
    hosts.send("two", "one", 200)
    hosts.ask("two", "one")
    lost, came = hosts.came("one", "two") - before[0], hosts.came("two", "one") - before[1]
    assert 70 < lost < 130 and came == 200
    counts = network.straighten("one")
    assert counts.lost >= 70 and counts.refused == 0
    assert reachable(hosts) == ALL


def test_a_host_has_no_way_out(network: HostNetwork) -> None:
    network.check_ways()
    with pytest.raises(NetworkFailed, match="unreachable"):
        network_way(network, "one", "192.0.2.1")


def network_way(network: HostNetwork, name: str, address: str) -> None:
    command = network.command(name, ["/usr/bin/env", "ip", "route", "get", address])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkFailed(done.stderr)


def test_nothing_is_left_behind(network: HostNetwork) -> None:
    ours = os.readlink("/proc/self/ns/net")
    pids: list[int] = []
    with pytest.raises(NetworkFailed, match="on purpose"), made_network(["left"]) as made:
        pids = [made.hosts["left"].pid]
        assert os.readlink(f"/proc/{pids[0]}/ns/net") not in (ours, os.readlink(f"/proc/{network.hosts['one'].pid}/ns/net"))
        raise NetworkFailed("on purpose")
    assert not any(map(alive, pids))
    assert os.readlink("/proc/self/ns/net") == ours


def test_where_a_program_is_missing_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NamespacesNotAllowed, match="ip, nsenter, unshare, sleep"), made_network(["one"]):
        pytest.fail("there is no network without ip")
