"""Kind "parse": quantities, requests of pods, selectors, tolerations, the number of nodes to find, the order of nodes.

Pods are read from their manifests and defaulted, as on their way through the API. Of errors only their presence is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from rayched.api import quantity, resources
from rayched.api.defaulting import default
from rayched.api.message_tables import ReadFindings, fill
from rayched.api.selectors import LabelSelectorMatcher, NodeSelectorMatcher, SelectorError
from rayched.api.tolerations import first_untolerated, tolerated, tolerates
from rayched.scheduler.node_order import interleaved, zone_of
from rayched.scheduler.sampling import n_feasible_to_find
from rayched.v1.core_pb2 import NodeSelector, Pod, Taint, Toleration
from rayched.v1.meta_pb2 import LabelSelector
from tests.conformance.cases import Case, node_of
from tests.conformance.comparisons import Comparison

M = TypeVar("M", bound=Message)
Given = Mapping[str, Any]


def compare_parsing(case: Case) -> Iterator[Comparison]:
    given = case.scenario["parse"]
    yield from _COMPARED[given["what"]](given, case.expected)


def _quantities(given: Given, expected: Given) -> Iterator[Comparison]:
    for one in expected["quantities"]:
        text = one["s"]
        try:
            amount = quantity.parse(text)
        except quantity.QuantityError:
            yield Comparison(f"{text!r} is an error", True, "error" in one)
            continue
        found = (amount.canonical(), amount.format.value, amount.milli_value(), amount.value(), amount.sign)
        recorded = tuple(one.get(name) for name in ("canonical", "format", "milliValue", "value", "sign"))
        yield Comparison(f"quantity {text!r}", found, recorded)


def _pod_requests(given: Given, expected: Given) -> Iterator[Comparison]:
    pod = _read(Pod, given["pod"])
    default(pod)
    yield Comparison("requests", _exact(resources.requested(pod)), expected["requests"])
    yield Comparison("limits", _exact(resources.limited(pod)), expected["limits"])
    yield Comparison("filter", _grouped(resources.pod_requests(pod)), expected["filter"])
    yield Comparison("accounted", _grouped(resources.accounted_requests(pod)), expected["accounted"])
    milli_cpu, memory = resources.non_zero_requests(pod)
    yield Comparison("nonZero", {"milliCPU": milli_cpu, "memory": memory}, expected["nonZero"])
    for name, scores in expected["scoreRequests"].items():
        found = {"fit": resources.score_requests(pod, [name])[0], "balanced": resources.balanced_requests(pod, [name])[0]}
        yield Comparison(f"scoreRequests {name}", found, scores)


def _label_selector(given: Given, expected: Given) -> Iterator[Comparison]:
    document = given.get("labelSelector")
    try:
        matcher = LabelSelectorMatcher(None if document is None else _read(LabelSelector, document))
    except SelectorError:
        yield Comparison("selector is an error", True, "error" in expected)
        return
    yield Comparison("selector is an error", False, "error" in expected)
    yield Comparison("empty", matcher.empty, expected.get("empty"))
    yield Comparison("matches", [matcher.matches(labels) for labels in given["labelSets"]], expected.get("matches"))


def _node_selector(given: Given, expected: Given) -> Iterator[Comparison]:
    matcher = NodeSelectorMatcher(_read(NodeSelector, given["nodeSelector"]))
    yield Comparison("selector has an error", bool(matcher.faults), "error" in expected)
    found = [matcher.matches(node["metadata"]["name"], node["metadata"].get("labels", {})) for node in given["nodes"]]
    yield Comparison("lazyMatches", found, expected["lazyMatches"])
    if not matcher.faults:
        yield Comparison("matches", found, expected.get("matches"))


def _tolerations(given: Given, expected: Given) -> Iterator[Comparison]:
    tolerations = [_read(Toleration, one) for one in given["tolerations"]]
    taints = [_read(Taint, one) for one in given["taints"]]
    found = [[tolerates(one, taint) for taint in taints] for one in tolerations]
    yield Comparison("tolerates", found, expected["tolerates"])
    yield Comparison("tolerated", [tolerated(tolerations, taint) for taint in taints], expected["tolerated"])
    first = first_untolerated(tolerations, taints)
    as_recorded = None if first is None else {"key": first.key, "value": first.value, "effect": first.effect}
    yield Comparison("firstUntolerated", as_recorded, expected.get("firstUntolerated"))


def _num_feasible_nodes(given: Given, expected: Given) -> Iterator[Comparison]:
    for percentage, recorded in zip(given["percentages"], expected["numFeasibleNodes"], strict=True):
        found = [n_feasible_to_find(percentage, count) for count in given["counts"]]
        yield Comparison(f"{percentage} %", found, recorded)


def _node_order(given: Given, expected: Given) -> Iterator[Comparison]:
    nodes = [node_of(body) for body in given["nodes"]]
    found = interleaved((node.metadata.name, zone_of(node.metadata.labels)) for node in nodes)
    yield Comparison("order", found, expected["order"])


_COMPARED: Final[Mapping[str, Callable[[Given, Given], Iterator[Comparison]]]] = {
    "quantity": _quantities,
    "podRequests": _pod_requests,
    "labelSelector": _label_selector,
    "nodeSelector": _node_selector,
    "tolerations": _tolerations,
    "numFeasibleNodes": _num_feasible_nodes,
    "nodeOrder": _node_order,
}


def _read(message: type[M], document: Any) -> M:
    found, findings = message(), ReadFindings()
    fill(found, document, findings)
    if findings.errors:
        raise ValueError(f"{message.__name__}: {findings.errors}")
    return found


def _exact(amounts: resources.Amounts) -> dict[str, dict[str, Any]]:
    return {
        name: {"canonical": amount.canonical(), "milliValue": amount.milli_value(), "value": amount.value()}
        for name, amount in amounts.items()
    }


def _grouped(found: Mapping[str, int]) -> dict[str, Any]:
    rest = dict(found)
    return {
        "milliCPU": rest.pop("cpu", 0),
        "memory": rest.pop("memory", 0),
        "ephemeralStorage": rest.pop("ephemeral-storage", 0),
        "scalar": rest,
    }
