"""What is wrong with a PodGroup, and with what a pod says of its own.

Served is what decides a group's scheduling: its policy, priority, preemption policy and topology. What would change where or how
its pods go and is not built is refused by name: an object that is stored and not obeyed would be worse.

Source: PodGroup of scheduling.k8s.io/v1beta1, Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Final

from rayched.api import kinds
from rayched.api.incomplete_groups import HOLD_ANNOTATION, RELEASE_ANNOTATION, hold_fault, release_fault
from rayched.api.names import qualified_fault, subdomain_fault
from rayched.api.validation.faults import Faults
from rayched.api.validation.metadata import check_metadata
from rayched.api.validation.pods import PREEMPTION_POLICIES
from rayched.v1.workloads_pb2 import PodGroup

BASIC: Final = "basic"
GANG: Final = "gang"
TOPOLOGY_MAX: Final = 1


def policy_of(group: PodGroup) -> str:
    """Which policy it has, as its manifest says it."""
    policy = group.spec.scheduling_policy
    return " and ".join(name for name in (BASIC, GANG) if policy.HasField(name)) or "none"


def check_pod_group(group: PodGroup, faults: Faults) -> None:
    check_metadata(group.metadata, kinds.POD_GROUP, subdomain_fault, faults)
    for annotation, fault in ((HOLD_ANNOTATION, hold_fault), (RELEASE_ANNOTATION, release_fault)):
        if annotation in group.metadata.annotations:
            faults.check(f"metadata.annotations[{annotation}]", fault(group.metadata.annotations[annotation]))
    spec = group.spec
    policy = spec.scheduling_policy
    if policy_of(group) not in (BASIC, GANG):
        faults.add("spec.schedulingPolicy", f"has {policy_of(group)}; wanted is one of basic and gang")
    elif policy.HasField("gang") and policy.gang.min_count < 1:
        faults.add("spec.schedulingPolicy.gang.minCount", f"{policy.gang.min_count} must be at least 1")
    mode = spec.disruption_mode
    if mode.HasField("single") and mode.HasField("all"):
        faults.add("spec.disruptionMode", "has single and all; wanted is one of the two")
    elif mode.HasField("all") and policy.HasField("basic"):
        faults.add("spec.disruptionMode.all", "is not allowed with the policy basic, whose members need each other for nothing")
    if spec.HasField("preemption_policy"):
        faults.choice("spec.preemptionPolicy", spec.preemption_policy, PREEMPTION_POLICIES)
    faults.text("spec.priorityClassName", spec.priority_class_name, subdomain_fault)
    topology = spec.scheduling_constraints.topology
    if faults.at_most("spec.schedulingConstraints.topology", topology, TOPOLOGY_MAX):
        for position, constraint in enumerate(topology):
            faults.text(f"spec.schedulingConstraints.topology[{position}].key", constraint.key, qualified_fault)
            if not constraint.key:
                faults.add(f"spec.schedulingConstraints.topology[{position}].key", "is required: the label of a node")
    if spec.parent_composite_pod_group_name:
        faults.add("spec.parentCompositePodGroupName", "is not supported: there are no composite groups; leave it out")
    if spec.resource_claims:
        faults.add("spec.resourceClaims", "is not supported: there is no dynamic resource allocation; leave it out")
