"""How large an object may be. Kubernetes bounds a request's size and little else, so the cost of one pod is unbounded there.

Every number here bounds work that scheduling does for each pod or each node.
"""

from __future__ import annotations

from typing import Final

POD_BYTES: Final = 256 * 1024
OBJECT_BYTES: Final = 512 * 1024
"""Of any other kind; two of them fit into one transaction."""
ANNOTATION_BYTES: Final = 256 * 1024
UID_CHARACTERS: Final = 253

LABELS: Final = 64
ANNOTATIONS: Final = 1_024
OWNERS: Final = 32
CONTAINERS: Final = 64
"""Init containers counted."""
PORTS: Final = 64
"""Of one container."""
RESOURCES: Final = 32
"""Names in one list of requests, limits, overhead."""
NODE_RESOURCES: Final = 64
NODE_SELECTOR_TERMS: Final = 100
"""Required or preferred; the same for each."""
EXPRESSIONS: Final = 32
"""Of one term or selector."""
VALUES: Final = 100
"""Of one expression."""
POD_AFFINITY_TERMS: Final = 32
"""Affinity and anti-affinity, required and preferred: each list."""
NAMESPACES: Final = 100
"""Of one affinity term."""
LABEL_KEYS: Final = 32
"""matchLabelKeys, mismatchLabelKeys."""
SPREAD_CONSTRAINTS: Final = 16
TOLERATIONS: Final = 64
TAINTS: Final = 64
SCHEDULING_GATES: Final = 64
IMAGES: Final = 1_000
"""Of one node; with several names each."""
IMAGE_NAMES: Final = 64
ERRORS: Final = 500
"""Errors of one object that are kept."""
