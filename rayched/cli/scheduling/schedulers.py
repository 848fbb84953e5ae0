"""Pods that wait for a scheduler that is not there: their `schedulerName` is no profile's, so no queue holds them."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from rayched.api import kinds
from rayched.api.defaulting import DEFAULT_SCHEDULER
from rayched.api.served_schedulers import not_served
from rayched.api.yaml_text import load_all
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Pod


def served(client: Client) -> list[str]:
    """The schedulers whose pods the leader places: the names of its profiles."""
    names = [
        profile.get("schedulerName") or DEFAULT_SCHEDULER
        for document in load_all(client.plan_basis().configuration, "the cluster's configuration")
        for profile in document.get("profiles") or [{}]
    ]
    return names or [DEFAULT_SCHEDULER]


class NotServed(NamedTuple):
    """A scheduler that pods wait for in vain."""

    scheduler: str
    pods: tuple[str, ...]
    """namespace/name."""
    served: tuple[str, ...]

    def __str__(self) -> str:
        several = len(self.pods) > 1
        who = f"{self.pods[0]} and {len(self.pods) - 1} more" if several else self.pods[0]
        return f"{who} {not_served(self.scheduler, self.served, several=several)}"


def waiting_for_others(client: Client, namespace: str, name: str = "", label_selector: str = "") -> list[NotServed]:
    """The schedulers that pods wait for in vain, by name; of one namespace or all, of one name or all."""
    here = served(client)
    terms = ["spec.nodeName=", "status.phase=Pending", *(f"spec.schedulerName!={one}" for one in here)]
    if name:
        terms.append(f"metadata.name={name}")
    found: dict[str, list[str]] = defaultdict(list)
    pods = client.list(kinds.POD, namespace=namespace, label_selector=label_selector, field_selector=",".join(terms))
    for pod in pods:
        if isinstance(pod, Pod):
            found[pod.spec.scheduler_name].append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return [NotServed(scheduler, tuple(names), tuple(here)) for scheduler, names in sorted(found.items())]


def missing_scheduler(client: Client, pod: Pod) -> str:
    """Why no scheduler takes a pod that waits; empty if one does, and if there is no leader to say so."""
    looked_at = any(condition.type == "PodScheduled" for condition in pod.status.conditions)
    if looked_at or pod.spec.node_name or pod.status.phase not in ("", "Pending"):
        return ""
    try:
        here = served(client)
    except ApiError:
        return ""
    return "" if pod.spec.scheduler_name in here else f"not served here; served: {', '.join(here)}"
