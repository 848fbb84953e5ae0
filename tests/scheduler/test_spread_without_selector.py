"""A spread constraint that has keys of labels and no selector, as an older store may hold one, counts no pod."""

from __future__ import annotations

from tests.core.builders import a_node, a_pod
from tests.scheduler.test_nominations import Bench


def test_match_label_keys_without_a_selector_count_no_pod() -> None:
    bench = Bench()
    for name in ("n1", "n2"):
        node = a_node(name)
        node.metadata.labels["kubernetes.io/hostname"] = name
        bench.snapshot.add_node(node)
    bench.snapshot.bind("other", bench.templates.intern(a_pod("other", labels={"rev": "1"})), "n1")
    pod = a_pod("web", labels={"rev": "1"})
    pod.spec.topology_spread_constraints.add(
        max_skew=1, topology_key="kubernetes.io/hostname", when_unsatisfiable="DoNotSchedule", match_label_keys=["rev"]
    )
    template = bench.templates.intern(pod)
    engine = bench.scheduler.engine("default-scheduler")
    assert engine.evaluate(template).feasible.tolist() == [True, True]
