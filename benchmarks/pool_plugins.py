"""Plugins in the simple form, as users write them: some 20 us of Python a node."""

from __future__ import annotations

from typing import Any, Final

from rayched.framework.simple_plugin import NodeView
from rayched.snapshot.columns import Log
from rayched.v1.core_pb2 import Pod

_STEPS: Final = 250


class SimpleFilter:
    """Keeps pods off the nodes whose names they do not like."""

    reads = Log.LABELS

    def __init__(self, arguments: Any) -> None:
        pass

    def filter_node(self, pod: Pod, node: NodeView) -> bool:
        return is_liked(pod, node.metadata.name)


class SimpleScore:
    """Likes some nodes better than others."""

    reads = Log.LABELS

    def __init__(self, arguments: Any) -> None:
        pass

    def score_node(self, pod: Pod, node: NodeView) -> int:
        return _number(pod, node.metadata.name) % 101


class UsageScore:
    """The same, and reads what is requested: what it says of a node changes with each binding to it."""

    def __init__(self, arguments: Any) -> None:
        pass

    def score_node(self, pod: Pod, node: NodeView) -> int:
        return (_number(pod, node.metadata.name) + node.requested.get("pods", 0)) % 101


def is_liked(pod: Pod, node: str) -> bool:
    """What SimpleFilter says."""
    return _number(pod, node) % 5 != 0


def _number(pod: Pod, node: str) -> int:
    found = len(pod.spec.containers)
    for letter in node:
        found = (31 * found + ord(letter)) % 1_000_003
    for step in range(_STEPS):
        found = (found * 17 + step) % 1_000_003
    return found
