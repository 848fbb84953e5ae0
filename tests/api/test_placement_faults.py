"""Single mistakes in where a pod wants to run that the table of all kinds leaves out: other places of a rule, and its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.api.validation import validate
from rayched.v1.workloads_pb2 import PriorityClass
from tests.api.invalid_fields import NODE_TERM, POD_TERM, PREFERRED_NODES, PREFERRED_PODS, SPREAD, changed
from tests.api.test_invalid_fields import errors_of

ANTI = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
WITHOUT_SELECTOR = {"topologyKey": "zone"}


@pytest.mark.parametrize(
    ("path", "value", "errors"),
    [
        (f"{POD_TERM}.mismatchLabelKeys", ["app"], {f"{POD_TERM}.mismatchLabelKeys[0]": "stands in the labelSelector's"}),
        (f"{ANTI}.mismatchLabelKeys", ["a b"], {f"{ANTI}.mismatchLabelKeys[0]": "is not a valid key"}),
        (f"{ANTI}.mismatchLabelKeys", ["rev"], {}),
        (ANTI, {**WITHOUT_SELECTOR, "mismatchLabelKeys": ["a"]}, {f"{ANTI}.mismatchLabelKeys": "must be empty without a"}),
        (ANTI, {**WITHOUT_SELECTOR, "matchLabelKeys": ["a"]}, {f"{ANTI}.matchLabelKeys": "must be empty without a"}),
        (ANTI, WITHOUT_SELECTOR, {}),
        (f"{ANTI}.topologyKey", "", {f"{ANTI}.topologyKey": "is required"}),
        (f"{ANTI}.namespaceSelector", {"matchLabels": {"a b": ""}}, {f'{ANTI}.namespaceSelector.matchLabels["a b"]': "not a"}),
        (f"{PREFERRED_PODS}[0].podAffinityTerm.topologyKey", "", {f"{PREFERRED_PODS}[0].podAffinityTerm.topologyKey": "is"}),
        (f"{PREFERRED_PODS}[0].weight", 101, {f"{PREFERRED_PODS}[0].weight": "101 must lie between 1 and 100"}),
        (f"{PREFERRED_PODS}[0].weight", 1, {}),
        (f"{PREFERRED_NODES}[0].weight", 100, {}),
        (f"{NODE_TERM}.matchFields[0].values", [], {f"{NODE_TERM}.matchFields[0].values": "must have exactly one value, not 0"}),
        (f"{NODE_TERM}.matchFields[0].values[0]", "A b", {f"{NODE_TERM}.matchFields[0].values[0]": "is not a valid name"}),
        (f"{NODE_TERM}.matchFields[0].operator", "NotIn", {}),
        (f"{NODE_TERM}.matchExpressions[1].operator", "Lt", {}),
        (f"{NODE_TERM}.matchExpressions[1].values[0]", "-9223372036854775808", None),
        (f"{SPREAD}.matchLabelKeys", ["app"], {f"{SPREAD}.matchLabelKeys[0]": "stands in the labelSelector's"}),
        (f"{SPREAD}.matchLabelKeys", ["rev", "a b"], {f"{SPREAD}.matchLabelKeys[1]": "is not a valid key"}),
        (f"{SPREAD}.labelSelector.matchLabels", {"a b": ""}, {f'{SPREAD}.labelSelector.matchLabels["a b"]': "is not a valid"}),
        (f"{SPREAD}.maxSkew", -1, {f"{SPREAD}.maxSkew": "-1 must be greater than 0"}),
        (f"{SPREAD}.nodeAffinityPolicy", "Ignore", {}),
        (f"{SPREAD}.nodeAffinityPolicy", "", {f"{SPREAD}.nodeAffinityPolicy": 'allowed is "Honor" or "Ignore"'}),
        ("spec.tolerations", [{"operator": "Exists"}], {}),
        ("spec.tolerations", [{}], {"spec.tolerations[0].operator": 'must be "Exists" when the key is empty'}),
        ("spec.tolerations", [{"key": "a", "value": "b"}], {}),
        ("spec.tolerations", [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 0}], {}),
        ("spec.tolerations", [{"key": "a", "tolerationSeconds": 5}], {"spec.tolerations[0].tolerationSeconds": "only allowed"}),
        ("spec.schedulingGates", [{"name": "a"}, {"name": "b"}], {}),
    ],
)
def test_one_change_of_a_valid_pod(path: str, value: Any, errors: dict[str, str] | None) -> None:
    """None: whatever is wrong with it, it is wrong in that very place."""
    found = {error.path: error.message for error in errors_of(changed("Pod", path, value))}
    if errors is None:
        assert set(found) == {path}
        return
    assert set(found) == set(errors)
    for where, part in errors.items():
        assert part in found[where]


def test_a_pod_without_gates_may_name_its_node() -> None:
    document = changed("Pod", "spec.schedulingGates", None)
    document["spec"]["nodeName"] = "n"
    assert errors_of(document) == []


def test_what_a_pod_requests_as_a_whole_is_as_much_as_its_init_containers_need() -> None:
    document = changed("Pod", "spec.resources", {"requests": {"cpu": "1"}})
    document["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "2"}}}]
    (error,) = errors_of(document)
    assert error.path == 'spec.resources.requests["cpu"]'
    assert error.message == '"1" must be at least what the containers request together, 2'


def test_a_priority_class_need_not_say_whether_it_preempts() -> None:
    assert validate(PriorityClass(metadata={"name": "low"}, value=1)) == []
