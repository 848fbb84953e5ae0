"""Profiles built from configurations: default plugins, MultiPoint, precedence and order, weights, plugins made from arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from rayched.configuration.configuration import (
    Configuration,
    PluginConfig,
    PluginReference,
    PluginSet,
    ProfileConfiguration,
    validate,
)
from rayched.configuration.profile_building import BuiltProfiles, build_profiles, default_profile
from rayched.framework import names
from rayched.framework.extension_points import ExtensionPoint
from rayched.framework.plugin import Plugin
from rayched.framework.profile import Profile
from rayched.framework.registry import Registry
from rayched.framework.status import SUCCESS, Status
from rayched.plugins.in_tree import IN_TREE
from rayched.snapshot.columns import Log

FILTER, SCORE, MULTI = ExtensionPoint.FILTER, ExtensionPoint.SCORE, ExtensionPoint.MULTI_POINT


class _Made:
    """A plugin of a user's, with the arguments it was made from."""

    reads = Log.LABELS

    def __init__(self, name: str, args: Any) -> None:
        self.name, self.args = name, args

    def key(self, pod: Any) -> None:
        return None

    def prepare(self, pod: Any) -> None:
        return None


class FilterAndScore(_Made):
    def filter(self, state: Any, rows: Any) -> None:
        return None

    def reasons(self, state: Any, rows: Any, codes: Any) -> Sequence[Any]:
        return ()

    def score(self, state: Any, rows: Any) -> None:
        return None


class ReserveAndBind(_Made):
    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        return None

    def bind(self, state: Any, pod: Any, node_name: str) -> Status:
        return SUCCESS


def _broken(args: Any) -> Plugin:
    raise ValueError("no such host")


REGISTRY: Registry = {
    **IN_TREE,
    "Mine": lambda args: FilterAndScore("Mine", args),
    "Other": lambda args: FilterAndScore("Other", args),
    "Volumes": lambda args: ReserveAndBind("Volumes", args),
    "Broken": _broken,
}


def enabled(*references: str | tuple[str, int], disabled: Sequence[str] = ()) -> PluginSet:
    return PluginSet(
        tuple(PluginReference(r) if isinstance(r, str) else PluginReference(*r) for r in references), tuple(disabled)
    )


def built(*args: PluginConfig, **plugins: PluginSet) -> BuiltProfiles:
    said = ProfileConfiguration(plugins={ExtensionPoint[name]: found for name, found in plugins.items()}, plugin_config=args)
    return build_profiles(Configuration(profiles=(said,)), REGISTRY)


def profile(*args: PluginConfig, **plugins: PluginSet) -> Profile:
    found = built(*args, **plugins)
    assert not found.errors, found.errors
    return found.profiles["default-scheduler"]


def names_of(plugins: Sequence[Plugin]) -> list[str]:
    return [plugin.name for plugin in plugins]


DEFAULT_FILTERS = [
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
]
DEFAULT_SCORES = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
FILTERS = [name for name in DEFAULT_FILTERS if name in IN_TREE]
SCORES = [name for name in DEFAULT_SCORES if name in IN_TREE]


def test_the_default_profile_has_the_plugins_of_kube_scheduler_in_its_order_with_its_weights() -> None:
    found = default_profile(IN_TREE)
    assert names_of(found.pre_enqueue)[0] == "SchedulingGates"
    assert found.queue_sort.name == "PrioritySort"
    assert names_of(found.filter) == FILTERS
    assert found.weights == {name: DEFAULT_SCORES[name] for name in SCORES}
    assert list(found.weights) == names_of(found.score)
    assert names_of(found.bind) == ["DefaultBinder"]
    assert found.percentage_of_nodes_to_score == 100


@pytest.mark.row("F12")
@pytest.mark.parametrize("name", sorted({*FILTERS, *SCORES, "SchedulingGates"}))
def test_each_native_plugin_can_be_disabled(name: str) -> None:
    found = profile(MULTI_POINT=enabled(disabled=[name]))
    assert name not in names_of(list(found.plugins()))
    assert names_of(found.filter) == [one for one in FILTERS if one != name]
    assert names_of(found.score) == [one for one in SCORES if one != name]


@pytest.mark.row("K6.9", "F3")
@pytest.mark.parametrize(
    ("plugins", "filters", "scores"),
    [
        ({}, FILTERS, SCORES),
        # Through MultiPoint a plugin joins every extension point that it has methods for, after the default plugins.
        ({"MULTI_POINT": enabled("Mine")}, [*FILTERS, "Mine"], [*SCORES, "Mine"]),
        # At one extension point only that one.
        ({"FILTER": enabled("Mine")}, [*FILTERS, "Mine"], SCORES),
        # Enabled at both: what stands at the extension point comes first there.
        ({"MULTI_POINT": enabled("Mine"), "SCORE": enabled("Mine")}, [*FILTERS, "Mine"], ["Mine", *SCORES]),
        # A default plugin named at an extension point moves to the front there.
        ({"FILTER": enabled("NodePorts")}, ["NodePorts", *(f for f in FILTERS if f != "NodePorts")], SCORES),
        # The order of those moved is the one given.
        (
            {"SCORE": enabled("ImageLocality", "Mine", "TaintToleration")},
            FILTERS,
            ["ImageLocality", "TaintToleration", *(s for s in SCORES if s not in ("ImageLocality", "TaintToleration")), "Mine"],
        ),
        ({"SCORE": enabled(disabled=["*"])}, FILTERS, []),
        ({"SCORE": enabled("Mine", "NodeAffinity", disabled=["*"])}, FILTERS, ["Mine", "NodeAffinity"]),
        (
            {"FILTER": enabled(disabled=["NodeName", "NodePorts"])},
            [f for f in FILTERS if f not in ("NodeName", "NodePorts")],
            SCORES,
        ),
        (
            {"MULTI_POINT": enabled(disabled=["NodeAffinity"])},
            [f for f in FILTERS if f != "NodeAffinity"],
            [s for s in SCORES if s != "NodeAffinity"],
        ),
        # Disabled through MultiPoint, still enabled at the extension point.
        (
            {"MULTI_POINT": enabled(disabled=["NodeAffinity"]), "SCORE": enabled("NodeAffinity")},
            [f for f in FILTERS if f != "NodeAffinity"],
            [*(s for s in SCORES if s != "NodeAffinity"), "NodeAffinity"],
        ),
        # Disabled and enabled at the same place: enabled, after the rest.
        (
            {"MULTI_POINT": enabled("NodeName", disabled=["NodeName"])},
            [*(f for f in FILTERS if f != "NodeName"), "NodeName"],
            SCORES,
        ),
        (
            {"FILTER": enabled("NodeName", disabled=["NodeName"])},
            [*(f for f in FILTERS if f != "NodeName"), "NodeName"],
            SCORES,
        ),
        (
            {"MULTI_POINT": enabled("PrioritySort", "DefaultBinder", "Mine", disabled=["*"])},
            ["Mine"],
            ["Mine"],
        ),
        # Re-weighting a default plugin leaves it in its place.
        ({"MULTI_POINT": enabled(("NodeAffinity", 7))}, FILTERS, SCORES),
    ],
)
def test_order_and_precedence_of_multi_point_and_extension_points(
    plugins: dict[str, PluginSet], filters: list[str], scores: list[str]
) -> None:
    found = profile(**plugins)
    assert names_of(found.filter) == filters
    assert names_of(found.score) == scores


@pytest.mark.row("K6.4")
@pytest.mark.parametrize(
    ("plugins", "weights"),
    [
        ({}, {"TaintToleration": 3, "NodeAffinity": 2}),
        ({"MULTI_POINT": enabled(("TaintToleration", 9))}, {"TaintToleration": 9, "NodeAffinity": 2}),
        ({"SCORE": enabled(("TaintToleration", 9))}, {"TaintToleration": 9}),
        ({"SCORE": enabled("TaintToleration")}, {"TaintToleration": 1}),
        ({"MULTI_POINT": enabled(("Mine", 4)), "SCORE": enabled(("Mine", 5))}, {"Mine": 5}),
        ({"MULTI_POINT": enabled(("Mine", 4))}, {"Mine": 4}),
        ({"MULTI_POINT": enabled("Mine")}, {"Mine": 1}),
    ],
)
def test_weights_of_an_extension_point_beat_those_of_multi_point(plugins: dict[str, PluginSet], weights: dict[str, int]) -> None:
    found = profile(**plugins).weights
    assert {name: found[name] for name in weights} == weights


def test_a_plugin_of_several_extension_points_is_one_object() -> None:
    found = profile(MULTI_POINT=enabled("Mine", "Volumes"))
    assert id(found.filter[-1]) == id(found.score[-1])
    assert id(found.reserve[0]) == id(found.bind[1])
    assert names_of(found.bind) == ["DefaultBinder", "Volumes"]
    assert len(list(found.plugins())) == len({plugin.name for plugin in found.plugins()})


def test_arguments_reach_the_plugin_they_are_for() -> None:
    found = profile(PluginConfig("Mine", {"a": [1]}), MULTI_POINT=enabled("Mine", "Other"))
    mine, other = found.filter[-2:]
    assert isinstance(mine, FilterAndScore) and mine.args == {"a": [1]}
    assert isinstance(other, FilterAndScore) and other.args is None


@pytest.mark.parametrize(
    ("plugins", "path", "message"),
    [
        ({"FILTER": enabled("PrioritySort")}, "plugins.filter.enabled[0].name", "is no Filter plugin"),
        ({"FILTER": enabled("Mine", "Mine")}, "plugins.filter.enabled[1].name", "is enabled twice"),
        ({"MULTI_POINT": enabled("Mine", "Mine")}, "plugins.multiPoint", "is enabled twice"),
        ({"FILTER": enabled("Nobody")}, "plugins.filter.enabled[0].name", "is no plugin that is installed"),
        ({"FILTER": enabled("Mien")}, "plugins.filter.enabled[0].name", '; did you mean "Mine"?'),
        ({"FILTER": enabled(disabled=["Nobody"])}, "plugins.filter.disabled[0].name", "is no plugin that is installed"),
        ({"MULTI_POINT": enabled("Broken")}, "plugins", 'plugin "Broken" cannot be made: ValueError: no such host'),
        ({"BIND": enabled(disabled=["DefaultBinder"])}, "plugins.bind", "at least one Bind plugin"),
        ({"QUEUE_SORT": enabled(disabled=["*"])}, "plugins.queueSort", "exactly one QueueSort plugin is needed, found none"),
    ],
)
def test_what_cannot_be_built_is_an_error_with_its_path(plugins: dict[str, PluginSet], path: str, message: str) -> None:
    found = built(**plugins)
    assert not found.profiles
    assert [error for error in found.errors if error.path == f"profiles[0].{path}" and message in error.message], found.errors


def test_a_plugin_that_refuses_its_arguments_is_named_at_their_place() -> None:
    found = built(PluginConfig("Other"), PluginConfig("Broken", 1), MULTI_POINT=enabled("Broken"))
    assert [error.path for error in found.errors] == ["profiles[0].pluginConfig[1].args"]


def test_a_plugin_that_breaks_while_it_is_made_is_told_with_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(args: Any) -> Any:
        return {}["nothing"]

    monkeypatch.setitem(REGISTRY, "Faulty", faulty)
    (error,) = built(MULTI_POINT=enabled("Faulty")).errors
    assert re.search(r"KeyError: 'nothing' \(test_configuration_profiles\.py, line \d+\)$", error.message)


@pytest.mark.row("K1.5", "K6.9")
def test_profiles_differ_in_plugins_but_not_in_queue_sort() -> None:
    one = ProfileConfiguration("one")
    two = ProfileConfiguration(
        "two", percentage_of_nodes_to_score=10, plugins={SCORE: enabled(disabled=["*"]), FILTER: enabled(disabled=["NodePorts"])}
    )
    configuration = Configuration(profiles=(one, two), percentage_of_nodes_to_score=40)
    assert validate(configuration) == []
    found = build_profiles(configuration, REGISTRY).profiles
    assert (found["one"].percentage_of_nodes_to_score, found["two"].percentage_of_nodes_to_score) == (40, 10)
    assert names_of(found["one"].score) == SCORES and found["two"].score == ()
    sorts_otherwise = ProfileConfiguration("three", plugins={ExtensionPoint.QUEUE_SORT: enabled(names.PRIORITY_SORT)})
    errors = validate(Configuration(profiles=(one, sorts_otherwise)))
    assert [error.path for error in errors] == ["profiles[1].plugins.queueSort"]


def test_kubernetes_plugins_that_are_not_there_are_left_out_with_a_warning() -> None:
    found = built(PluginConfig("VolumeBinding", {}), MULTI_POINT=enabled("VolumeZone", disabled=["VolumeRestrictions"]))
    assert found.profiles
    assert [warning.path for warning in found.warnings] == [
        "profiles[0].plugins.multiPoint.enabled[0].name",
        "profiles[0].pluginConfig[0].name",
    ]
