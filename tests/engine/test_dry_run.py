"""A dry run finds the victims that removing and putting back single pods finds, node by node."""

from __future__ import annotations

import copy

import pytest

from rayched.engine.engine import Engine
from rayched.engine.nominations import Nomination
from rayched.snapshot.columns import Log
from rayched.v1.core_pb2 import Node, Pod
from tests.engine.test_counting_against_naive import a_counting_profile, a_world
from tests.engine.toy_counting import Zones


class Bench:
    """A world, an incoming pod, and pods that are nominated to some nodes."""

    def __init__(self, seed: int) -> None:
        self.world = a_world(seed)
        self.random = self.world.random
        self.engine = Engine(self.world.snapshot, a_counting_profile(Zones()))
        for _ in range(30):
            self.world.bind()

    def fits(self, pod: Pod, node: Node, away: list[str], coming: list[Pod]) -> tuple[str, int, str] | None:
        """Why the pod does not fit without some pods, beside those that come and beside nobody."""
        naive = copy.copy(self.world.naive)
        naive.pods = {uid: where for uid, where in naive.pods.items() if uid not in away}
        found = None
        if coming:
            beside = copy.copy(naive)
            beside.pods = naive.pods | {f"coming-{number}": (one, node.metadata.name) for number, one in enumerate(coming)}
            found = beside.rejecting(pod, node)
        return found or naive.rejecting(pod, node)

    def expected(self, pod: Pod, name: str, uids: list[str], coming: list[Pod]) -> tuple[list[bool] | None, str]:
        """Which of the pods stay; None and why, where the pod does not fit without all of them."""
        node, away = self.world.naive.nodes[name], uids.copy()
        why_not = self.fits(pod, node, away, coming)
        if why_not is not None:
            return None, why_not[2]
        stay = []
        for uid in uids:
            away.remove(uid)
            stay.append(self.fits(pod, node, away, coming) is None)
            if not stay[-1]:
                away.append(uid)
        return stay, ""


@pytest.mark.parametrize("seed", range(5))
def test_the_victims_are_those_that_going_pod_by_pod_finds(seed: int) -> None:
    bench = Bench(seed)
    world, random, snapshot = bench.world, bench.random, bench.world.snapshot
    found_victims = found_refusals = 0
    for step in range(25):
        for _ in range(4):
            world.step()
        pod = random.choice(world.pending)
        names = random.sample(sorted(world.naive.nodes), min(6, len(world.naive.nodes)))
        rows = [snapshot.rows_by_name[name] for name in names]
        hoping: list[tuple[Pod, str]] = [
            (random.choice(world.pending), random.choice(names)) for _ in range(random.choice((0, 0, 2)))
        ]
        nominated: tuple[Nomination, ...] = tuple((world.template(one), snapshot.rows_by_name[name]) for one, name in hoping)
        uids = []
        for name in names:
            there = list(snapshot.pods_on(name))
            uids.append(random.sample(there, random.randint(0, len(there))))
        tried = bench.engine.dry_run(world.template(pod), nominated).run(
            rows, [[world.template(world.naive.pods[uid][0]) for uid in each] for each in uids]
        )
        refusals = tried.refusals()
        for place, (name, each) in enumerate(zip(names, uids, strict=True)):
            expected, why_not = bench.expected(pod, name, each, [one for one, on in hoping if on == name])
            stay, what = tried.stay[place], f"seed {seed}, step {step}, {name}"
            assert (None if stay is None else [bool(one) for one in stay]) == expected, what
            assert (place in refusals) == (expected is None), what
            if expected is None:
                assert refusals[place].message() == why_not, what
                found_refusals += 1
            else:
                found_victims += expected.count(False)
    assert found_victims > 5 and found_refusals > 5


def test_rows_depend_on_each_other_only_where_a_filter_counts() -> None:
    bench = Bench(0)
    limited, unlimited = (
        next(pod for pod in bench.world.pending if ("limit" in pod.metadata.labels) is has) for has in (True, False)
    )
    for pod in (limited, unlimited):
        pod.metadata.labels.pop("alone", None)
    dry_run = bench.engine.dry_run(bench.world.template(limited))
    assert dry_run.reads_of_all_rows == Log.LABELS and not dry_run.has_together
    assert bench.engine.dry_run(bench.world.template(unlimited)).reads_of_all_rows == Log(0)
