"""One simulated world from one seed: three replicas, trouble for a while, then healing; and many worlds on all cores.

The same seed gives the same run, and the same hash of all that happened, on every machine and in every process.
"""

from __future__ import annotations

import gc
import os
import time
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from random import Random
from typing import Any, Final

from rayched.configuration.profile_building import default_profile
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from tests.planted_bugs import planted
from tests.simulation.api import simulated_time
from tests.simulation.drift import Drift
from tests.simulation.faults import Faults
from tests.simulation.groups import Groups, small_parts
from tests.simulation.liveness import missing
from tests.simulation.nodes import Nodes
from tests.simulation.peers import Peers
from tests.simulation.replica import Replica
from tests.simulation.safety import Safety
from tests.simulation.users import Record, Users
from tests.simulation.world import SECOND, Violation, World

REPLICAS: Final = ("a", "b", "c")
LIVE_NS_MAX: Final = 20 * SECOND
"""How long after the healing all that is promised has to have come true: two seconds to elect, ten of backoff, and some more."""
LOOK_NS: Final = SECOND // 4
SEEDS_A_TASK: Final = 10
GROUP_OPS: Final = ("group", "group-plan", "group-release")


@dataclass
class Report:
    """What one run showed."""

    seed: int
    trace_hash: str = ""
    rule: str = ""
    """Of the violation; empty: none."""
    text: str = ""
    seconds: float = 0.0
    simulated_seconds: float = 0.0
    live_seconds: float = 0.0
    """From the healing until everything promised had come true."""
    counts: Counter[str] = field(default_factory=Counter)

    def command(self, bug: str | None = None) -> str:
        return f"python -m tests.simulation --seed {self.seed}" + (f' --bug "{bug}"' if bug else "")


def simulate(seed: int, bug: str | None = None, story: Callable[[str], None] | None = None) -> Report:
    """One run. A violation ends it and is reported; any other exception is a bug of the code or of the simulation, and is too."""
    began = time.perf_counter()
    report = Report(seed)
    with planted(bug):
        world = World(seed)
        world.story = story
        try:
            with simulated_time(world), small_parts(seed):
                _run(world, report)
        except Violation as violation:
            report.rule, report.text = violation.rule, str(violation)
        except Exception as error:
            report.rule, report.text = "error", f"{type(error).__name__}: {error}"
            if story is not None:
                raise
    report.trace_hash = world.trace_hash()
    report.simulated_seconds = world.now / SECOND
    report.seconds = time.perf_counter() - began
    report.counts["plans carried out"] = world.events
    report.counts["requests to etcd"] = world.requests
    report.counts["refused by the epoch"] = world.fenced
    return report


def _run(world: World, report: Report) -> None:
    random = world.random
    record = Record()
    safety = Safety(world, record)
    troubled_ns = int(random.uniform(3.0, 10.0) * SECOND)
    replicas: list[Replica] = []
    users = Users(world, replicas, record, crowded=random.random() < 0.5)
    nodes = Nodes(world, users, report.counts, troubled_ns)
    groups = Groups(world, users, report.counts, troubled_ns)
    groups.members_fail = not nodes.is_on

    def committed() -> None:
        safety.committed()
        if groups.is_on:
            groups.committed()

    world.committed = committed
    users.start(nodes=random.randint(3, 5))

    def believing(_: Replica) -> None:
        safety.believers([replica.process.name for replica in replicas if replica.is_up and replica.candidate.believes()])

    def delivered(replica: Replica, delivery: object) -> None:
        name = replica.scheduling.process.name if hasattr(replica, "scheduling") else replica.name
        safety.delivered(name, delivery)  # type: ignore[arg-type]

    clocks_agree = nodes.is_on and nodes.clocks_agree
    drift = Drift(world, report.counts, troubled_ns, allowed=not clocks_agree)
    rates = drift.rates(_rates(random))
    if clocks_agree:
        rates = [1.0 for _ in rates]
    safety.rates_tolerated = drift.is_tolerated(rates)
    nodes.fastest = max(*rates, drift.fastest)
    safety.nodes = nodes
    peers = Peers(world, safety, report.counts, troubled_ns)
    for name, rate in zip(REPLICAS, rates, strict=True):
        replicas.append(
            Replica(
                world,
                name,
                rate,
                _profiles(),
                believing,
                delivered,
                safety.bound_since,
                cares_for_nodes=nodes.is_on,
                wall_clocks_agree=clocks_agree,
                peers=peers if peers.is_on else None,
                keys_max=groups.keys_max,
                sending=groups.sending,
            )
        )
    nodes.start(replicas)
    groups.start(replicas)
    drift.start(replicas)
    peers.start(replicas)
    faults = Faults(world, replicas, safety, troubled_ns)
    faults.wall_clocks_agree = clocks_agree
    faults.start()
    world.run_until(troubled_ns)
    users.rest()
    groups.rest()
    faults.heal()
    drift.heal()
    peers.heal()
    nodes.heal(safety.auditor)
    world.tell("-- healed")
    _wait_for_life(world, safety, replicas, nodes, report)
    safety.ended()
    report.counts.update(faults.counts)
    report.counts["bindings"] = len(safety.auditor.bindings)
    report.counts.update({f"written for groups: {op}": safety.auditor.leader_writes[op] for op in GROUP_OPS})
    report.counts["members of groups bound"] = sum(one.uid.startswith("uid-g") for one in safety.auditor.bindings)
    report.counts["terms"] = len(safety.auditor.epochs)
    report.counts.update({f"tolerated: {name}": count for name, count in safety.auditor.findings.tolerated.items()})
    report.counts["overlapping beliefs, where allowed"] = safety.overlaps
    world.trace([(one.uid, one.node, one.revision) for one in safety.auditor.bindings])


def _rates(random: Random) -> list[float]:
    """Of the replicas' clocks; etcd's is 1."""
    width = random.choice((0.0, 0.0, 0.1, 0.18, 0.45))
    return [1.0 + random.uniform(-width, width) for _ in REPLICAS]


def _wait_for_life(world: World, safety: Safety, replicas: list[Replica], nodes: Nodes, report: Report) -> None:
    began = world.now
    lacking = ("", "")
    while world.now - began < LIVE_NS_MAX:
        world.run_until(world.now + LOOK_NS)
        if not all(replica.is_up and replica.scheduling.process.alive for replica in replicas):
            continue
        found = missing(world, safety.auditor, replicas, nodes)
        if found is None:
            report.live_seconds = (world.now - began) / SECOND
            return
        lacking = found
    raise Violation(lacking[0], f"{LIVE_NS_MAX / SECOND:.0f} s after the healing: {lacking[1]}")


@cache
def _profiles() -> Mapping[str, Profile]:
    profile = default_profile(IN_TREE)
    return {profile.scheduler_name: profile}


# -------------------------------------------------------------------------------------------------------------------- many


def worker_pool() -> ProcessPoolExecutor:
    """Processes for many runs, one for each core. Spawned, not forked: grpc's threads do not survive a fork."""
    return ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), initializer=_prepare)


def simulate_many(
    seeds: Iterable[int],
    bug: str | None = None,
    pool: ProcessPoolExecutor | None = None,
    seeds_a_task: int = SEEDS_A_TASK,
) -> Iterator[Report]:
    """All of them, on all cores, in order. Whoever has seen enough may stop taking; what has not begun is dropped then."""
    seeds = list(seeds)
    workers = pool or worker_pool()
    tasks = [seeds[start : start + seeds_a_task] for start in range(0, len(seeds), seeds_a_task)]
    futures = [workers.submit(_several, task, bug) for task in tasks]
    try:
        for future in futures:
            yield from future.result()
    finally:
        for future in futures:
            future.cancel()
        if pool is None:
            workers.shutdown()


def _prepare() -> None:
    """Makes worlds cheaper in a process that does nothing else."""
    # Python looks for the members of a protocol in the object at each isinstance: a tenth of all work, as schedulers ask at
    # their start. Here objects of one class have the same members.
    meta: Any = type(typing.Protocol)
    look = meta.__instancecheck__
    known: dict[tuple[type, type], bool] = {}

    def is_instance(protocol: type, one: object) -> bool:
        question = protocol, type(one)
        answer = known.get(question)
        if answer is None:
            answer = known[question] = look(protocol, one)
        return answer

    meta.__instancecheck__ = is_instance
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _several(seeds: list[int], bug: str | None) -> list[Report]:
    return [simulate(seed, bug) for seed in seeds]
