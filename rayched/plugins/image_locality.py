"""ImageLocality: prefer nodes that have the pod's images already.

Score: the sizes of the pod's images that are on the node, each scaled by the share of nodes that have it, so that a rare image
does not draw all pods to its one node; clamped to 23 MiB .. 1000 MiB for each container and mapped onto 0..100. Init containers
count. Never skipped: a pod whose images are nowhere gets 0 everywhere.

Source: node.status.images (core/v1), kube-scheduler 1.34. Floats as there: size * (nodes with it / nodes), cut to an integer.
Cost: nothing where no node has one of the images; otherwise one look at each set of images among the rows for each of the pod's
images (60 ns), and one gather. The share makes the whole column stale when any node's images change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from rayched.framework import names
from rayched.framework.plugin import MAX_NODE_SCORE, PodPart, PodReadingPlugin, ScorePlugin
from rayched.snapshot.columns import Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod

_MEBIBYTE: Final = 1024 * 1024
SUM_MIN: Final = 23 * _MEBIBYTE
"""Less than this is not worth a preference; does not grow with the number of containers."""
SUM_MAX_PER_CONTAINER: Final = 1000 * _MEBIBYTE


@dataclass(frozen=True, slots=True)
class Images:
    counts: tuple[tuple[str, int], ...]
    """Each image with the number of containers that use it."""
    containers: int


class ImageLocality(ScorePlugin, PodReadingPlugin):
    name: Final = names.IMAGE_LOCALITY
    reads: Final = Log.IMAGES
    reads_pod: Final = PodPart.LEAST

    def key(self, pod: Pod) -> tuple[tuple[str, int], ...]:
        """The images with their tags, in any order."""
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        if len(containers) == 1:
            return ((tagged(containers[0].image), 1),)
        return tuple(sorted(Counter(tagged(container.image) for container in containers).items()))

    def prepare(self, pod: Pod) -> Images:
        return Images(self.key(pod), len(pod.spec.init_containers) + len(pod.spec.containers))

    def score(self, state: Images, rows: Rows) -> ScoreColumn:
        """Shape (rows,), int64, 0..100."""
        bytes_of = {image: count * scaled for image, count in state.counts if (scaled := _scaled_size(image, rows))}
        if not bytes_of:
            return np.zeros(rows.n, np.int64)
        sets = rows.snapshot.image_sets
        numbers = np.unique(rows.image_set)
        numbers = numbers[numbers >= 0]
        held = [sets[number] for number in numbers.tolist()]
        total = np.zeros(len(held), np.int64)
        for image, size_bytes in bytes_of.items():
            total += np.array([image in images for images in held], np.bool_) * np.int64(size_bytes)
        highest = SUM_MAX_PER_CONTAINER * state.containers
        scores = np.zeros(len(sets) + 1, np.int64)
        scores[numbers] = MAX_NODE_SCORE * (np.clip(total, SUM_MIN, highest) - SUM_MIN) // (highest - SUM_MIN)
        return scores[rows.image_set]


def tagged(image: str) -> str:
    """The image's name as nodes report it: without a tag it means the latest."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _scaled_size(image: str, rows: Rows) -> int:
    size_bytes, nodes_with = rows.snapshot.image_state(image)
    if not nodes_with:
        return 0
    return int(float(size_bytes) * (float(nodes_with) / float(rows.snapshot.n_nodes)))
