"""NodeName: a pod that names its node fits on no other.

Filter: pods with spec.nodeName pass on that node alone. Such pods normally bypass the scheduler; this plugin answers for what-if
questions and for pods whose node is asked for in that way.

Source: pod.spec.nodeName (core/v1), kube-scheduler 1.34.
Cost: one comparison of row numbers; pods without a node name are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rayched.framework import names
from rayched.framework.cluster_event import NODE_ADD
from rayched.framework.plugin import FilterPlugin, PodPart, PodReadingPlugin, RegisteringPlugin
from rayched.framework.queueing_hints import Registration
from rayched.framework.status import Code
from rayched.plugins.coding import coded
from rayched.plugins.node_selection import named
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod

REASON: Final = "node(s) didn't match the requested node name"


class NodeName(FilterPlugin, PodReadingPlugin, RegisteringPlugin):
    name: Final = names.NODE_NAME
    reads: Final = Log.LABELS
    reads_pod: Final = PodPart.LEAST

    def key(self, pod: Pod) -> str | None:
        return pod.spec.node_name or None

    def prepare(self, pod: Pod) -> str:
        return pod.spec.node_name

    def filter(self, state: str, rows: Rows) -> CodeColumn:
        """Shape (rows,), uint8."""
        return coded(~named(state, rows), Code.UNSCHEDULABLE_AND_UNRESOLVABLE)

    def reasons(self, state: str, rows: Rows, codes: CodeColumn) -> Sequence[tuple[str, BoolColumn]]:  # noqa: ARG002
        return ((REASON, codes != Code.SUCCESS),)

    def registrations(self) -> Sequence[Registration]:
        """Any new node may be the one that is asked for."""
        return (Registration(NODE_ADD),)
