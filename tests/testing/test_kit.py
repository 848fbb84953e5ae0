"""The test kit: builders, the cluster in the process, assertions that say why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayched.api.defaulting import default
from rayched.api.validation import validate
from rayched.configuration.configuration_file import ConfigurationErrors
from rayched.framework.simple_plugin import NodeView
from rayched.replica.cluster.local_cluster import ReplicaFailed
from rayched.replica.cluster.local_start import NotUpInTime
from rayched.testing import InProcessCluster, Placements, RunningCluster, a_node, a_pod
from rayched.testing.plugins import python_path_with
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PriorityClass


class OnlyQuiet:
    """A plugin of one method, as a user would write it in a test."""

    def __init__(self, args: Any) -> None:
        self.args = args

    def filter_node(self, pod: Pod, node: NodeView) -> bool | str:
        return node.metadata.labels.get("noise") == "low" or "node(s) were too loud"


NODES = [a_node("loud", cpu="64"), a_node("quiet", cpu="1", labels={"noise": "low"})]


def test_builders_make_what_the_api_accepts() -> None:
    node = a_node("n", zone="a", taints=["dedicated=db:NoSchedule", "gone:NoExecute"], **{"intel.com/foo": "2"})
    assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints] == [
        ("dedicated", "db", "NoSchedule"),
        ("gone", "", "NoExecute"),
    ]
    assert node.status.allocatable["intel.com/foo"].string == "2"
    pod = a_pod("p", memory="1Gi", node_selector={"a": "b"}, tolerates=["dedicated"], priority_class="", **{"intel.com/foo": "1"})
    pod.spec.containers[0].resources.limits["intel.com/foo"].string = "1"
    for item in (node, pod):
        default(item)
        assert not validate(item)
    with pytest.raises(ValueError, match="want key=value:effect"):
        a_node("n", taints=["dedicated"])


def test_a_plugin_of_a_test_decides_in_the_process_beside_the_default_ones() -> None:
    cluster = InProcessCluster(NODES, plugins={"OnlyQuiet": OnlyQuiet})
    placed = cluster.place(a_pod("one", cpu="800m"), a_pod("two", cpu="800m"))
    placed.assert_on("one", "quiet")
    placed.assert_not_on("one", "loud")
    placed.assert_pending("two", "node(s) were too loud")
    placed.assert_pending("two", "Insufficient cpu")
    assert cluster.rejections(a_pod(), "OnlyQuiet") == {"loud": ("node(s) were too loud",)}
    assert placed.per_node() == {"quiet": 1}


def test_what_is_pending_is_tried_again_and_classes_count() -> None:
    urgent = PriorityClass(value=1000)
    urgent.metadata.name = "urgent"
    cluster = InProcessCluster([a_node("n", cpu="1"), urgent, a_pod("old", cpu="900m", node_name="n")])
    cluster.place(a_pod("web", cpu="500m")).assert_pending("web", "Insufficient cpu")
    placed = cluster.place(a_pod("now", cpu="500m", priority_class="urgent"))
    placed.assert_on("now", "n")
    placed.assert_on("web", "n")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lambda found: found.assert_on("web", "b", "c"), "pod default/web is on a, expected b or c"),
        (lambda found: found.assert_not_on("web", "a"), "pod default/web is on a, expected any other node"),
        (lambda found: found.assert_on("db", "a"), "pod default/db has no node: full"),
        (lambda found: found.assert_pending("web"), "pod default/web is on a, expected it to be pending"),
        (lambda found: found.assert_pending("db", "taint"), "pod default/db is pending, but not because of 'taint': full"),
        (lambda found: found.node_of("x/y"), "pod x/y is not among the pods that were placed: default/web, default/db"),
    ],
)
def test_an_assertion_that_fails_says_what_was_found(check: Any, text: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check(Placements({"default/web": "a"}, {"default/db": "full"}))
    assert str(caught.value) == text


def test_mistakes_are_told_before_anything_is_placed(tmp_path: Any) -> None:
    with pytest.raises(ConfigurationErrors, match="Nobody"):
        config = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        InProcessCluster(NODES, config=config + "- plugins: {score: {enabled: [{name: Nobody}]}}\n")
    with pytest.raises(ValueError, match=r"pod Web: metadata\.name"):
        InProcessCluster(NODES).place(a_pod("Web"))

    class Local:
        pass

    with pytest.raises(ValueError, match="need it at the top of a module"):
        python_path_with({"Local": lambda args: Local()}, tmp_path)


@pytest.mark.cluster
def test_a_real_cluster_that_is_not_up_in_time_says_what_it_waited_for_and_leaves_nothing_behind() -> None:
    cluster = RunningCluster(start_seconds_max=0.2)
    with pytest.raises(NotUpInTime) as failed, cluster:
        pass
    said = str(failed.value)
    assert f"not ready yet ({cluster.addresses[0]})" in said and "start_seconds_max gives more time" in said
    assert "replica-0.log ends with:" in said
    assert not cluster.directory.exists() and not any(replica.running for replica in cluster.local.replicas)


class Unmade:
    """A plugin whose constructor breaks."""

    def __init__(self, args: Any) -> None:
        {}["no such host"]

    def filter_node(self, pod: Pod, node: NodeView) -> bool:
        return True


@pytest.mark.cluster
def test_a_plugin_that_cannot_be_made_is_a_line_for_who_starts_the_replica_and_a_traceback_in_its_log(tmp_path: Path) -> None:
    with pytest.raises(ReplicaFailed), RunningCluster(plugins={"Unmade": Unmade}, directory=tmp_path):
        pass
    log = (tmp_path / "cluster" / "replica-0.log").read_text().splitlines()
    (told,) = [line for line in log if line.startswith("error: ")]
    assert "plugin \"Unmade\" cannot be made: KeyError: 'no such host' (test_kit.py, line " in told
    assert any("a plugin cannot be made" in line for line in log)
    # Lines of a record after its first one are indented.
    assert "    Traceback (most recent call last):" in log and '        {}["no such host"]' in log
