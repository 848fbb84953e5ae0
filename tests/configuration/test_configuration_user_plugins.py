"""Plugins of users: found by entry points, merged into the registry, simple ones lifted to rows."""

from __future__ import annotations

import sys
import types
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import numpy as np
import pytest

from rayched.actors.entry_points import ENTRY_POINT_GROUP, load_entry_points, registry_of
from rayched.configuration.configuration_file import ConfigurationErrors, load
from rayched.engine.engine import Engine
from rayched.framework.plugin import FilterPlugin, ScorePlugin
from rayched.framework.plugin_error import PluginError
from rayched.framework.registry import RegistryError, merge
from rayched.framework.simple_plugin import NodeView, lift, nodes_of
from rayched.plugins.in_tree import IN_TREE
from rayched.snapshot.columns import Log
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.v1.core_pb2 import Node, Pod
from tests.plugins.clusters import World


class GpuModel:
    """Fits where the label says so, prefers nodes with much free memory."""

    def __init__(self, args: Any) -> None:
        self.model = (args or {}).get("model", "a100")

    def filter_node(self, pod: Pod, node: NodeView) -> bool | str:
        found = node.metadata.labels.get("gpu")
        if found is None:
            return False
        return found == self.model or f"node(s) had no {self.model}"

    def score_node(self, pod: Pod, node: NodeView) -> int:
        return min(100, (node.allocatable["memory"] - node.requested["memory"]) >> 30)


class Greedy:
    reads = Log.LABELS

    def score_node(self, pod: Pod, node: NodeView) -> int:
        return 101


def entry_points(**values: str) -> EntryPoints:
    return EntryPoints(EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in values.items())


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module as an installed package would bring it."""
    made = types.ModuleType("gpu_plugins")
    made.GpuModel, made.not_callable = GpuModel, 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gpu_plugins", made)
    return "gpu_plugins"


def cluster() -> tuple[Snapshot, TemplateTable]:
    snapshot = Snapshot()
    for name, gpu, memory in (("a", "a100", "8Gi"), ("b", "h100", "64Gi"), ("c", "", "64Gi"), ("d", "a100", "32Gi")):
        node = Node()
        node.metadata.name = name
        if gpu:
            node.metadata.labels["gpu"] = gpu
        node.status.allocatable["memory"].string = memory
        node.status.allocatable["cpu"].string = "4"
        node.status.allocatable["pods"].string = "10"
        snapshot.add_node(node)
    return snapshot, TemplateTable()


@pytest.mark.row("K6.9", "F3")
def test_a_simple_plugin_of_a_package_decides_in_a_profile(module: str) -> None:
    registry = merge(IN_TREE, registry_of(entry_points(GpuModel=f"{module}:GpuModel")))
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: GpuModel, weight: 5}]}}
  pluginConfig: [{name: GpuModel, args: {model: h100}}]
- schedulerName: any
  plugins: {multiPoint: {enabled: [{name: GpuModel}]}}
""".replace("- plugins", "- schedulerName: default-scheduler\n  plugins", 1)
    profiles = load(text, "sched.yaml", registry).profiles
    snapshot, templates = cluster()
    template = templates.intern(Pod())
    engine = Engine(snapshot, profiles["default-scheduler"])
    assert engine.evaluate(template).feasible.tolist() == [False, True, False, False]
    assert engine.diagnose(template).reasons == {"node(s) had no h100": 2, "node(s) were rejected by GpuModel": 1}
    other = Engine(snapshot, profiles["any"])
    assert other.evaluate(template).feasible.tolist() == [True, False, False, True]
    assert [snapshot.name_of(int(row)) for row in other.evaluate(template).best_rows] == ["d"]


def test_a_simple_plugin_with_methods_that_nobody_would_call_is_refused(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuModel, "reserve", lambda *_: None, raising=False)
    registry = merge(IN_TREE, registry_of(entry_points(GpuModel=f"{module}:GpuModel")))
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    with pytest.raises(ConfigurationErrors, match=r'plugin "GpuModel": class .*GpuModel: reserve would not be called'):
        load(text + "- plugins: {multiPoint: {enabled: [{name: GpuModel}]}}\n", "sched.yaml", registry)


def test_a_lifted_plugin_has_only_the_methods_of_its_simple_form() -> None:
    both, score_only = lift("GpuModel", GpuModel(None)), lift("Greedy", Greedy())
    assert isinstance(both, FilterPlugin) and isinstance(both, ScorePlugin)
    assert isinstance(score_only, ScorePlugin) and not isinstance(score_only, FilterPlugin)
    assert score_only.reads == Log.LABELS


@pytest.mark.row("K6.4")
def test_a_score_outside_the_range_is_an_error_that_names_plugin_and_node() -> None:
    snapshot, templates = cluster()
    plugin = lift("Greedy", Greedy())
    assert isinstance(plugin, ScorePlugin)
    with pytest.raises(ValueError, match="score_node of Greedy gave 101 for node a; allowed is an int from 0 to 100"):
        plugin.score(plugin.prepare(templates.intern(Pod()).pod), Rows(snapshot, slice(0, 4)))
    registry = merge(IN_TREE, {"Greedy": lambda _: plugin})
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    text += "- plugins: {score: {enabled: [{name: Greedy}]}}\n"
    engine = Engine(snapshot, load(text, "sched.yaml", registry).profiles["default-scheduler"])
    with pytest.raises(PluginError, match="Greedy"):
        engine.evaluate(templates.intern(Pod()))


def test_the_view_of_a_node_tells_what_the_node_object_and_its_pods_tell() -> None:
    world = World(5)
    for _ in range(10):
        world.change()
    rows = Rows(world.snapshot, slice(0, world.snapshot.n_rows))
    everything = Log.LABELS | Log.TAINTS | Log.UNSCHEDULABLE | Log.USAGE
    views = {view.metadata.name: view for view in nodes_of(rows, everything) if view is not None}
    assert views.keys() == world.naive.nodes.keys()
    for name, view in views.items():
        node = world.naive.nodes[name]
        assert view.metadata.labels == node.metadata.labels
        assert list(view.spec.taints) == list(node.spec.taints)
        assert view.spec.unschedulable == node.spec.unschedulable
        assert view.requested["pods"] == sum(where == name for _, where in world.naive.pods.values())
    assert all(not view.metadata.labels and not view.allocatable for view in nodes_of(rows, Log.TAINTS) if view)


def test_free_rows_are_not_shown_to_simple_plugins() -> None:
    snapshot, templates = cluster()
    snapshot.remove_node("b")
    plugin = lift("GpuModel", GpuModel(None))
    assert isinstance(plugin, FilterPlugin) and isinstance(plugin, ScorePlugin)
    pod = templates.intern(Pod()).pod
    rows = Rows(snapshot, np.array([1, 0], np.intp))
    assert plugin.filter(pod, rows).tolist() == [0, 0]  # type: ignore[union-attr]
    assert plugin.score(pod, rows).tolist() == [0, 8]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("gpu_plugins:Missing", "cannot be imported: AttributeError"),
        ("no_such_package:Plugin", "cannot be imported: ModuleNotFoundError"),
        ("gpu_plugins:not_callable", "is no class or function that makes a plugin"),
    ],
)
def test_a_broken_entry_point_is_one_line_that_names_it(module: str, value: str, message: str) -> None:
    with pytest.raises(RegistryError) as caught:
        registry_of(entry_points(Mine=value))
    assert str(caught.value).startswith(f'plugin "Mine" ({value}) ') and message in str(caught.value)


def test_a_name_that_comes_twice_is_refused(module: str) -> None:
    with pytest.raises(RegistryError, match='"NodeName" exists twice'):
        merge(IN_TREE, registry_of(entry_points(NodeName=f"{module}:GpuModel")))
    twice = EntryPoints(EntryPoint("Mine", f"{module}:GpuModel", ENTRY_POINT_GROUP) for _ in range(2))
    with pytest.raises(RegistryError, match="exists twice among the installed packages"):
        registry_of(twice)


def test_the_environment_is_searched_for_entry_points() -> None:
    assert load_entry_points().keys() == {found.name for found in metadata.entry_points(group=ENTRY_POINT_GROUP)}
