"""What gateways cost the leader, and what becomes of replicas whose gateways suffer: `python -m benchmarks.gateway`.

Three replicas and hollow nodes on this host, and a gateway before each replica, kept as a replica keeps its own.

* `load`: pods come in bursts, and then steadily, in turn with nothing else and with 2,000 watches and 500 requests a second
  through the gateways. Demanded: the watches stay open; while pods come steadily the leader binds at most 10 % fewer of them, 95
  of 100 requests are answered well, and 99 of 100 lines of watches come within a second; and in bursts the leader's scheduler
  takes at most 10 % more of a processor's time for each pod.
* `faults`: while pods come steadily, the gateways are killed, flooded with connections and bodies of nonsense, and started with
  next to no memory. Demanded: nobody else leads, no replica ends, bindings never pause for more than 2 s while a pod waits, every
  acknowledged pod is bound, and the gateways answer again in the end.

Exit code 1 where a demand is missed. All of it shares the processors of this host, also who asks. A burst takes all that there
are, so on a host with fewer than eight it becomes slower by what gateways and who asks take, whatever that costs the leader: the
figure is told, with who took how much, and is judged where there are eight. In some two minutes:

    make gateway-load ARGS="--nodes 20 --pods 200 --rounds 1 --watches 60 --rate 20 --steady-seconds 4 --fault-seconds 4"
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.gateway_faults import faults
from benchmarks.gateway_load import NAMESPACES, POD, GatewayLoad, LoadFigures, namespace_name
from benchmarks.gateway_rig import BOUND_SECONDS_MAX, Rig, Settings, rig, wait_for
from benchmarks.idle_processes import ProcessWatch, total
from benchmarks.load import SteadyLoad, small_pods
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import RehearsalFailed
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Namespace, Pod

COST_MAX = 0.10
ANSWERED_MIN = 0.95
LINE_SECONDS_MAX = 1.0
ROOMY_PROCESSORS = 8
"""For three replicas, three gateways, the scheduler and who asks."""
BURST, STEADY = "burst", "steady"
_SCHEDULER = "Scheduler"
"""In what idle_processes.py calls the leader's."""
_FILES = 8_192
"""A watch is a file here, in who asks and in the gateway."""


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """Pods that were bound, with load or without."""

    kind: str
    pods_a_second: float
    scheduler_seconds: float
    """Of a processor, for each pod."""
    processors: dict[str, float]
    """In use, by whom."""
    load: LoadFigures | None


def load(settings: Settings) -> list[str]:
    """The demands that were missed."""
    with rig(settings) as found:
        _watched_pods(found.rehearsal.client)
        epochs = len(found.onlooker.seen().epochs)
        asking = GatewayLoad(found.urls, settings.watches, settings.rate)
        try:
            # The first one finds caches cold, and counts for nothing.
            _burst(found, settings.pods, "warm", None)
            phases = []
            for number in range(settings.rounds):
                phases.append(_burst(found, settings.pods, f"alone-{number}", None))
                phases.append(_steady(found, settings, f"calm-{number}", None))
                asking.begin()
                phases.append(_burst(found, settings.pods, f"loaded-{number}", asking))
                phases.append(_steady(found, settings, f"busy-{number}", asking))
                asking.end()
        finally:
            asking.stop()
        peak, changes = found.peak_mib(), len(found.onlooker.seen().epochs) - epochs
    wrong = judged(settings, phases, peak, len(os.sched_getaffinity(0)))
    return [*wrong, f"the leader changed {changes} times, so the figures are of several"] if changes else wrong


def _watched_pods(client: Client) -> None:
    for number in range(NAMESPACES):
        name = namespace_name(number)
        client.apply(Namespace(api_version="v1", kind="Namespace", metadata={"name": name}))
        pod = Pod(api_version="v1", kind="Pod", metadata={"name": POD, "namespace": name})
        pod.spec.scheduler_name = "nobody"
        pod.spec.containers.add(name="main", image="registry.example/load:1")
        client.submit(pod)


def _burst(found: Rig, pods: int, prefix: str, asking: GatewayLoad | None) -> LoadPhase:
    """All at once. Raises RehearsalFailed where the pods are not bound."""
    _, before = found.onlooker.counts()
    with _Measured(found, asking) as measured:
        found.rehearsal.submit(itertools.islice(small_pods(prefix), pods))
        wait_for(lambda: found.onlooker.counts()[1] >= before + pods, BOUND_SECONDS_MAX, f"{pods} pods are bound")
    last = max(one.seconds for one in found.onlooker.seen().bindings[before:])
    return measured.phase(BURST, pods, last - measured.began)


def _steady(found: Rig, settings: Settings, prefix: str, asking: GatewayLoad | None) -> LoadPhase:
    """As many a second as the leader has time for, whatever else there is. Raises RehearsalFailed."""
    _, before = found.onlooker.counts()
    with _Measured(found, asking) as measured:
        pods = SteadyLoad(found.rehearsal.client, small_pods(prefix), settings.pods_a_second).start()
        time.sleep(settings.steady_seconds)
        bound = found.onlooker.counts()[1] - before
        seconds = time.monotonic() - measured.began
        pods.stop()
    if pods.refused:
        raise RehearsalFailed(f"a submission was refused: {pods.refused[0]}")
    sent = len(pods.acknowledged)
    wait_for(lambda: found.onlooker.counts()[1] >= before + sent, BOUND_SECONDS_MAX, f"{sent} steady pods are bound")
    return measured.phase(STEADY, bound, seconds)


class _Measured:
    """What processes use, and what who asks is answered, while it is entered."""

    def __init__(self, found: Rig, asking: GatewayLoad | None) -> None:
        self._asking = asking
        self._leader = ProcessWatch((found.rehearsal.leader().pid,))
        self._replicas = ProcessWatch(tuple(found.replicas()))
        self._gateways = ProcessWatch(tuple(keeper.pid for keeper in found.keepers if keeper.pid is not None))
        self._figures: LoadFigures | None = None
        self._scheduler_seconds = 0.0
        self._processors: dict[str, float] = {}
        self.began = 0.0

    def __enter__(self) -> _Measured:
        if self._asking is not None:
            self._asking.figures()
        for one in (self._leader, self._replicas, self._gateways):
            one.look()
        self.began = time.monotonic()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            return
        seconds = time.monotonic() - self.began
        if self._asking is not None:
            self._figures = self._asking.figures()
        leader = self._leader.used()
        self._scheduler_seconds = sum(used.cpu_seconds for name, used in leader.items() if _SCHEDULER in name)
        trees = (("replicas", self._replicas), ("gateways", self._gateways))
        self._processors = {name: total(one.used().values()).cpu_seconds / seconds for name, one in trees}
        if self._figures is not None:
            self._processors["who asks"] = self._figures.cpu_seconds / max(self._figures.seconds, 1e-9)

    def phase(self, kind: str, pods: int, seconds: float) -> LoadPhase:
        return LoadPhase(kind, pods / seconds, self._scheduler_seconds / max(pods, 1), self._processors, self._figures)


def judged(settings: Settings, phases: Sequence[LoadPhase], peak_mib: int, processors: int) -> list[str]:
    """Prints the figures; the demands that they miss."""
    rows, wrong = [], []
    for number, one in enumerate(phases, 1):
        rows.append((f"{number}: {one.kind}, {'alone' if one.load is None else 'loaded'}", described(one)))
        if one.load is not None:
            wrong += _unserved(settings, one, one.load)
    steady = _cost(phases, STEADY, lambda one: one.pods_a_second)
    burst = _cost(phases, BURST, lambda one: one.pods_a_second)
    scheduling = _cost(phases, BURST, lambda one: 1 / max(one.scheduler_seconds, 1e-9))
    rows.append(("cost, steady", f"{steady:.1%} of {settings.pods_a_second:.0f} pods a second, allowed are {COST_MAX:.0%}"))
    rows.append(("cost, scheduler", f"{scheduling:.1%} of the pods a second of its own time, allowed are {COST_MAX:.0%}"))
    has_room = processors >= ROOMY_PROCESSORS
    why = f"allowed are {COST_MAX:.0%}" if has_room else f"told, not judged: all of it has {processors} processors together"
    rows.append(("cost, bursts", f"{burst:.1%} of the pods bound a second, {why}"))
    rows.append(("memory", f"{peak_mib} MiB of the largest gateway"))
    for cost, what in ((steady, "steady pods"), (scheduling, "its scheduler's time"), (burst if has_room else 0.0, "bursts")):
        if cost > COST_MAX:
            wrong.append(f"the load costs the leader {cost:.1%} of its throughput by {what}, allowed are {COST_MAX:.0%}")
    printing.figures(f"{settings.watches:,} watches and {settings.rate:.0f} requests a second through the gateways", rows)
    return wrong


def _cost(phases: Sequence[LoadPhase], kind: str, figure: Callable[[LoadPhase], float]) -> float:
    """What part of a figure the load takes away."""
    alone = statistics.mean(figure(one) for one in phases if one.kind == kind and one.load is None)
    loaded = statistics.mean(figure(one) for one in phases if one.kind == kind and one.load is not None)
    return 1 - loaded / alone


def described(one: LoadPhase) -> str:
    text = f"{one.pods_a_second:,.0f} pods/s, {one.scheduler_seconds * 1e3:.2f} ms of the scheduler each"
    text += "; processors: " + ", ".join(f"{used:.2f} {name}" for name, used in one.processors.items())
    if one.load is not None:
        figures = one.load
        asked = sum(figures.answers.values()) + figures.left_out
        text += f"; {figures.watches:,} watches, {figures.lines / max(figures.seconds, 1e-9):,.0f} lines/s, 99 of 100 within"
        text += f" {figures.slow_line_seconds * 1e3:.0f} ms; {figures.rate:.0f} requests/s answered of"
        text += f" {asked / max(figures.seconds, 1e-9):.0f}, 99 of 100 within {figures.slow_seconds * 1e3:.0f} ms"
    return text


def _unserved(settings: Settings, phase: LoadPhase, figures: LoadFigures) -> list[str]:
    """What those who ask missed. In a burst the gateways, whose priority is lower, have what time the replicas leave them."""
    wrong = []
    if figures.watches < settings.watches:
        wrong.append(f"{figures.watches} of {settings.watches} watches were open to the end")
    if phase.kind == BURST:
        return wrong
    if figures.rate < ANSWERED_MIN * settings.rate:
        wrong.append(f"{figures.rate:.0f} of {settings.rate:.0f} requests a second were answered: {dict(figures.answers)}")
    if figures.slow_line_seconds > LINE_SECONDS_MAX:
        text = f"of 100 lines of watches one came after {figures.slow_line_seconds:.1f} s"
        wrong.append(f"{text}, allowed are {LINE_SECONDS_MAX} s")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description="What gateways cost the leader.")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=5_000, help="in a burst")
    parser.add_argument("--pods-a-second", type=float, default=100.0, help="that come steadily")
    parser.add_argument("--steady-seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=2, help="with load, and as many without")
    parser.add_argument("--watches", type=int, default=2_000)
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second")
    parser.add_argument("--fault-seconds", type=float, default=20.0, help="of each fault")
    parser.add_argument("--only", choices=("load", "faults"), help="without it both")
    given = parser.parse_args(arguments)
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= now < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES if most == resource.RLIM_INFINITY else min(_FILES, most), most))
    settings = Settings(
        nodes=given.nodes,
        pods=given.pods,
        pods_a_second=given.pods_a_second,
        steady_seconds=given.steady_seconds,
        rounds=given.rounds,
        watches=given.watches,
        rate=given.rate,
        fault_seconds=given.fault_seconds,
    )
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
