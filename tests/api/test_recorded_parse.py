"""The recorded answers of kube-scheduler 1.34 to parsing: quantities, requests, selectors, tolerations.

Pods are read from their manifests and defaulted, as on their way through the API.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rayched.api import quantity, resources
from rayched.api.defaulting import default
from rayched.api.message_tables import Findings, fill
from rayched.api.selectors import LabelSelectorMatcher, NodeSelectorMatcher, SelectorError
from rayched.api.tolerations import first_untolerated, tolerated, tolerates
from rayched.v1.core_pb2 import NodeSelector, Pod, Taint, Toleration
from rayched.v1.meta_pb2 import LabelSelector

RECORDED = Path(__file__).parent.parent / "conformance" / "parse.jsonl.gz"


def cases(what: str) -> list[Any]:
    return list(_cases(what))


def _cases(what: str) -> Iterator[Any]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["scenario"]["parse"]["what"] == what:
                yield pytest.param(record["scenario"]["parse"], record["expected"], id=record["scenario"]["id"])


def read(message: type[Any], document: Any) -> Any:
    found, findings = message(), Findings()
    fill(found, document, findings)
    assert findings.errors == []
    return found


@pytest.mark.parametrize(("given", "expected"), cases("quantity"))
def test_quantities_are_read_as_recorded(given: dict[str, Any], expected: dict[str, Any]) -> None:
    for one in expected["quantities"]:
        try:
            amount = quantity.parse(one["s"])
        except quantity.QuantityError:
            assert "error" in one, one
            continue
        found = (amount.canonical(), amount.format.value, amount.milli_value(), amount.value(), amount.sign)
        assert found == tuple(one.get(name) for name in ("canonical", "format", "milliValue", "value", "sign")), one["s"]


@pytest.mark.row("K3.2")
@pytest.mark.parametrize(("given", "expected"), cases("podRequests"))
def test_requests_of_pods_are_added_up_as_recorded(given: dict[str, Any], expected: dict[str, Any]) -> None:
    pod = read(Pod, given["pod"])
    default(pod)
    assert _exact(resources.requested(pod)) == expected["requests"]
    assert _exact(resources.limited(pod)) == expected["limits"]
    assert _grouped(resources.pod_requests(pod)) == expected["filter"]
    assert _grouped(resources.accounted_requests(pod)) == expected["accounted"]
    milli_cpu, memory = resources.non_zero_requests(pod)
    assert {"milliCPU": milli_cpu, "memory": memory} == expected["nonZero"]
    for name, scores in expected["scoreRequests"].items():
        assert resources.score_request(pod, name) == scores["fit"], name
        assert resources.balanced_request(pod, name) == scores["balanced"], name


@pytest.mark.parametrize(("given", "expected"), cases("labelSelector"))
def test_label_selectors_match_as_recorded(given: dict[str, Any], expected: dict[str, Any]) -> None:
    document = given.get("labelSelector")
    try:
        matcher = LabelSelectorMatcher(None if document is None else read(LabelSelector, document))
    except SelectorError:
        assert "error" in expected
        return
    assert matcher.empty is expected["empty"]
    assert [matcher.matches(labels) for labels in given["labelSets"]] == expected["matches"]


@pytest.mark.row("K2.3")
@pytest.mark.parametrize(("given", "expected"), cases("nodeSelector"))
def test_node_selectors_match_as_recorded(given: dict[str, Any], expected: dict[str, Any]) -> None:
    matcher = NodeSelectorMatcher(read(NodeSelector, given["nodeSelector"]))
    assert bool(matcher.faults) is ("error" in expected)
    found = [matcher.matches(node["metadata"]["name"], node["metadata"].get("labels", {})) for node in given["nodes"]]
    assert found == expected["lazyMatches"]
    if not matcher.faults:
        assert found == expected["matches"]


@pytest.mark.parametrize(("given", "expected"), cases("tolerations"))
def test_tolerations_cover_taints_as_recorded(given: dict[str, Any], expected: dict[str, Any]) -> None:
    tolerations = [read(Toleration, one) for one in given["tolerations"]]
    taints = [read(Taint, one) for one in given["taints"]]
    assert [[tolerates(one, taint) for taint in taints] for one in tolerations] == expected["tolerates"]
    assert [tolerated(tolerations, taint) for taint in taints] == expected["tolerated"]
    found = first_untolerated(tolerations, taints)
    as_recorded = None if found is None else {"key": found.key, "value": found.value, "effect": found.effect}
    assert as_recorded == expected.get("firstUntolerated")


def _exact(amounts: resources.Amounts) -> dict[str, dict[str, Any]]:
    describe: Callable[[quantity.Amount], dict[str, Any]] = lambda amount: {  # noqa: E731
        "canonical": amount.canonical(),
        "milliValue": amount.milli_value(),
        "value": amount.value(),
    }
    return {name: describe(amount) for name, amount in amounts.items()}


def _grouped(found: dict[str, int]) -> dict[str, Any]:
    rest = dict(found)
    return {
        "milliCPU": rest.pop("cpu", 0),
        "memory": rest.pop("memory", 0),
        "ephemeralStorage": rest.pop("ephemeral-storage", 0),
        "scalar": rest,
    }
