"""InProcessCluster: the scheduler itself over nodes in memory. No etcd, no Ray, no network, no time: milliseconds a test.

    cluster = InProcessCluster([a_node("a"), a_node("b", labels={"tier": "gold"})], plugins={"LabelWeight": LabelWeight})
    cluster.place(a_pod("web")).assert_on("web", "b")

Admission, filters, scores, preemption and the draw among equals are those of a running scheduler; only the queue's backoff has no
place here, as no time passes: pods are tried in the order of priority until a round brings nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rayched.api import kinds
from rayched.api.admission import admit_pod, resolve_priority
from rayched.api.defaulting import default
from rayched.api.kinds import AnyObject
from rayched.configuration.configuration_file import load
from rayched.core.groups.planning import planner_of
from rayched.scheduler.shadow import ShadowDecision
from rayched.testing.placements import Placements
from rayched.testing.plugins import Plugins, configuration_with, registry_with
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodGroup, PriorityClass, RuntimeClass
from rayched.whatif.cluster import Cluster
from rayched.whatif.explain import NodeVerdict, PodExplanation, explain


class InProcessCluster:
    """Nodes, what else there is, and a scheduler. Pods that were placed stay."""

    def __init__(self, objects: Iterable[AnyObject], *, plugins: Plugins | None = None, config: str = "") -> None:
        """Objects: nodes, classes, namespaces, budgets, pod groups, pods that are bound already.

        `plugins` beside those that are installed; without `config` all of them take part with weight 1. `config` is the text of a
        KubeSchedulerConfiguration. Raises ConfigurationErrors, RegistryError, and ValueError for a pod or group that is invalid.
        """
        plugins = plugins or {}
        self.profiles = load(config or configuration_with(plugins), "config", registry_with(plugins)).profiles
        there: list[AnyObject] = []
        for item in objects:
            copy = kinds.unwrap(kinds.wrap(item))
            default(copy)
            there.append(copy)
        self._priorities: Mapping[str, PriorityClass] = {o.metadata.name: o for o in there if isinstance(o, PriorityClass)}
        self._runtimes: Mapping[str, RuntimeClass] = {o.metadata.name: o for o in there if isinstance(o, RuntimeClass)}
        for group in there:
            if isinstance(group, PodGroup) and (errors := resolve_priority(group, self._priorities)):
                raise ValueError("; ".join(f"pod group {group.metadata.name}: {error}" for error in errors))
        self.cluster = Cluster([self._admitted(o) if isinstance(o, Pod) else o for o in there], self.profiles)

    def place(self, *pods: Pod) -> Placements:
        """Places these pods and those that are pending from before."""
        plan = planner_of(self.cluster).plan([self._admitted(pod) for pod in pods])
        nodes = {placement.pod: placement.node_name for placement in plan.placements}
        return Placements(nodes, {unplaced.pod: unplaced.reason for unplaced in plan.unplaced})

    def shadow_decisions(self) -> list[ShadowDecision]:
        """What shadow plugins would have decided otherwise since the last call."""
        unread = self.cluster.scheduler.shadows.unread
        found = list(unread)
        unread.clear()
        return found

    def explain(self, pod: Pod) -> PodExplanation:
        """What every plugin says about the pod on every node; changes nothing. Raises PluginError."""
        to_schedule = self.cluster.to_schedule(self._admitted(pod))
        scheduler, name = self.cluster.scheduler, to_schedule.template.scheduler_name
        return explain(scheduler.engine(name), self.cluster.snapshot, scheduler.weights(name), to_schedule.template)

    def scores(self, pod: Pod, plugin: str) -> dict[str, int]:
        """One plugin's normalised scores of the feasible nodes, by node."""
        return {
            node.node_name: score.normalized
            for node in self.explain(pod).nodes
            for score in node.scores
            if score.plugin == plugin
        }

    def rejections(self, pod: Pod, plugin: str) -> dict[str, tuple[str, ...]]:
        """Why one plugin rejects nodes, by node."""

        def reasons(node: NodeVerdict) -> tuple[str, ...]:
            return tuple(text for rejection in node.rejections if rejection.plugin == plugin for text in rejection.reasons)

        return {node.node_name: found for node in self.explain(pod).nodes if (found := reasons(node))}

    def _admitted(self, pod: Pod) -> Pod:
        """A copy as the API would store it."""
        copy = Pod()
        copy.CopyFrom(pod)
        copy.metadata.namespace = copy.metadata.namespace or "default"
        errors = admit_pod(copy, self._priorities, self._runtimes)
        if errors:
            raise ValueError("; ".join(f"pod {copy.metadata.name}: {error}" for error in errors))
        return copy
