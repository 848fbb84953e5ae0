"""The registry table: every in-tree plugin by its name, and how it is made from its arguments.

Plugins without arguments get None. Arguments that are None stand for their defaults.

Source: NewInTreeRegistry of kube-scheduler 1.34.
"""

from __future__ import annotations

from typing import Final

from rayched.framework import names
from rayched.framework.plugin_args import (
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
)
from rayched.framework.registry import Registry
from rayched.plugins.default_binder import DefaultBinder
from rayched.plugins.default_preemption import DefaultPreemption
from rayched.plugins.image_locality import ImageLocality
from rayched.plugins.inter_pod_affinity.plugin import InterPodAffinity
from rayched.plugins.node_affinity import NodeAffinity
from rayched.plugins.node_name import NodeName
from rayched.plugins.node_ports import NodePorts
from rayched.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from rayched.plugins.node_resources.fit import NodeResourcesFit
from rayched.plugins.node_unschedulable import NodeUnschedulable
from rayched.plugins.pod_topology_spread.plugin import PodTopologySpread
from rayched.plugins.priority_sort import PrioritySort
from rayched.plugins.scheduling_gates import SchedulingGates
from rayched.plugins.taint_toleration import TaintToleration

IN_TREE: Final[Registry] = {
    names.SCHEDULING_GATES: lambda _: SchedulingGates(),
    names.PRIORITY_SORT: lambda _: PrioritySort(),
    names.NODE_UNSCHEDULABLE: lambda _: NodeUnschedulable(),
    names.NODE_NAME: lambda _: NodeName(),
    names.TAINT_TOLERATION: lambda _: TaintToleration(),
    names.NODE_AFFINITY: lambda args: NodeAffinity(args or NodeAffinityArgs()),
    names.NODE_PORTS: lambda _: NodePorts(),
    names.NODE_RESOURCES_FIT: lambda args: NodeResourcesFit(args or NodeResourcesFitArgs()),
    names.NODE_RESOURCES_BALANCED_ALLOCATION: lambda args: NodeResourcesBalancedAllocation(
        args or NodeResourcesBalancedAllocationArgs()
    ),
    names.POD_TOPOLOGY_SPREAD: lambda args: PodTopologySpread(args or PodTopologySpreadArgs()),
    names.INTER_POD_AFFINITY: lambda args: InterPodAffinity(args or InterPodAffinityArgs()),
    names.DEFAULT_PREEMPTION: lambda args: DefaultPreemption(args or DefaultPreemptionArgs()),
    names.IMAGE_LOCALITY: lambda _: ImageLocality(),
    names.DEFAULT_BINDER: lambda _: DefaultBinder(),
}
