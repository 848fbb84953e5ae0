"""What happens to the network of hosts in `make hosts`, and what an auditor sees of it.

down        the leader's host loses its interface; etcd's lead is on another one
etcd        the same, and etcd's lead is there too
one-way     where both lead: packets to another host, from another host, to all, and from all are lost, one after the other
slow        where both lead: what the host sends is 300 ms late
loss        where both lead: a tenth of what the host sends and gets is lost
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.hosts_cluster import HostCluster, HostEtcd
from benchmarks.load import SteadyLoad, small_pods
from benchmarks.network_namespaces import HostNetwork
from rayched.cli.cluster.rehearsal import Kill, Rehearsal, RehearsalFailed
from rayched.client.client import Client
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.cluster.local_start import wait_until_up

CLIENT: Final = "client"
HOSTS: Final = ("host-1", "host-2", "host-3")
DOWNS: Final = ("down", "etcd")
SPELLS: Final = ("one-way", "slow", "loss")
SEARCH_SECONDS: Final = 20.0
_DELAY_SECONDS: Final = 0.3
_LOSS: Final = 0.1
_MINUTE_SECONDS: Final = 60.0
_APART_SECONDS: Final = 22.0
"""Between two downs: while the lead has passed more than twice within a minute nobody acts on silence."""
_DOWN_SECONDS_MIN: Final = 4.0
_UP_SECONDS_MAX: Final = 180.0
_BOUND_SECONDS_MAX: Final = 60.0
_NODES, _ZONES = 60, 3
_CLIENTS_A_HOST: Final = 3
"""One that asked a host which is gone waits until it knows; pods have to come meanwhile."""


@dataclass(frozen=True, slots=True)
class HostPause:
    """From the moment at which the interface goes down to the first binding under a later epoch; None: there was none."""

    kind: str
    seconds: float | None
    until_epoch: float | None = None
    """Of these until the later epoch was seen."""

    def __str__(self) -> str:
        if self.seconds is None or self.until_epoch is None:
            return "no binding came"
        return f"{self.seconds:.2f} s, {self.until_epoch:.2f} of them until the epoch"


@dataclass(frozen=True, slots=True)
class NetworkSpell:
    """A time of bad network."""

    kind: str
    seconds: float
    changes: int
    """Epochs that began."""
    most_a_minute: int
    bound: int
    """Pods meanwhile."""


@dataclass(slots=True)
class HostsPlayed:
    """What came of it."""

    pauses: list[HostPause] = field(default_factory=list)
    spells: list[NetworkSpell] = field(default_factory=list)
    acknowledged: int = 0
    bound: int = 0
    lost: int = 0
    bound_twice: int = 0
    over_capacity: int = 0
    wrong: list[str] = field(default_factory=list)


class HostStage:
    """A cluster on the hosts under a steady load; made by `staged`."""

    def __init__(self, network: HostNetwork, etcd: HostEtcd, cluster: HostCluster, rehearsal: Rehearsal) -> None:
        self.network, self.etcd, self._cluster, self._rehearsal = network, etcd, cluster, rehearsal
        self.loads: list[SteadyLoad] = []
        self._clients: list[tuple[Client, str]] = []
        """And the replica that each asks first."""

    def load(self, rate: float, owned: contextlib.ExitStack) -> None:
        """As many clients for each host ask that one first, and go on with the others."""
        addresses = [*self._cluster.addresses] * _CLIENTS_A_HOST
        for number, address in enumerate(addresses):
            client = self._cluster.client(timeout_seconds=30.0)
            owned.callback(client.close)
            self._clients.append((client, address))
            load = SteadyLoad(client, small_pods(f"steady-{number}"), rate / len(addresses), batch=1)
            self.loads.append(load.start())
            owned.callback(load.stop)
        self.spread_clients()
        # Called first: what waits for the end of each call then waits for them side by side.
        owned.callback(self._tell_loads_to_stop)

    def spread_clients(self) -> None:
        """A client stays where it was answered: after a few faults all of them would be at one host, and hang with it."""
        for client, address in self._clients:
            client._transport.endpoints.prefer(address)

    def _tell_loads_to_stop(self) -> None:
        for load in self.loads:
            load.tell_to_stop()

    def leading_host(self) -> str:
        return self._cluster.host_of(self._rehearsal.client.leader(timeout_seconds=10.0).address)

    def wait_until_well(self) -> None:
        """All replicas stand for election, and bindings flow. Raises RehearsalFailed, ReplicaFailed."""
        wait_until_up(self._cluster, self._rehearsal.client, _UP_SECONDS_MAX)
        self.wait_for_bindings()

    def wait_for_bindings(self) -> None:
        before = self.bound()
        if not self._rehearsal.follower.wait_for(lambda auditor: len(auditor.bindings) > before, SEARCH_SECONDS):
            loads = "; ".join(load.describe() for load in self.loads)
            raise RehearsalFailed(f"no pod was bound for {SEARCH_SECONDS:.0f} s without a fault; the load: {loads}")

    def bound(self) -> int:
        return self._rehearsal.ask(lambda auditor: len(auditor.bindings))

    def place_leads(self, *, together: bool) -> str:
        """Etcd's lead goes to the leader's host, or to another one, the auditor looks from another one, and clients ask all of
        them; the leader's host."""
        self.spread_clients()
        for _ in range(3):
            host = self.leading_host()
            self.etcd.lead_at(host, not_there=not together)
            self._rehearsal.follower.turn_to(self.etcd.apart_from(host))
            self.wait_for_bindings()
            if self.leading_host() == host:
                return host
        raise RehearsalFailed("the lead passes again and again with nothing wrong")

    def pause_after(self, kind: str, host: str) -> HostPause:
        """Takes the interface of the host down until somebody else binds."""
        fault = Kill(kind, self._rehearsal.ask(lambda auditor: auditor.epoch), time.monotonic())
        self.network.down(host)
        try:
            binding = self._rehearsal.first_binding_after(fault, SEARCH_SECONDS)
            time.sleep(max(0.0, fault.seconds + _DOWN_SECONDS_MIN - time.monotonic()))
        finally:
            self.network.up(host)
        if binding is None:
            return HostPause(kind, None)
        epochs = self._rehearsal.follower.ask(lambda auditor: list(auditor.epochs))
        began = min(at for epoch, at in epochs if epoch > fault.epoch)
        return HostPause(kind, binding.seconds - fault.seconds, began - fault.seconds)

    def epochs_since(self, began: float) -> list[float]:
        """When each epoch since then began."""
        return self._rehearsal.follower.ask(lambda auditor: [seconds for _, seconds in auditor.epochs if seconds >= began])

    def end(self, played: HostsPlayed) -> None:
        """The load ends, all that was acknowledged is bound, and the auditor judges."""
        self._tell_loads_to_stop()
        for load in self.loads:
            load.stop()
            self._rehearsal.acknowledged += load.acknowledged
            played.wrong += [f"a submission was refused: {words}" for words in load.refused[:1]]
        acknowledged = len(self._rehearsal.acknowledged)
        self._rehearsal.wait_until_bound(acknowledged, _BOUND_SECONDS_MAX)
        verdict = self._rehearsal.verdict()
        played.acknowledged += acknowledged
        played.bound += verdict.bound
        played.lost += verdict.lost
        played.bound_twice += verdict.bound_twice
        played.over_capacity += verdict.over_capacity
        played.wrong += verdict.words
        if verdict.bound < acknowledged:
            played.wrong.append(f"{verdict.bound} pods are bound, {acknowledged} were acknowledged and fit")


@contextlib.contextmanager
def staged(network: HostNetwork, directory: Path, rate: float) -> Iterator[HostStage]:
    """Raises RehearsalFailed, EtcdServerError, ReplicaFailed, ApiError."""
    with contextlib.ExitStack() as owned:
        etcd = owned.enter_context(HostEtcd(directory / "etcd", network, HOSTS))
        cluster = HostCluster(directory, network, etcd, ["--no-compact"])
        nodes = hollow_nodes(_NODES, _ZONES, NodeShape({"cpu": "64", "memory": "256Gi", "pods": "2000"}))
        rehearsal = owned.enter_context(Rehearsal(directory, nodes, cluster=cluster))
        stage = HostStage(network, etcd, cluster, rehearsal)
        stage.load(rate, owned)
        yield stage


def play_downs(stage: HostStage, kind: str, count: int, tell: Callable[[str], object]) -> list[HostPause]:
    """One after the other, with time between two."""
    pauses: list[HostPause] = []
    for number in range(1, count + 1):
        stage.wait_until_well()
        host = stage.place_leads(together=kind == "etcd")
        began = time.monotonic()
        pauses.append(stage.pause_after(kind, host))
        tell(f"{kind} {number} of {count}, {host}: {pauses[-1]}")
        if number < count:
            time.sleep(max(0.0, began + _APART_SECONDS - time.monotonic()))
    stage.wait_until_well()
    return pauses


def play_spell(stage: HostStage, kind: str, seconds: float, tell: Callable[[str], object]) -> NetworkSpell:
    """So long, from a cluster that is well to one that is well again."""
    stage.wait_until_well()
    began, bound = time.monotonic(), stage.bound()
    _SPELLS[kind](stage, seconds)
    lasted = time.monotonic() - began
    during = [at for at in stage.epochs_since(began) if at < began + lasted]
    spell = NetworkSpell(kind, lasted, len(during), most_within(during, _MINUTE_SECONDS), stage.bound() - bound)
    tell(f"{kind}, {lasted:.0f} s: {spell.changes} changes of leader, {spell.bound} pods bound")
    stage.wait_until_well()
    return spell


def most_within(times: Sequence[float], seconds: float) -> int:
    """Of rising times, how many at most lie within so many seconds."""
    return max((sum(first <= one < first + seconds for one in times) for first in times), default=0)


def _one_way(stage: HostStage, seconds: float) -> None:
    for form in ("to one", "from one", "to all", "from all"):
        host = stage.place_leads(together=True)
        others = [one for one in (*HOSTS, CLIENT) if one != host]
        # The auditor looks from the first of the others.
        picked = others[1:2] if form.endswith("one") else others
        cuts = [(host, picked)] if form.startswith("to") else [(one, [host]) for one in picked]
        for source, targets in cuts:
            stage.network.cut(source, targets)
        try:
            time.sleep(seconds / 4)
        finally:
            for source, targets in cuts:
                stage.network.mend(source, targets)
        stage.wait_until_well()


def _slow(stage: HostStage, seconds: float) -> None:
    _shaped(stage, seconds, delay_seconds=_DELAY_SECONDS)


def _lossy(stage: HostStage, seconds: float) -> None:
    _shaped(stage, seconds, loss=_LOSS)


def _shaped(stage: HostStage, seconds: float, *, delay_seconds: float = 0.0, loss: float = 0.0) -> None:
    host = stage.place_leads(together=True)
    stage.network.shape(host, delay_seconds=delay_seconds, loss=loss, both_ways=loss > 0)
    try:
        time.sleep(seconds)
    finally:
        stage.network.straighten(host)


_SPELLS: Final[dict[str, Callable[[HostStage, float], None]]] = dict(zip(SPELLS, (_one_way, _slow, _lossy), strict=True))


def played(
    network: HostNetwork,
    directory: Path,
    only: Sequence[str],
    downs: int,
    minutes: float,
    rate: float,
    tell: Callable[[str], object],
) -> HostsPlayed:
    """Each in a cluster of its own. `downs`: with etcd's lead elsewhere; a quarter as many where it is there too."""
    found = HostsPlayed()
    for number, kind in enumerate(only):
        with staged(network, directory / f"{number}-{kind}", rate) as stage:
            if kind in DOWNS:
                count = downs if kind == "down" else max(1, downs // 4)
                found.pauses += play_downs(stage, kind, count, tell)
            else:
                found.spells.append(play_spell(stage, kind, minutes * _MINUTE_SECONDS, tell))
            stage.end(found)
    return found
