"""Both forms of the plugin, over the scheduler itself; nothing has to run."""

from __future__ import annotations

from pathlib import Path

import pytest
from rayched_label_weight.label_weight import LabelWeight
from rayched_label_weight.simple_label_weight import SimpleLabelWeight

from rayched.testing import InProcessCluster, a_node, a_pod

CONFIG = (Path(__file__).parents[1] / "config.yaml").read_text()
PLUGINS = {"LabelWeight": LabelWeight, "SimpleLabelWeight": SimpleLabelWeight}
NODES = [
    a_node("plain"),
    a_node("fast", labels={"disktype": "ssd"}),
    a_node("gold", labels={"tier": "gold"}, cpu="2"),
    a_node("best", labels={"tier": "gold", "disktype": "ssd"}, cpu="1"),
]


def test_pods_go_where_the_labels_weigh_most_until_it_is_full() -> None:
    cluster = InProcessCluster(NODES, plugins=PLUGINS, config=CONFIG)
    placed = cluster.place(*(a_pod(f"pod-{number}", cpu="1") for number in range(4)))
    placed.assert_on("pod-0", "best")
    placed.assert_on("pod-1", "gold")
    placed.assert_on("pod-2", "gold")
    placed.assert_on("pod-3", "fast")


def test_both_forms_give_the_same_scores() -> None:
    cluster = InProcessCluster(NODES, plugins=PLUGINS, config=CONFIG)
    expected = {"plain": 0, "fast": 25, "gold": 75, "best": 100}
    assert cluster.scores(a_pod(), "LabelWeight") == expected
    assert cluster.scores(a_pod(scheduler_name="simple-scheduler"), "SimpleLabelWeight") == expected


@pytest.mark.parametrize("args", [None, {}, {"weights": {"tier": 3}}, {"weights": {"tier=gold": 0}}, {"weights": {"a=b": True}}])
@pytest.mark.parametrize("plugin", [LabelWeight, SimpleLabelWeight])
def test_arguments_that_make_no_sense_are_refused(plugin: type, args: object) -> None:
    with pytest.raises(ValueError, match="weights"):
        plugin(args)
