"""What plugins see of a template's pod: nothing that makes no difference to them.

Owner: whoever plans the template; void when labels are mentioned, or taints come up, for the first time.
"""

from __future__ import annotations

from typing import Final

from rayched.framework.plugin import PodPart
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Pod

_LABELS: Final = PodPart.LABELS_BY_SELECTOR
_TOLERATIONS: Final = PodPart.TOLERATIONS_OF_TAINTS
_NO_GROUP: Final = PodPart.NO_POD_GROUP
ALL_BY_SIGHT: Final = _LABELS | _TOLERATIONS
"""A plugin that reads at least so does with what `SeenPod.sight` says of a pod."""
Sight = tuple[tuple[bytes, ...], frozenset[tuple[str, str]], tuple[bytes, ...], str]
"""All that a pod says but the others, which are labels, tolerations, and the group that it belongs to."""


class SeenPod:
    """A template's pod as plugins may see it: without labels that nobody mentions, tolerations of unknown taints, and its group.

    Labels whose values nobody mentions have another one, that no pod has.
    """

    __slots__ = ("_known", "_table", "_template")

    def __init__(self, template: PodTemplate, table: NodeTable) -> None:
        self._template = template
        self._table = table
        self._known: dict[PodPart, Pod] = {}

    def pod(self, reads: PodPart) -> Pod:
        """The pod for a plugin that reads no more of it than this."""
        found = self._known.get(reads)
        if found is None:
            found = self._known[reads] = self._reduced(reads)
        return found

    def sight(self, reads: PodPart) -> Sight:
        """All that plugins see that read no more than this, ALL_BY_SIGHT at least; cheaper than a pod for them."""
        template, table = self._template, self._table
        counting = table.mentioned_labels.among(template.labels)
        covering = table.known_taints.counting(template.tolerations)
        return (
            template.bare,
            frozenset(counting.items()),
            tuple([toleration.SerializeToString(deterministic=True) for toleration in covering]),
            "" if _NO_GROUP in reads else template.pod_group,
        )

    def _reduced(self, reads: PodPart) -> Pod:
        template, pod = self._template, self._template.pod
        labels, tolerations = template.labels, template.tolerations
        counting = self._table.mentioned_labels.among(labels) if _LABELS in reads else labels
        covering = self._table.known_taints.counting(tolerations) if _TOLERATIONS in reads else tolerations
        leaves_group = template.pod_group != "" and _NO_GROUP in reads
        if counting == labels and len(covering) == len(tolerations) and not leaves_group:
            return pod
        reduced = Pod()
        reduced.CopyFrom(pod)
        if counting != labels:
            reduced.metadata.ClearField("labels")
            reduced.metadata.labels.update(counting)
        if len(covering) < len(tolerations):
            reduced.spec.ClearField("tolerations")
            reduced.spec.tolerations.extend(covering)
        if leaves_group:
            reduced.spec.ClearField("scheduling_group")
        return reduced
