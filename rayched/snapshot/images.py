"""Which images the nodes of a cluster have, how large they are and how many nodes have each.

The size of an image is the one reported by the node that first had it; it stays until no node has the image any more.

Source: imageStates of kube-scheduler's cache, 1.34. Cost: O(images of the node) for each change of a node's images.
"""

from __future__ import annotations

from rayched.v1.core_pb2 import Node

ReportedImages = tuple[tuple[str, int], ...]
"""(name, size in bytes) of each image on a node, each name once, in the order of the report."""


def reported_images(node: Node) -> ReportedImages:
    """What a node reports. A name that is listed twice counts with its first size."""
    sizes: dict[str, int] = {}
    for image in node.status.images:
        for name in image.names:
            sizes.setdefault(name, image.size_bytes)
    return tuple(sizes.items())


class ImageCensus:
    """Fills `states`: image to (size in bytes, number of nodes that have it)."""

    __slots__ = ("states",)

    def __init__(self, states: dict[str, tuple[int, int]]) -> None:
        self.states = states

    def add(self, images: ReportedImages) -> None:
        """A node has these images now."""
        for name, reported in images:
            size, nodes = self.states.get(name, (reported, 0))
            self.states[name] = size, nodes + 1

    def remove(self, images: ReportedImages) -> None:
        """A node has these images no longer."""
        for name, _ in images:
            size, nodes = self.states[name]
            if nodes == 1:
                del self.states[name]
            else:
                self.states[name] = size, nodes - 1
