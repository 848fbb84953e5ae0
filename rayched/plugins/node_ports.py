"""NodePorts: keep two pods that want the same host port off the same node.

Filter: a host port is taken where a bound pod holds the same protocol and port for the same address; 0.0.0.0 (no address) stands
for all addresses, on either side. Removing pods can help, so the code is UNSCHEDULABLE.

Source: hostPort, hostIP and protocol of ports of containers and sidecars (core/v1), kube-scheduler 1.34.
Cost: two look-ups for each port the pod wants, and one for each address held under 0.0.0.0; pods without host ports are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rayched.framework import names
from rayched.framework.cluster_event import NODE_ADD, Action, ClusterEvent, Resource
from rayched.framework.plugin import FilterPlugin, PodPart, PodReadingPlugin, RegisteringPlugin
from rayched.framework.queueing_hints import Hint, Look, PreparedHint, ReadsNoLabels, Registration, queue_if
from rayched.framework.status import Code
from rayched.plugins.coding import coded
from rayched.snapshot.columns import BoolColumn, CodeColumn, Log
from rayched.snapshot.rows import Rows
from rayched.snapshot.spec_facts import ANY_ADDRESS, HostPort, host_ports_of
from rayched.v1.core_pb2 import Pod

REASON: Final = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(FilterPlugin, PodReadingPlugin, RegisteringPlugin):
    name: Final = names.NODE_PORTS
    reads: Final = Log.PORTS
    reads_pod: Final = PodPart.LEAST

    def key(self, pod: Pod) -> tuple[HostPort, ...] | None:
        return host_ports_of(pod) or None

    def prepare(self, pod: Pod) -> tuple[HostPort, ...]:
        return host_ports_of(pod)

    def filter(self, state: tuple[HostPort, ...], rows: Rows) -> CodeColumn:
        """Shape (rows,), uint8."""
        taken = np.zeros(rows.n, np.bool_)
        for protocol, port, ip in state:
            for held in rows.port_ips(protocol, port) if ip == ANY_ADDRESS else (ip, ANY_ADDRESS):
                taken |= rows.port_users(protocol, port, held) > 0
        return coded(taken, Code.UNSCHEDULABLE)

    def reasons(
        self,
        state: tuple[HostPort, ...],  # noqa: ARG002
        rows: Rows,  # noqa: ARG002
        codes: CodeColumn,
    ) -> Sequence[tuple[str, BoolColumn]]:
        return ((REASON, codes != Code.SUCCESS),)

    def registrations(self) -> Sequence[Registration]:
        hint = PreparedHint(lambda pod: _PortDeletionHint(host_ports_of(pod)), _held)
        return (Registration(ClusterEvent(Resource.POD, Action.DELETE), hint), Registration(NODE_ADD))


@dataclass(frozen=True, slots=True)
class _PortDeletionHint(ReadsNoLabels):
    """A pod that is gone helps when it held a port that this one wants."""

    wanted: tuple[HostPort, ...]

    def __call__(self, look: Look) -> Hint:
        held = look.rest
        assert isinstance(held, tuple)
        return queue_if(any(_clash(wanted, other) for wanted in self.wanted for other in held))


def _held(old: Pod, new: None) -> Look:  # noqa: ARG001 - nothing comes after a deletion
    """The ports that a pod held which is gone. A nominated pod holds ports on its node, too."""
    return Look(host_ports_of(old) if old.spec.node_name or old.status.nominated_node_name else ())


def _clash(one: HostPort, other: HostPort) -> bool:
    return one[:2] == other[:2] and (one[2] == other[2] or ANY_ADDRESS in (one[2], other[2]))
