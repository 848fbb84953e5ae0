"""What gateways cost the leader, and what becomes of replicas whose gateways suffer: `python -m benchmarks.gateway`.

Three replicas and hollow nodes on this host, and a gateway before each replica, kept as a replica keeps its own.

* `load`: bursts of pods are submitted and bound, in turn with nothing else and with 2,000 watches and 500 requests a second
  through the gateways. Demanded: the watches stay open, 95 of 100 requests are answered well, and the leader binds at most 10 %
  slower.
* `faults`: while pods come steadily, the gateways are killed, flooded with connections and bodies of nonsense, and started with
  next to no memory. Demanded: nobody else leads, no replica ends, bindings never pause for more than 2 s while a pod waits, every
  acknowledged pod is bound, and the gateways answer again in the end.

Exit code 1 where a demand is missed. All of it shares the processors of this host, also who asks. In some two minutes:

    make gateway-load ARGS="--nodes 20 --pods 200 --rounds 1 --watches 60 --rate 20 --fault-seconds 4"
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import os
import resource
import signal
import socket
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.flood import PAUSE_SECONDS_MAX, longest_pause
from benchmarks.flood_processes import Onlooker
from benchmarks.gateway_load import NAMESPACES, POD, GatewayLoad, LoadFigures, namespace_name
from benchmarks.load import SteadyLoad, small_pods
from benchmarks.processes import peak_memory_bytes, wait_until_quiet
from rayched.cli import printing
from rayched.cli.rehearsal import Rehearsal, RehearsalFailed, scratch_directory
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.gateway_keeper import MEMORY_BYTES_MAX, GatewayKeeper, GatewayPlace
from rayched.replica.ray.processes import alive, descendants
from rayched.v1.core_pb2 import Namespace, Pod

COST_MAX = 0.10
ANSWERED_MIN = 0.95
_STARVED_BYTES = 48 << 20
"""Less than the modules of a gateway take."""
_CONNECTIONS = 4_000
_QUIET_SECONDS_MAX = 60.0
_UP_SECONDS_MAX = 60.0
_BOUND_SECONDS_MAX = 300.0
_LOOK_SECONDS = 0.02
_NONSENSE = b"[" * (3 << 20)
_FLOODERS = 8
_HELD_MAX = 400
"""Connections of each of them: all together are more than a process may have by most defaults."""
_FILES = 8_192
"""A watch is a file here, in who asks and in the gateway."""
_RESTART_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked for."""

    nodes: int
    pods: int
    """In a burst."""
    rounds: int
    """Of each kind."""
    watches: int
    rate: float
    fault_seconds: float
    """Of each fault."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Pods that were bound, with load or without."""

    pods_a_second: float
    load: LoadFigures | None


class Rig:
    """The cluster, its gateways, and who notes what etcd shows."""

    def __init__(self, rehearsal: Rehearsal, onlooker: Onlooker) -> None:
        self.rehearsal = rehearsal
        self.onlooker = onlooker
        self.ports = free_ports(len(rehearsal.cluster.addresses))
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.keepers: list[GatewayKeeper] = []

    def start(self, memory_bytes: int = MEMORY_BYTES_MAX) -> None:
        """Gateways, in the place of those that are there."""
        self.stop()
        for port, address in zip(self.ports, self.rehearsal.cluster.addresses, strict=True):
            words = GatewayPlace(f"127.0.0.1:{port}", None).command(address)
            keeper = GatewayKeeper([*words, "--connections-per-address", str(_CONNECTIONS)], memory_bytes=memory_bytes)
            keeper.start()
            self.keepers.append(keeper)

    def stop(self) -> None:
        for keeper in self.keepers:
            keeper.stop()
        self.keepers.clear()

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + _UP_SECONDS_MAX
        for url in self.urls:
            while not answers(url):
                if time.monotonic() > deadline:
                    raise RehearsalFailed(f"the gateway at {url} does not answer within {_UP_SECONDS_MAX:.0f} s")
                time.sleep(0.1)

    def replicas(self) -> list[int]:
        return [one.pid for one in self.rehearsal.cluster.replicas]

    def peak_mib(self) -> int:
        """Of the gateway that had most memory."""
        return max(peak_memory_bytes(keeper.pid) for keeper in self.keepers if keeper.pid is not None) >> 20


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextlib.contextmanager
def rig(settings: Settings) -> Iterator[Rig]:
    """Raises RehearsalFailed where the cluster does not come up."""
    shape = NodeShape({"cpu": "64", "memory": "256Gi", "pods": "250"})
    nodes = hollow_nodes(settings.nodes, 3, shape)
    with scratch_directory("gateway") as directory, contextlib.ExitStack() as owned:
        options = ["--no-compact"]
        rehearsal = owned.enter_context(Rehearsal(directory, nodes, options=options, agents=False, audit_later=True))
        onlooker = Onlooker(rehearsal.cluster.etcd_endpoints)
        owned.callback(onlooker.stop)
        found = Rig(rehearsal, onlooker)
        owned.callback(found.stop)
        found.start()
        found.wait_until_up()
        below = [pid for one in rehearsal.cluster.replicas for pid in (one.pid, *descendants(one.pid))]
        if not wait_until_quiet(below, _QUIET_SECONDS_MAX):
            raise RehearsalFailed(f"the processes did not come to rest within {_QUIET_SECONDS_MAX:.0f} s")
        yield found


# ------------------------------------------------------------------------------------------------------------------ load


def load(settings: Settings) -> list[str]:
    """The demands that were missed."""
    with rig(settings) as found:
        _watched_pods(found.rehearsal.client)
        asking = GatewayLoad(found.urls, settings.watches, settings.rate)
        try:
            # The first one finds caches cold, and counts for nothing.
            _burst(found, settings.pods, "warm", None)
            bursts = []
            for number in range(settings.rounds):
                bursts.append(_burst(found, settings.pods, f"alone-{number}", None))
                bursts.append(_burst(found, settings.pods, f"loaded-{number}", asking))
        finally:
            asking.stop()
        peak = found.peak_mib()
    return judged(settings, bursts, peak)


def _watched_pods(client: Client) -> None:
    for number in range(NAMESPACES):
        name = namespace_name(number)
        client.apply(Namespace(api_version="v1", kind="Namespace", metadata={"name": name}))
        pod = Pod(api_version="v1", kind="Pod", metadata={"name": POD, "namespace": name})
        pod.spec.scheduler_name = "nobody"
        pod.spec.containers.add(name="main", image="registry.example/load:1")
        client.submit(pod)


def _burst(found: Rig, pods: int, prefix: str, asking: GatewayLoad | None) -> Burst:
    """Raises RehearsalFailed where the pods are not bound."""
    if asking is not None:
        asking.begin()
    _, before = found.onlooker.counts()
    began = time.monotonic()
    found.rehearsal.submit(itertools.islice(small_pods(prefix), pods))
    _wait(lambda: found.onlooker.counts()[1] >= before + pods, _BOUND_SECONDS_MAX, f"{pods} pods are bound")
    figures = None if asking is None else asking.end()
    last = max(one.seconds for one in found.onlooker.seen().bindings[before:])
    return Burst(pods / (last - began), figures)


def judged(settings: Settings, bursts: Sequence[Burst], peak_mib: int) -> list[str]:
    """Prints the figures; the demands that they miss."""
    alone = statistics.mean(one.pods_a_second for one in bursts if one.load is None)
    loaded = statistics.mean(one.pods_a_second for one in bursts if one.load is not None)
    rows, wrong = [], []
    for number, one in enumerate(bursts, 1):
        text = f"{one.pods_a_second:,.0f} pods/s"
        if one.load is not None:
            figures = one.load
            asked = sum(figures.answers.values()) + figures.left_out
            text += f"; {figures.watches:,} watches, {figures.lines:,} lines, {figures.rate:.0f} requests/s answered of"
            text += f" {asked / figures.seconds:.0f}, 99 of 100 within {figures.slow_seconds * 1e3:.0f} ms"
            if figures.watches < settings.watches:
                wrong.append(f"{figures.watches} of {settings.watches} watches were open to the end")
            if figures.rate < ANSWERED_MIN * settings.rate:
                wrong.append(
                    f"{figures.rate:.0f} of {settings.rate:.0f} requests a second were answered: {dict(figures.answers)}"
                )
        rows.append((f"{number}: {'alone' if one.load is None else 'loaded'}", text))
    cost = 1 - loaded / alone
    rows.append(("cost", f"{alone:,.0f} pods/s alone, {loaded:,.0f} with load: {cost:.1%}, allowed are {COST_MAX:.0%}"))
    rows.append(("memory", f"{peak_mib} MiB of the largest gateway"))
    if cost > COST_MAX:
        wrong.append(f"the load costs the leader {cost:.1%} of its throughput, allowed are {COST_MAX:.0%}")
    printing.figures(f"{settings.watches:,} watches and {settings.rate:.0f} requests a second through the gateways", rows)
    return wrong


# ---------------------------------------------------------------------------------------------------------------- faults


def faults(settings: Settings) -> list[str]:
    """The demands that were missed."""
    with rig(settings) as found:
        epochs, replicas = len(found.onlooker.seen().epochs), found.replicas()
        with found.rehearsal.cluster.client(timeout_seconds=30.0) as client:
            pods = SteadyLoad(client, small_pods("steady"), rate=50.0).start()
            try:
                for fault in (_kill, _flood, _starve):
                    fault(found, settings.fault_seconds)
            finally:
                pods.stop()
        found.start()
        found.wait_until_up()
        bound = len(pods.acknowledged)
        with contextlib.suppress(RehearsalFailed):
            _wait(lambda: found.onlooker.counts()[1] >= bound, _BOUND_SECONDS_MAX, "the steady pods are bound")
        seen = found.onlooker.seen()
        wrong = [f"replica {pid} has ended" for pid in replicas if not alive(pid)]
    pause = longest_pause(seen.moments)
    if len(seen.epochs) != epochs:
        wrong.append(f"the leader changed {len(seen.epochs) - epochs} times")
    if pause > PAUSE_SECONDS_MAX:
        wrong.append(f"bindings paused for {pause:.2f} s, allowed are {PAUSE_SECONDS_MAX} s")
    if pods.refused:
        wrong.append(f"{len(pods.refused)} pods were refused; the first: {pods.refused[0]}")
    if len(seen.bindings) < bound:
        wrong.append(f"{len(seen.bindings)} of {bound} acknowledged pods were bound")
    rows = [
        ("pods", f"{bound:,} acknowledged, {len(seen.bindings):,} bound, {pods.achieved:.0f} a second"),
        ("leader", f"{len(seen.epochs) - epochs} changes, longest pause of bindings {pause:.2f} s"),
    ]
    printing.figures("gateways killed, flooded and starved", rows)
    return wrong


def _kill(found: Rig, seconds: float) -> None:
    """Each gateway, again and again, as soon as it is there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for keeper in found.keepers:
            if keeper.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(keeper.pid, signal.SIGKILL)
        time.sleep(1.0)


def _flood(found: Rig, seconds: float) -> None:
    """Bodies of nonsense and connections that say nothing."""
    found.start()
    found.wait_until_up()
    stop = threading.Event()

    def send(url: str) -> None:
        held: list[socket.socket] = []
        place = urlsplit(url)
        while not stop.is_set():
            request = urllib.request.Request(f"{url}/api/v1/namespaces/default/pods", data=_NONSENSE, method="POST")
            request.add_header("Content-Type", "application/json")
            # A gateway that refuses, or ends, is what this is about.
            with contextlib.suppress(OSError, http.client.HTTPException):
                urllib.request.urlopen(request, timeout=10.0).close()
            if len(held) == _HELD_MAX:
                held.pop(0).close()
            with contextlib.suppress(OSError):
                held.append(socket.create_connection((place.hostname or "", place.port or 0), 5.0))
        for one in held:
            one.close()

    threads = [threading.Thread(target=send, args=(found.urls[number % len(found.urls)],)) for number in range(_FLOODERS)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()


def _starve(found: Rig, seconds: float) -> None:
    found.start(_STARVED_BYTES)
    time.sleep(seconds)
    what = f"each gateway with {_STARVED_BYTES >> 20} MiB has ended, and is started anew"
    _wait(lambda: all(keeper.starts > 1 for keeper in found.keepers), _RESTART_SECONDS_MAX, what)


def _wait(holds: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RehearsalFailed(f"not within {seconds:.0f} s: {what}")
        time.sleep(_LOOK_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description="What gateways cost the leader.")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=10_000, help="in a burst")
    parser.add_argument("--rounds", type=int, default=3, help="bursts with load, and as many without")
    parser.add_argument("--watches", type=int, default=2_000)
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second")
    parser.add_argument("--fault-seconds", type=float, default=20.0, help="of each fault")
    parser.add_argument("--only", choices=("load", "faults"), help="without it both")
    given = parser.parse_args(arguments)
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= now < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES if most == resource.RLIM_INFINITY else min(_FILES, most), most))
    settings = Settings(given.nodes, given.pods, given.rounds, given.watches, given.rate, given.fault_seconds)
    wrong: list[str] = []
    try:
        for name, part in (("load", load), ("faults", faults)):
            if given.only in (None, name):
                wrong += part(settings)
    except (RehearsalFailed, ApiError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except EOFError:
        print("error: the process that asks the gateways, or the one that looks on, has ended by itself", file=sys.stderr)
        return 1
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
