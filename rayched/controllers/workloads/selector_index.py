"""Which controllers may select which pods that have none, by one label of each selector. No I/O.

A selector is looked up by that of its labels which the fewest others have taken, and the pods that it selects among those of its
rarest label. So neither many controllers nor many pods that share a label make each other dear: `app=web` costs nothing where
another label of the selector tells more.

Owner: the WorkloadView.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from rayched.api.selectors import LabelSelectorMatcher
from rayched.controllers.workloads.owned_pods import OwnedPod

NamespacedLabel = tuple[str, str, str]
_NO_LABEL = "", ""


class SelectorIndex:
    """Controllers by their identity, pods by key."""

    def __init__(self) -> None:
        self._selectors: dict[str, tuple[NamespacedLabel, LabelSelectorMatcher]] = {}
        """Each under one of its labels; without any, under an empty one."""
        self._by_label: defaultdict[NamespacedLabel, dict[str, None]] = defaultdict(dict)
        self._pods: dict[bytes, tuple[str, OwnedPod]] = {}
        """With their namespaces."""
        self._pods_by_label: defaultdict[NamespacedLabel, dict[bytes, OwnedPod]] = defaultdict(dict)

    def clear(self) -> None:
        for table in (self._selectors, self._by_label, self._pods, self._pods_by_label):
            table.clear()

    def add(self, owner: str, namespace: str, labels: Mapping[str, str], matcher: LabelSelectorMatcher) -> Iterator[OwnedPod]:
        """`labels`: those that every pod has that it selects. Gives the pods that it selects."""
        wanted = [(namespace, key, text) for key, text in labels.items()] or [(namespace, *_NO_LABEL)]
        label = min(wanted, key=lambda one: len(self._by_label.get(one, ())))
        self._selectors[owner] = label, matcher
        self._by_label[label][owner] = None
        rarest = min((self._pods_by_label.get(one, {}) for one in wanted), key=len)
        return (pod for pod in list(rarest.values()) if matcher.matches(pod.labels))

    def remove(self, owner: str) -> None:
        label, _ = self._selectors.pop(owner)
        bucket = self._by_label[label]
        del bucket[owner]
        if not bucket:
            del self._by_label[label]

    def selecting(self, namespace: str, pod: OwnedPod) -> Iterator[str]:
        """The controllers that select a pod."""
        for label in _labels(namespace, pod):
            for owner in sorted(self._by_label.get(label, ())):
                if self._selectors[owner][1].matches(pod.labels):
                    yield owner

    def put_pod(self, namespace: str, pod: OwnedPod) -> None:
        self._pods[pod.key] = namespace, pod
        for label in _labels(namespace, pod):
            self._pods_by_label[label][pod.key] = pod

    def take_pod(self, key: bytes) -> OwnedPod:
        """It goes, or has a controller from now on."""
        namespace, pod = self._pods.pop(key)
        for label in _labels(namespace, pod):
            bucket = self._pods_by_label[label]
            del bucket[key]
            if not bucket:
                del self._pods_by_label[label]
        return pod


def _labels(namespace: str, pod: OwnedPod) -> Iterator[NamespacedLabel]:
    """All that a selector may be under that selects the pod."""
    yield (namespace, *_NO_LABEL)
    for key, text in pod.labels.items():
        yield namespace, key, text
