"""What counting plugins say, kept: the same as asking them anew after any change, about every row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

from rayched.engine import domain_state
from rayched.engine.domain_state import DomainRejection, DomainState, score_counted
from rayched.engine.scale import TotalColumn, scale_for
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log, ScoreColumn
from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.pod_selection import PodSelector
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import a_snapshot, a_template
from tests.engine.toy_plugins import NO
from tests.snapshot.objects import a_node

SCALE = scale_for([1])
KEYS = "zone", "rank"
EVERYBODY = (PodSelector(None, ()),)


@dataclass
class Refusing:
    refusals: list[BlockedDomains]
    revision: int = 0
    verdict: Hashable = 0
    adds_nothing: bool = False
    n_bytes: int = 24


class Doors:
    """Refuses the domains that the test closes, by zone and by rank."""

    name = "Doors"
    reads = Log.LABELS

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.now = Refusing([BlockedDomains(snapshot.topology(key)) for key in KEYS])
        self.closed: set[tuple[str, str]] = set()
        self.n_counted = self.n_filtered = 0
        self.raw: ScoreColumn | None = None

    def key(self, pod: Pod) -> Hashable | None:
        return ()

    def prepare(self, pod: Pod) -> Any:
        return ()

    def count(self, state: Any, cluster: Snapshot, last: Refusing | None) -> Refusing:
        cluster.pod_counts.counter(EVERYBODY)
        self.n_counted += 1
        now = self.now
        for key, one in zip(KEYS, now.refusals, strict=True):
            one.topology.refresh()
            refused = np.zeros(one.topology.n_domains + 1, np.bool_)
            for domain in [one.topology.domain_of(value) for other, value in self.closed if other == key]:
                if domain is not None:
                    refused[domain] = True
            refused[-1] = (key, "") in self.closed
            one.set_all(refused)
        now.verdict = tuple((one.topology.version, one.refused.tobytes()) for one in now.refusals)
        now.revision += 1
        return now

    def filter(self, state: Refusing, rows: Rows) -> CodeColumn | None:
        self.n_filtered += 1
        refused = [one.refused[one.topology.column[rows.index]] for one in state.refusals]
        return np.where(refused[0] | refused[1], NO, 0)

    def reasons(self, state: Refusing, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:
        return (("closed", codes != 0),)

    def refusals(self, state: Refusing) -> Sequence[BlockedDomains]:
        return state.refusals

    def score(self, state: Refusing, rows: Rows) -> ScoreColumn | None:
        return self.raw

    def normalize_rows(self, state: Refusing, rows: Rows, raw: ScoreColumn) -> ScoreColumn:
        return raw + 1


class Bench:
    def __init__(self, n_nodes: int = 12) -> None:
        self.snapshot = a_snapshot(n_nodes)
        self.plugin = Doors(self.snapshot)
        self.asked = DomainState("asked", self.plugin, (), b"", self.snapshot)
        self.bound = 0

    def rejection(self, *, by_domain: bool) -> DomainRejection:
        return DomainRejection(("rejection", by_domain), self.snapshot, SCALE, self.asked, by_domain=by_domain)

    def bind(self) -> None:
        """What makes plugins count anew."""
        self.bound += 1
        self.snapshot.bind(f"u{self.bound}", a_template(), "n0")

    def open_or_close(self, *doors: tuple[str, str]) -> None:
        self.plugin.closed ^= set(doors)
        self.bind()

    def is_closed(self, row: int) -> bool:
        node = self.snapshot.node(self.snapshot.name_of(row))
        labels = {} if node is None else dict(node.metadata.labels)
        return any((key, labels.get(key, "")) in self.plugin.closed for key in KEYS)

    def closed_rows(self) -> list[int]:
        return [row for row in range(self.snapshot.n_rows) if self.is_closed(row)]


def caps_of(one: DomainRejection) -> TotalColumn | None:
    """Brought up to date."""
    one.refresh(build_nothing)
    return one.column


def build_nothing(kept: object) -> None:
    raise AssertionError("only this process has counters")


@pytest.mark.parametrize("followed", [0, 1, 16])
@pytest.mark.parametrize("seed", range(4))
def test_caps_are_what_asking_about_every_row_gives(seed: int, followed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_state, "FEW", followed)
    random, bench = Random(seed), Bench()
    snapshot = bench.snapshot
    kinds = [bench.rejection(by_domain=True), bench.rejection(by_domain=False)]
    before: list[tuple[int, TotalColumn]] = [(-1, np.zeros(0, np.int16))] * 2
    n_followed = 0
    doors = [(key, value) for key, values in (("zone", ("x", "y", "z", "")), ("rank", ("0", "1", "2", "3"))) for value in values]
    for step in range(150):
        match random.randrange(8):
            case 0 | 1 | 2:
                bench.open_or_close(*random.sample(doors, random.choice((1, 1, 2, 4))))
            case 3:
                labels = {"zone": random.choice("xyz"), "rank": str(random.randrange(4))}
                if random.random() < 0.3:
                    del labels["zone"]
                snapshot.add_node(a_node(f"n{random.randrange(16)}", labels=labels))
            case 4:
                snapshot.remove_node(f"n{random.randrange(1, 16)}")
            case 5:
                bench.plugin.closed.clear()
                bench.bind()
            case 6:
                bench.bind()
        closed = bench.closed_rows()
        for place, one in enumerate(kinds):
            what = f"seed {seed}, step {step}, by domain: {not place}"
            caps = caps_of(one)
            n_rows = snapshot.n_rows
            found = [] if caps is None else (caps[:n_rows] != SCALE.open).nonzero()[0].tolist()
            alive = snapshot.alive.tolist()
            assert [row for row in found if alive[row]] == [row for row in closed if alive[row]], what
            if caps is not None:
                assert set(caps[found].tolist()) <= {SCALE.infeasible}, what
            now = np.full(n_rows, SCALE.open) if caps is None else caps[:n_rows].copy()
            version, earlier = before[place]
            changed = one.changed_since(version)
            if changed is not None and len(earlier) == n_rows:
                n_followed += 1
                assert set((now != earlier).nonzero()[0].tolist()) <= set(changed), what
            before[place] = one.version, now
        codes = kinds[0].codes
        assert codes is not None and [row for row in codes.nonzero()[0].tolist() if snapshot.alive[row]] == [
            row for row in closed if snapshot.alive[row]
        ]
    assert n_followed > 200


def test_while_nothing_changes_nobody_is_asked_and_no_version_grows() -> None:
    bench = Bench()
    plugin, kinds = bench.plugin, [bench.rejection(by_domain=True), bench.rejection(by_domain=False)]
    assert [caps_of(one) for one in kinds] == [None, None]
    bench.open_or_close(("zone", "x"))
    for one in kinds:
        caps_of(one)
    versions, counted, filtered = [one.version for one in kinds], plugin.n_counted, plugin.n_filtered
    for _ in range(3):
        assert all(caps_of(one) is not None and one.codes is not None for one in kinds)
    assert plugin.n_counted == counted and plugin.n_filtered == filtered + 1, "codes of the first kind, once"
    bench.bind()
    assert all(caps_of(one) is not None for one in kinds)
    assert plugin.n_counted == counted + 1 and plugin.n_filtered == filtered + 1, "it counts anew, with the same verdict"
    assert [one.version for one in kinds] == versions
    bench.open_or_close(("zone", "x"))
    assert [caps_of(one) for one in kinds] == [None, None]
    assert all(one.version > version for one, version in zip(kinds, versions, strict=True))


def test_only_rows_of_domains_that_changed_are_written_over() -> None:
    bench = Bench()
    one = bench.rejection(by_domain=True)
    bench.open_or_close(("zone", "x"))
    caps = caps_of(one)
    assert caps is not None and one.n_bytes == caps.nbytes == bench.snapshot.capacity * 2
    for door in (("zone", "y"), ("rank", "2"), ("rank", "2"), ("zone", "y")):
        bench.open_or_close(door)
        assert caps_of(one) is caps, "the same array"
        assert (caps[:12] != SCALE.open).nonzero()[0].tolist() == bench.closed_rows()


def test_codes_and_caps_count_among_its_bytes() -> None:
    bench = Bench()
    one = bench.rejection(by_domain=False)
    assert one.n_bytes == 0
    bench.open_or_close(("zone", "x"))
    codes, caps = one.codes, caps_of(one)
    assert codes is not None and caps is not None
    assert one.n_bytes == codes.nbytes + caps.nbytes


def test_a_plugin_counts_anew_only_where_something_changed_that_it_goes_by() -> None:
    bench = Bench()
    asked, plugin = bench.asked, bench.plugin
    assert asked.n_bytes == 0
    first = asked.state
    assert asked.state is first and plugin.n_counted == 1 and asked.n_bytes == 24
    bench.bind()
    assert asked.state is first and plugin.n_counted == 2
    bench.snapshot.update_node(a_node("n3", {"cpu": "9"}, labels={"rank": "3", "zone": "y"}))
    assert asked.state is first and plugin.n_counted == 2, "it reads no amounts"
    bench.snapshot.update_node(a_node("n3", {"cpu": "9"}, labels={"rank": "1", "zone": "y"}))
    assert asked.state is first and plugin.n_counted == 3
    bench.snapshot.remove_node("n3")
    assert asked.state is first and plugin.n_counted == 4


def test_the_version_grows_where_the_filter_may_say_something_else() -> None:
    bench = Bench()
    asked, plugin = bench.asked, bench.plugin
    seen = [asked.filter_version]

    def grew() -> bool:
        seen.append(asked.filter_version)
        return seen[-1] > seen[-2]

    assert not grew()
    bench.bind()
    assert not grew(), "the same verdict"
    bench.open_or_close(("zone", "x"))
    assert grew() and not grew()
    bench.snapshot.update_node(a_node("n3", labels={"rank": "0", "zone": "x"}))
    assert grew() and not grew(), "other rows are in the domains"
    plugin.now = Refusing([BlockedDomains(bench.snapshot.topology(key)) for key in KEYS])
    bench.bind()
    assert grew() and not grew(), "another answer's verdicts have nothing to do with the last one's"


def test_it_is_silent_only_where_that_is_known_of_the_cluster_as_it_is() -> None:
    bench = Bench()
    asked, plugin = bench.asked, bench.plugin
    plugin.now.adds_nothing = True
    assert not asked.is_silent(), "nobody has counted yet"
    assert asked.state and asked.is_silent() and asked.is_silent()
    bench.bind()
    assert not asked.is_silent(), "it may say something now"
    plugin.now.adds_nothing = False
    assert asked.state and not asked.is_silent()
    plugin.now.adds_nothing = True
    bench.snapshot.update_node(a_node("n3", labels={"rank": "0", "zone": "x"}))
    assert not asked.is_silent()
    assert asked.state and asked.is_silent()


def test_scores_are_those_of_exactly_the_rows_that_are_asked_about() -> None:
    bench = Bench()
    rows = Rows(bench.snapshot, np.array([1, 4, 5], np.intp))
    bench.plugin.raw = np.array([0, 99, 3], np.int64)
    found = score_counted(bench.asked, rows)
    assert found is not None and [column.tolist() for column in found] == [[0, 99, 3], [1, 100, 4]]
    bench.plugin.raw = None
    assert score_counted(bench.asked, rows) is None
    for raw, outside in (([0, 100, 3], 101), ([0, -2, -3], -1), ([7, 200, -9], 201)):
        bench.plugin.raw = np.array(raw, np.int64)
        with pytest.raises(PluginError, match=rf"NormalizeScore: score {outside} lies outside 0\.\.100"):
            score_counted(bench.asked, rows)
    bench.plugin.raw = np.zeros(0, np.int64)
    nothing = score_counted(bench.asked, Rows(bench.snapshot, np.zeros(0, np.intp)))
    assert nothing is not None and not len(nothing[1])
