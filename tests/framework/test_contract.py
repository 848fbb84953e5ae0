"""A plugin that is none is told so when it is configured, by class and name; and no list of methods is kept by hand."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rayched.framework
from rayched.configuration.configuration_file import ConfigurationErrors, load
from rayched.engine import plugin_calls
from rayched.framework import accelerated, contract, plugin, simple_plugin
from rayched.framework.accelerated import ResourcePlugin, StackingPlugin
from rayched.framework.contract import COLUMN_METHODS, ELSEWHERE, FORMS, METHODS, SIMPLE_METHODS, faults, has_form
from rayched.framework.extension_points import PROTOCOLS, ExtensionPoint
from rayched.framework.plugin import FilterPlugin, PodPart, PreScorePlugin, ReservePlugin, ScorePlugin
from rayched.framework.plugin_args import NodeResourcesFitArgs, PodTopologySpreadArgs
from rayched.framework.registry import merge
from rayched.plugins.in_tree import IN_TREE
from rayched.plugins.node_resources.fit import NodeResourcesFit
from rayched.plugins.pod_topology_spread.plugin import PodTopologySpread
from rayched.queue.hints import default_events, registrations_of
from rayched.snapshot.columns import Log


class Whole:
    """A column plugin as it should be; the cases take something away, or add something."""

    name = "Whole"
    reads = Log.LABELS

    def key(self, pod: Any) -> Any: ...

    def prepare(self, pod: Any) -> Any: ...

    def filter(self, state: Any, rows: Any) -> Any: ...

    def reasons(self, state: Any, rows: Any, codes: Any) -> Any: ...

    def score(self, state: Any, rows: Any) -> Any: ...

    def normalize(self, raw: Any, low: int, high: int) -> Any: ...


def one(*_: Any) -> Any:
    """Takes whatever it is given."""


def of(base: type, *without: str, **more: Any) -> Any:
    """A plugin of a class with other members than `base`."""
    members = {name: value for name, value in vars(base).items() if name not in without and name[0] != "_"}
    return type("Mine", (), {"__module__": "shop", **members, **more})()


class Simple:
    def filter_node(self, pod: Any, node: Any) -> Any: ...


BOTH = PodPart.LABELS_BY_SELECTOR | PodPart.TOLERATIONS_OF_TAINTS
LABELS_BEFORE = (
    "reads_mentioned_labels_alone is read for the last time in this version, write reads_pod = PodPart.LABELS_BY_SELECTOR"
)
COUNTING = {"count": one, "filter": one, "score": one, "normalize_rows": one}


@pytest.mark.parametrize("name", IN_TREE)
def test_every_plugin_of_the_tree_is_as_the_contract_wants_it(name: str) -> None:
    assert faults(IN_TREE[name](None)) == []


@pytest.mark.parametrize("name", IN_TREE)
def test_every_plugin_of_the_tree_names_all_its_forms_where_its_class_is_defined(name: str) -> None:
    """So the type checker proves them: a method that is missing, or of another type, is an error there."""
    made = IN_TREE[name](None)
    forms = [form.protocol for form in FORMS if form.members]
    assert [one for one in forms if isinstance(made, one)] == [one for one in forms if one in type(made).__mro__]


@pytest.mark.parametrize(
    "made",
    [
        of(Whole),
        of(Simple),
        of(Simple, name="Simple", reads=Log.USAGE, score_node=one, groups=["a", "b"]),
        of(Whole, "normalize"),
        of(Whole, "score", "normalize"),
        of(Whole, "filter", "reasons"),
        of(Whole, "normalize", **COUNTING, refusals=one, groups=one, score_groups=one),
        of(Whole, name="Mine", state={}, room_of=one, weights=[1], bound=3, _normalise=one, filtered_out=0, row=one),
        of(Whole, filter=staticmethod(lambda state, rows, extra=None: None)),
        of(Whole, filter=np.add),
    ],
)
def test_a_plugin_that_keeps_the_contract_has_no_fault(made: Any) -> None:
    assert faults(made) == []


@pytest.mark.parametrize(
    ("made", "told"),
    [
        # A name that is nearly one of the contract's.
        (of(Whole, "normalize", normalise=one), "nobody asks for normalise, allowed is normalize(raw, low, high);"),
        (of(Whole, fliter=one), "nobody asks for fliter, allowed is filter(state, rows);"),
        (of(Whole, post_filer=one), "nobody asks for post_filer, allowed is post_filter(state, pod);"),
        (of(Whole, preBind=one), "nobody asks for preBind, allowed is pre_bind(state, pod, node_name);"),
        (of(Whole, pre_filter=one), "nobody asks for pre_filter, allowed is narrow(state);"),
        (of(Whole, preScore=one), "nobody asks for preScore, allowed is prepare(pod);"),
        (of(Whole, less=one), "nobody asks for less, allowed is sort_key(pod);"),
        (of(Whole, normalize_score=one), "nobody asks for normalize_score, allowed is normalize(raw, low, high);"),
        (of(Whole, registration=one), "nobody asks for registration, allowed is registrations();"),
        (of(Simple, score_nodes=one), "nobody asks for score_nodes, allowed is score_node(pod, node);"),
        (of(Simple, "filter_node", filterNode=one), "nobody asks for filterNode, allowed is filter_node(pod, node);"),
        # Half a form.
        (of(Whole, "score"), "normalize is of no use without score(state, rows); a NormalizingPlugin has "),
        (of(Whole, "filter"), "reasons is of no use without filter(state, rows); a FilterPlugin has "),
        (of(Whole, "reasons"), "filter is of no use without reasons(state, rows, codes); a FilterPlugin has "),
        (of(Whole, "prepare"), "reads, key is of no use without prepare(pod); a ColumnPlugin has name, reads, key(pod), "),
        (of(Whole, "reads"), "key, prepare is of no use without reads; a ColumnPlugin has "),
        (of(Whole, "name"), "reads, key, prepare is of no use without name; a ColumnPlugin has "),
        (
            of(Whole, "filter", "reasons", needs=one),
            "needs is of no use without filter(state, rows), reasons(state, rows, codes); ",
        ),
        (of(Whole, refusals=one), "refusals is of no use without count(state, cluster, last); a DomainFilterPlugin has "),
        (
            of(Whole, name="Mine", reserve=one),
            "reserve is of no use without unreserve(state, pod, node_name); a ReservePlugin has ",
        ),
        (
            of(Whole, "normalize", count=one),
            "count(state, cluster, last) beside score(state, rows) is of no use without normalize_rows(",
        ),
        # Forms that exclude each other.
        (of(Whole, "normalize", **COUNTING, stack=one), "stack(states) and count(state, cluster, last) exclude each other, "),
        (of(Whole, **COUNTING), "normalize(raw, low, high) and count(state, cluster, last) exclude each other, "),
        (of(Whole, stack=one), "stack(states) and normalize(raw, low, high) exclude each other, "),
        (of(Whole, "normalize", **COUNTING, needs=one), "needs(state) and count(state, cluster, last) exclude each other, "),
        (
            of(Whole, filter_node=one),
            "filter, key, normalize, prepare, reasons, score would not be called beside filter_node(pod, node)",
        ),
        *(
            (of(Simple, **{name: one}), f"{name} would not be called beside filter_node(pod, node): make it a plugin of its own")
            for name in sorted(METHODS - SIMPLE_METHODS)
        ),
        # What is there and cannot be used.
        (
            of(Whole, filter=lambda self, rows: None),
            "filter(rows) does not take what it is given, allowed is filter(state, rows)",
        ),
        (of(Whole, score=lambda self, state, rows, more: None), "score(state, rows, more) does not take what it is given, "),
        (of(Simple, filter_node=lambda self, pod: True), "filter_node(pod) does not take what it is given, "),
        (
            of(Whole, "normalize", **{**COUNTING, "count": 0}),
            "count is of type int, allowed is a method count(state, cluster, last)",
        ),
        (of(Whole, reads_pod=True), "reads_pod is of type bool, allowed is PodPart"),
        (of(Whole, reads_pods=BOTH), "nobody asks for reads_pods, allowed is reads_pod;"),
        (of(Whole, reads="labels"), "reads is of type str, allowed is Log"),
        (of(Simple, reads="labels"), "reads is of type str, allowed is Log"),
        (of(Whole, name=7), "name is of type int, allowed is str"),
        (of(Whole, ends_attempts_at_pre_score=1), "ends_attempts_at_pre_score is of type int, allowed is bool"),
        # None of all.
        (of(Simple, "filter_node"), "takes part in no extension point, for want of any of bind(state, pod, node_name), filter("),
        (of(Whole, "filter", "reasons", "score", "normalize"), "takes part in no extension point, for want of any of "),
    ],
)
def test_what_is_wrong_is_told_by_class_and_name_with_what_is_allowed(made: Any, told: str) -> None:
    (fault,) = faults(made)
    assert fault.startswith(f"class shop.Mine: {told}")


@pytest.mark.parametrize(
    ("flags", "expected", "told"),
    [
        ({}, PodPart(0), []),
        ({"reads_pod": BOTH}, BOTH, []),
        (
            {"reads_mentioned_labels_alone": True},
            PodPart.LABELS_BY_SELECTOR,
            [LABELS_BEFORE],
        ),
        (
            {"reads_tolerations_of_known_taints_alone": True, "reads_pod": PodPart.LABELS_BY_SELECTOR},
            BOTH,
            [
                "reads_tolerations_of_known_taints_alone is read for the last time in this version, "
                "write reads_pod = PodPart.TOLERATIONS_OF_TAINTS"
            ],
        ),
        (
            {"reads_mentioned_labels_alone": False, "reads_pod": BOTH},
            PodPart.TOLERATIONS_OF_TAINTS,
            [LABELS_BEFORE],
        ),
        (
            {"filter_plain": one, "reads_no_containers": True},
            PodPart(0),
            ["filter_plain is no longer asked for, leave it out", "reads_no_containers is no longer asked for, leave it out"],
        ),
    ],
)
def test_flags_of_before_are_read_once_more_and_what_to_write_instead_is_told(
    flags: dict[str, Any], expected: PodPart, told: list[str]
) -> None:
    made = of(Whole, **flags)
    assert contract.reads_pod(made) == expected
    assert contract.advice(made) == [f"class shop.Mine: {one}" for one in told]
    assert faults(made) == []
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    loaded = load(text + "- plugins: {multiPoint: {enabled: [{name: Mine}]}}\n", "x", merge(IN_TREE, {"Mine": lambda _: made}))
    assert [words.partition("class shop.Mine: ")[2] for words in map(str, loaded.warnings) if "Mine" in words] == told


def test_an_async_method_is_refused() -> None:
    async def score(self: Any, state: Any, rows: Any) -> Any: ...

    assert faults(of(Whole, score=score)) == [
        "class shop.Mine: score is async, allowed is a method score(state, rows) that answers at once"
    ]


class TighterFit(NodeResourcesFit):
    def filter(self, state: Any, rows: Any) -> Any: ...


class TighterFitInColumns(TighterFit):
    needs: Any = None
    stack: Any = None


class OtherSpread(PodTopologySpread):
    def score(self, state: Any, rows: Any) -> Any: ...


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            TighterFit(NodeResourcesFitArgs()),
            [
                "filter is its own, and needs that of NodeResourcesFit, which says the same as NodeResourcesFit's filter; "
                "allowed is needs(state) of its own, or needs = None",
                "filter is its own, and stack that of NodeResourcesFit, which says the same as NodeResourcesFit's filter; "
                "allowed is stack(states) of its own, or stack = None",
            ],
        ),
        (TighterFitInColumns(NodeResourcesFitArgs()), []),
        (
            OtherSpread(PodTopologySpreadArgs()),
            [
                f"score is its own, and {name} that of PodTopologySpread, which says the same as PodTopologySpread's score; "
                f"allowed is {name}({arguments}) of its own, or {name} = None"
                for name, arguments in (("groups", "state"), ("score_groups", "state, groups, present, feasible"))
            ],
        ),
    ],
)
def test_an_acceleration_of_another_rule_is_refused_and_can_be_taken_back(made: Any, told: list[str]) -> None:
    assert [fault.partition(": ")[2] for fault in faults(made)] == told


def test_what_is_taken_back_is_not_asked_for() -> None:
    made = TighterFitInColumns(NodeResourcesFitArgs())
    assert isinstance(made, ResourcePlugin) and not has_form(made, ResourcePlugin) and not has_form(made, StackingPlugin)
    assert has_form(made, FilterPlugin) and has_form(made, ScorePlugin)
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    text += "- plugins: {multiPoint: {enabled: [{name: Mine}]}}\n"

    class FilterAlone(TighterFitInColumns):
        name: Any = "FilterAlone"
        score: Any = None
        registrations: Any = None

    registry = merge(IN_TREE, {"Mine": lambda _: FilterAlone(NodeResourcesFitArgs())})
    profile = load(text, "sched.yaml", registry).profiles["default-scheduler"]
    assert "FilterAlone" in [plugin.name for plugin in profile.filter]
    assert "FilterAlone" not in [plugin.name for plugin in profile.score]
    (mine,) = [plugin for plugin in profile.filter if plugin.name == "FilterAlone"]
    assert {one.event for one in registrations_of(mine)} == default_events(Log.USAGE)


@pytest.mark.parametrize("name", IN_TREE)
def test_forms_are_those_that_isinstance_finds(name: str) -> None:
    made = IN_TREE[name](None)
    for form in FORMS:
        if form.members:
            assert has_form(made, form.protocol) == isinstance(made, form.protocol), form.protocol


def test_what_a_class_inherits_from_a_protocol_is_not_its_own() -> None:
    class Half(FilterPlugin, ReservePlugin, PreScorePlugin):  # type: ignore[misc]
        name = "Half"  # type: ignore[misc]
        reads = Log.LABELS  # type: ignore[misc]
        key = prepare = filter = score = reserve = one  # type: ignore[assignment]

    assert [fault.partition(": ")[2] for fault in faults(Half())] == [  # type: ignore[abstract]
        "is a FilterPlugin by its bases, and has no reasons(state, rows, codes) of its own",
        "is a PreScorePlugin by its bases, and has no ends_attempts_at_pre_score of its own",
        "is a ReservePlugin by its bases, and has no unreserve(state, pod, node_name) of its own",
    ]


@pytest.mark.parametrize("form", [of(Whole, normalise=one), of(Simple, normalise=one)])
def test_it_is_told_with_the_configuration_that_enables_it(form: Any) -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    text += "- plugins: {multiPoint: {enabled: [{name: Mine}]}}\n"
    with pytest.raises(ConfigurationErrors) as caught:
        load(text, "sched.yaml", merge(IN_TREE, {"Mine": lambda _: form}))
    assert 'plugin "Mine": class shop.Mine: nobody asks for normalise, allowed is normalize(' in str(caught.value)


# ------------------------------------------------------------------------------------------------- nothing is forgotten


def _protocols_in_source() -> set[str]:
    """Protocols of the room that extend another one of it, Plugin and SimplePlugin among them, as they are written."""
    bases: dict[str, list[str]] = {}
    for path in Path(rayched.framework.__file__ or "").parent.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    found = {"Plugin", "SimplePlugin"}
    while more := {name for name, of in bases.items() if found.intersection(of) and "Protocol" in of} - found:
        found |= more
    return found


def test_every_protocol_of_the_room_is_a_form() -> None:
    assert {form.protocol.__name__ for form in FORMS} == _protocols_in_source()


def test_a_name_belongs_to_one_form() -> None:
    names = [name for form in FORMS for name in form.own]
    assert len(names) == len(set(names))


def test_there_is_a_checked_call_for_each_method_of_column_plugins_and_nothing_else_calls_them() -> None:
    checked = {name.removeprefix("call_") for name, _ in inspect.getmembers(plugin_calls, inspect.isfunction)}
    assert checked >= COLUMN_METHODS
    found = set()
    for room in ("engine", "scheduler", "actors", "core", "whatif"):
        for path in (Path(rayched.framework.__file__ or "").parents[1] / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(func=ast.Attribute(value=ast.Name(id="plugin") | ast.Attribute(attr="plugin"), attr=name)):
                        if name in COLUMN_METHODS:
                            found.add(path.name)
    assert found == {"plugin_calls.py"}


def test_every_extension_point_is_a_method_or_has_another_name_here() -> None:
    known = {contract._squeezed(name) for name in (*METHODS, *ELSEWHERE)}
    assert {point.value.lower() for point in PROTOCOLS} <= known
    assert PROTOCOLS.keys() == set(ExtensionPoint) - {ExtensionPoint.MULTI_POINT}
    assert set(ELSEWHERE.values()) <= METHODS and not ELSEWHERE.keys() & METHODS


def test_all_methods_of_all_protocols_are_known() -> None:
    assert {
        name
        for module in (plugin, accelerated, simple_plugin)
        for protocol in vars(module).values()
        if getattr(protocol, "_is_runtime_protocol", False) and protocol.__module__ == module.__name__
        for name, value in vars(protocol).items()
        if inspect.isfunction(value) and not name.startswith("_")
    } == METHODS


def test_the_page_for_authors_has_every_method_of_the_contract() -> None:
    page = (Path(rayched.framework.__file__ or "").parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    assert [name for name in sorted(METHODS) if f"`{name}`" not in page and f"`{name}(" not in page] == []
