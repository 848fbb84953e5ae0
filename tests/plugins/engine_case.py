"""A small cluster and what the engine with the default profile makes of a pod in it."""

from __future__ import annotations

from typing import Any

from rayched.configuration.configuration import Configuration, PluginConfig, PluginSet, ProfileConfiguration
from rayched.configuration.profile_building import build_profiles
from rayched.engine.engine import Engine
from rayched.framework.extension_points import ExtensionPoint
from rayched.framework.profile import Profile
from rayched.framework.status import Code
from rayched.plugins.in_tree import IN_TREE
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from tests.plugins.builders import NodeBuilder, PodBuilder


def profile(no_score: tuple[str, ...] = (), **args: Any) -> Profile:
    """The default profile with arguments for some plugins, and some of them switched off for Score alone."""
    config = tuple(PluginConfig(name, value) for name, value in args.items())
    plugins = {ExtensionPoint.SCORE: PluginSet(disabled=no_score)}
    built = build_profiles(Configuration(profiles=(ProfileConfiguration(plugins=plugins, plugin_config=config),)), IN_TREE)
    assert not built.errors
    return built.profiles["default-scheduler"]


class Case:
    """Nodes, bound pods, a pod: what the engine makes of it."""

    def __init__(self, *nodes: NodeBuilder, **args: Any) -> None:
        self.snapshot, self.templates = Snapshot(), TemplateTable()
        for node in nodes:
            self.snapshot.add_node(node.node)
        self.engine = Engine(self.snapshot, profile(**args))

    def bind(self, pod: PodBuilder, node: str) -> Case:
        self.snapshot.bind(f"u{self.snapshot.n_pods}", self.templates.intern(pod.pod), node)
        return self

    def feasible(self, pod: PodBuilder) -> list[str]:
        columns = self.engine.evaluate(self._template(pod)).feasible
        return [self.snapshot.name_of(row) for row in columns.nonzero()[0].tolist()]

    def message(self, pod: PodBuilder) -> str:
        return self.engine.diagnose(self._template(pod)).message()

    def code(self, pod: PodBuilder, node: str) -> Code:
        return Code(int(self.engine.diagnose(self._template(pod)).codes[self.snapshot.rows_by_name[node]]))

    def best(self, pod: PodBuilder) -> list[str]:
        return [self.snapshot.name_of(row) for row in self.engine.evaluate(self._template(pod)).best_rows.tolist()]

    def scores(self, pod: PodBuilder, plugin: str) -> dict[str, tuple[int, int]]:
        """Node to (raw, weighted) of one plugin."""
        rows = self.engine.explain(self._template(pod)).rows
        (column,) = [found for found in rows.scores if found.plugin == plugin]
        assert column.raw is not None and column.weighted is not None
        names = [self.snapshot.name_of(row) for row in rows.index.tolist()]
        return dict(zip(names, zip(column.raw.tolist(), column.weighted.tolist(), strict=True), strict=True))

    def _template(self, pod: PodBuilder) -> Any:
        return self.templates.intern(pod.pod, with_node_name=True)
