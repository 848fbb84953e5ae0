"""What plugins see of a template's pod: nothing that makes no difference to them.

Owner: whoever plans the template; void when labels are mentioned, or taints come up, for the first time.
"""

from __future__ import annotations

from typing import Final

from rayched.framework.plugin import PodPart
from rayched.snapshot.table import NodeTable
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Pod

ALL_BY_SIGHT: Final = PodPart.LABELS_BY_SELECTOR | PodPart.TOLERATIONS_OF_TAINTS
"""A plugin that reads so does with what `SeenPod.sight` says of a pod."""
Sight = tuple[tuple[bytes, ...], frozenset[tuple[str, str]], tuple[bytes, ...]]
"""All that a pod says but labels and tolerations, labels, tolerations."""


class SeenPod:
    """A template's pod as plugins may see it: without labels that nobody mentions, without tolerations of unknown taints.

    Labels whose values nobody mentions have another one, that no pod has.
    """

    __slots__ = ("_known", "_sight", "_table", "_template")

    def __init__(self, template: PodTemplate, table: NodeTable) -> None:
        self._template = template
        self._table = table
        self._known: dict[PodPart, Pod] = {}
        self._sight: Sight | None = None

    def pod(self, reads: PodPart) -> Pod:
        """The pod for a plugin that reads no more of it than this."""
        found = self._known.get(reads)
        if found is None:
            found = self._known[reads] = self._reduced(reads)
        return found

    def sight(self) -> Sight:
        """All that plugins see where every one of them reads labels and tolerations so; cheaper than a pod for them."""
        if self._sight is None:
            template, table = self._template, self._table
            counting = table.mentioned_labels.among(template.labels)
            covering = table.known_taints.counting(template.tolerations)
            self._sight = (
                template.bare,
                frozenset(counting.items()),
                tuple([toleration.SerializeToString(deterministic=True) for toleration in covering]),
            )
        return self._sight

    def _reduced(self, reads: PodPart) -> Pod:
        template, pod = self._template, self._template.pod
        labels, tolerations = template.labels, template.tolerations
        counting = self._table.mentioned_labels.among(labels) if PodPart.LABELS_BY_SELECTOR in reads else labels
        covering = self._table.known_taints.counting(tolerations) if PodPart.TOLERATIONS_OF_TAINTS in reads else tolerations
        if counting == labels and len(covering) == len(tolerations):
            return pod
        reduced = Pod()
        reduced.CopyFrom(pod)
        if counting != labels:
            reduced.metadata.ClearField("labels")
            reduced.metadata.labels.update(counting)
        if len(covering) < len(tolerations):
            reduced.spec.ClearField("tolerations")
            reduced.spec.tolerations.extend(covering)
        return reduced
