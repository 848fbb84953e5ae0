"""Where `python -m benchmarks.gateway` measures: three replicas, hollow nodes, a gateway before each replica, an onlooker."""

from __future__ import annotations

import contextlib
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.flood_processes import Onlooker
from benchmarks.processes import peak_memory_bytes, wait_until_quiet
from rayched.cli.cluster.rehearsal import Rehearsal, RehearsalFailed, scratch_directory
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.free_ports import free_ports
from rayched.replica.gateway_keeper import MEMORY_BYTES_MAX, GatewayKeeper, GatewayPlace
from rayched.replica.ray.processes import descendants

_CONNECTIONS = 4_000
_QUIET_SECONDS_MAX = 60.0
_UP_SECONDS_MAX = 60.0
BOUND_SECONDS_MAX = 300.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked for."""

    nodes: int
    pods: int
    """In a burst."""
    pods_a_second: float
    """That come steadily."""
    steady_seconds: float
    rounds: int
    """Of each kind."""
    watches: int
    rate: float
    fault_seconds: float
    """Of each fault."""


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


def wait_for(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Raises RehearsalFailed where it does not become true."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RehearsalFailed(f"not within {seconds:.0f} s: {what}")
        time.sleep(_LOOK_SECONDS)
