"""Rules for what all kinds share: names, labels, annotations, owners, and selectors of labels.

Source: apimachinery's ValidateObjectMeta and ValidateLabelSelector, Kubernetes 1.34.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from rayched.api.errors import join, key_of, quoted
from rayched.api.kinds import Kind
from rayched.api.names import are_label_values, label_fault, label_value_fault, qualified_fault
from rayched.api.selectors import LABEL_OPERATORS
from rayched.api.validation import limits
from rayched.api.validation.faults import Faults
from rayched.v1.meta_pb2 import LabelSelector, ObjectMeta

NameRule = Callable[[str], str | None]

_UID = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._/:]*[A-Za-z0-9])?", re.ASCII)
_LABEL_OPERATORS = tuple(operator.value for operator in LABEL_OPERATORS)


def check_metadata(metadata: ObjectMeta, kind: Kind, rule: NameRule, faults: Faults) -> None:
    """Metadata of a whole object; `rule` is the grammar of its name."""
    check_identity(metadata.name, metadata.namespace, metadata.uid, kind, rule, faults)
    if metadata.generation < 0:
        faults.not_negative("metadata.generation", metadata.generation)
    check_labels(metadata.labels, "metadata.labels", faults)
    if metadata.annotations:
        check_annotations(metadata.annotations, "metadata.annotations", faults)
    if metadata.owner_references:
        _check_owners(metadata, faults)
    for position, finalizer in enumerate(metadata.finalizers):
        faults.check(f"metadata.finalizers[{position}]", qualified_fault(finalizer))


def check_identity(name: str, namespace: str, uid: str, kind: Kind, rule: NameRule, faults: Faults) -> None:
    """What of its metadata is an object's own."""
    faults.check("metadata.name", rule(name))
    if kind.namespaced:
        faults.check("metadata.namespace", label_fault(namespace))
    elif namespace:
        faults.add("metadata.namespace", f"{quoted(namespace)} is not allowed: a {kind.name} belongs to no namespace")
    if uid and (len(uid) > limits.UID_CHARACTERS or not _UID.fullmatch(uid)):
        faults.add(
            "metadata.uid",
            f"{quoted(uid)} is not allowed; allowed are up to {limits.UID_CHARACTERS} letters, digits, '-', '.', '_', '/', ':'",
        )


def check_template_metadata(metadata: ObjectMeta, path: str, faults: Faults) -> None:
    """Metadata of a template of pods: it has no name."""
    check_labels(metadata.labels, join(path, "labels"), faults)
    check_annotations(metadata.annotations, join(path, "annotations"), faults)


def check_labels(labels: Mapping[str, str], path: str, faults: Faults, most: int = limits.LABELS) -> None:
    if not faults.at_most(path, labels, most):
        return
    for key, text in labels.items():
        fault = qualified_fault(key)
        if fault is not None:
            faults.add(key_of(path, key), f"key: {fault}")
        fault = label_value_fault(text)
        if fault is not None:
            faults.add(key_of(path, key), fault)


def check_annotations(annotations: Mapping[str, str], path: str, faults: Faults) -> None:
    if not faults.at_most(path, annotations, limits.ANNOTATIONS):
        return
    total = 0
    for key, text in annotations.items():
        total += len(key.encode()) + len(text.encode())
        # Annotations may have upper case letters in the prefix.
        fault = qualified_fault(key.lower())
        if fault is not None:
            faults.add(key_of(path, key), f"key: {fault}")
    if total > limits.ANNOTATION_BYTES:
        faults.add(path, f"has {total} bytes; at most {limits.ANNOTATION_BYTES} are allowed for all annotations together")


def check_label_selector(selector: LabelSelector, path: str, faults: Faults) -> None:
    """A LabelSelector that is there; an empty one is valid."""
    check_labels(selector.match_labels, join(path, "matchLabels"), faults, limits.EXPRESSIONS)
    if not faults.at_most(join(path, "matchExpressions"), selector.match_expressions, limits.EXPRESSIONS):
        return
    for position, expression in enumerate(selector.match_expressions):
        where = f"{path}.matchExpressions[{position}]"
        faults.check(f"{where}.key", qualified_fault(expression.key))
        faults.choice(f"{where}.operator", expression.operator, _LABEL_OPERATORS)
        check_value_count(expression.operator, len(expression.values), f"{where}.values", faults)
        check_label_values(expression.values[: limits.VALUES], f"{where}.values", faults)


def check_label_values(values: Sequence[str], path: str, faults: Faults) -> None:
    """The values of a condition on a label."""
    if not are_label_values(values):
        for index, text in enumerate(values):
            faults.check(f"{path}[{index}]", label_value_fault(text))


def check_value_count(operator: str, count: int, path: str, faults: Faults) -> None:
    """How many values an operator wants; an unknown operator wants none in particular."""
    if operator in ("In", "NotIn") and count == 0:
        faults.add(path, f"is required: operator {operator} needs at least one value")
    elif operator in ("Exists", "DoesNotExist") and count:
        faults.add(path, f"must be empty: operator {operator} takes no values")
    elif count > limits.VALUES:
        faults.add(path, f"has {count} entries; at most {limits.VALUES} are allowed")


def _check_owners(metadata: ObjectMeta, faults: Faults) -> None:
    path = "metadata.ownerReferences"
    if not faults.at_most(path, metadata.owner_references, limits.OWNERS):
        return
    controller = ""
    for position, owner in enumerate(metadata.owner_references):
        where = f"{path}[{position}]"
        for field, text in (("apiVersion", owner.api_version), ("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
            if not text:
                faults.add(f"{where}.{field}", "is required")
        if owner.controller:
            if controller:
                faults.add(f"{where}.controller", f"only one owner may be the controller, and {controller} is")
            controller = where
