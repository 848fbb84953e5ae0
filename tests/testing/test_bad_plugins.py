"""A bad plugin of a user in a real cluster: it costs the attempts that meet it and is named; nothing else stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rayched.testing import RunningCluster, a_node, a_pod
from rayched.v1.core_pb2 import Event
from tests.replica.clusters import until_true
from tests.testing.bad_plugins import Column, Contrary, Late, Simple

pytestmark = pytest.mark.cluster

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{name: Column}, {name: Simple}, {name: Late}]
  pluginTimeBudgets:
  - {name: Column, perCycle: 200ms}
  - {name: Late, perCycle: 200ms, whenExceeded: Skip}
- schedulerName: shadowed-scheduler
  shadowPlugins: [{name: Contrary}]
"""
PLUGINS = {"Contrary": Contrary, "Column": Column, "Simple": Simple, "Late": Late}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    nodes = [a_node("a"), a_node("b")]
    with RunningCluster(nodes, plugins=PLUGINS, config=CONFIG, directory=tmp_path_factory.mktemp("bad"), workers=1) as found:
        yield found


@pytest.mark.row("K6.3", "K6.4")
def test_every_way_to_break_the_contract_costs_the_pods_that_meet_it_and_no_other(cluster: RunningCluster) -> None:
    expected = {
        "raises": 'plugin "Column", Score: RuntimeError: no idea what to do',
        "shape": 'plugin "Column", Score: answered an array of shape (3,) and type int64, expected an array of 2 integers',
        "range": 'plugin "Column", Score: score 1000 lies outside 0..100',
        "simple": "plugin \"Simple\", Filter: KeyError: 'a'",
        "sleeps": 'plugin "Column": took ',
    }
    before = cluster.client.scheduler_status()
    bad = [a_pod(f"bad-{what}", labels={"wants": what}) for what in expected]
    good = [a_pod(f"good-{number}") for number in range(20)]
    placed = cluster.place(*bad[:2], *good, *bad[2:])
    for what, reason in expected.items():
        placed.assert_pending(f"bad-{what}", reason)
    assert len(placed.nodes) == len(good)
    # The same processes and the same epoch: nobody was restarted over it.
    after = cluster.client.scheduler_status()
    assert (after.epoch, dict(after.pids)) == (before.epoch, dict(before.pids))
    # The queue hears a moment later that attempts have ended well.
    held = {f"bad-{what}" for what in expected}
    until_true(
        lambda: {pod.name for pod in cluster.client.queue().pods} == held, 5.0, "the queue has not those that are held alone"
    )
    # One that is mended is placed.
    cluster.client.label("pod", "bad-raises", add={"wants": "nothing"}, overwrite=True)
    assert cluster.client.wait_bound("bad-raises")[0].spec.node_name in ("a", "b")


def test_a_plugin_that_may_be_skipped_has_no_say_when_it_is_late(cluster: RunningCluster) -> None:
    # It rejects every node for both; for one of them after its time is over.
    placed = cluster.place(a_pod("late", labels={"wants": "late"}), a_pod("refused", labels={"wants": "refused"}))
    placed.assert_pending("refused", "node(s) were rejected by Late")
    placed.assert_on("late", "a", "b")


def test_a_shadow_plugin_has_no_say_and_what_it_would_decide_is_told_in_events(cluster: RunningCluster) -> None:
    pods = [
        a_pod(f"shadowed-{what}", labels={"wants": what}, scheduler_name="shadowed-scheduler") for what in ("nothing", "raises")
    ]
    placed = cluster.place(*pods)
    assert len(placed.nodes) == 2
    told: dict[str, str] = {}
    with cluster.client.watch("events", timeout_seconds=20) as events:
        for event in events:
            if isinstance(event.object, Event) and event.object.reason == "ShadowDecision":
                told[event.object.involved_object.name] = event.object.message
            if len(told) == 2:
                break
    assert told == {
        "shadowed-nothing": "With Contrary the pod would be pending: 0/2 nodes are available: 2 node(s) were not to my liking.",
        "shadowed-raises": (
            'Contrary failed beside the decision: plugin "Contrary", Filter: RuntimeError: no opinion (about node a)'
        ),
    }
