"""A recorded cluster in a Scheduler: what the cases of preemption and the sequences are played on."""

from __future__ import annotations

import copy
from typing import Any, Final

from rayched.framework import names
from rayched.framework.profile import Profile
from rayched.scheduler.scheduler import PodToSchedule, Scheduler
from rayched.scheduler.selection import SmallestName
from rayched.snapshot.pod_facts import facts_of
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Pod
from tests.conformance.cases import Case, node_of, pod_of, profile_body, read_profile, set_surroundings
from tests.conformance.sharded import Shards

ALL_CANDIDATES: Final = {"name": names.DEFAULT_PREEMPTION, "args": {"minCandidateNodesPercentage": 100}}
"""The recorder tried all nodes."""


class RecordedCluster:
    """A case's nodes and whatever pods refer to, with a scheduler over them."""

    def __init__(self, case: Case, n_shards: int) -> None:
        self.case = case
        self.admission = case.scenario.get("admission", True)
        self.snapshot, self.templates = Snapshot(), TemplateTable()
        self.profile = _profile_of(case)
        self.chance = SmallestName(self.snapshot)
        shards = Shards(self.snapshot, self.profile, n_shards) if n_shards else None
        profiles = {self.profile.scheduler_name: self.profile}
        self.scheduler = Scheduler(self.snapshot, profiles, 0, None if shards is None else lambda _: shards, self.chance)
        set_surroundings(self.snapshot, case.scenario)
        for body in case.scenario.get("nodes") or ():
            self.snapshot.add_node(node_of(body))
        for body in case.scenario.get("boundPods") or ():
            self.observe(pod_of(body, self.admission))

    def observe(self, pod: Pod) -> None:
        """The pod is bound."""
        template, terminating = self.templates.intern(pod), pod.metadata.HasField("deletion_timestamp")
        self.scheduler.occupancy.observe(name_of(pod), template, pod.spec.node_name, terminating=terminating, facts=facts_of(pod))

    def nominate(self, pod: Pod) -> None:
        """The pod waits for the node that its status names."""
        nominations = self.scheduler.nominations
        nominations.status_seen(name_of(pod), self.template_of(pod), "", pod.status.nominated_node_name)

    def template_of(self, pod: Pod) -> PodTemplate:
        """Of a pod that is to be scheduled, with its spec.nodeName if it has one."""
        return self.templates.intern(pod, with_node_name=True)

    def to_schedule(self, pod: Pod) -> PodToSchedule:
        return PodToSchedule(name_of(pod), name_of(pod), self.template_of(pod), pod)


def name_of(pod: Pod) -> str:
    """namespace/name, by which recorded pods are known."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _profile_of(case: Case) -> Profile:
    """The case's profile, with preemption as the recorder had it."""
    body: dict[str, Any] = copy.deepcopy(profile_body(case))
    configured = [entry for entry in body.get("pluginConfig") or () if entry["name"] != names.DEFAULT_PREEMPTION]
    return read_profile({**body, "pluginConfig": [*configured, ALL_CANDIDATES]})
