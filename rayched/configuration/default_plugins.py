"""The default profile of kube-scheduler 1.34 as a table: which plugins, in which order, with which weight.

Order matters: it is the order of Filter, so it decides which plugin's reason a node is counted under.
Weight 0 stands for "no Score plugin". Plugins of this table that the registry lacks are left out of a profile in silence;
a configuration file that names them gets a warning.

Source: getDefaultPlugins of kube-scheduler 1.34, without volume plugins and DynamicResources (DROPPED).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rayched.framework import names

DEFAULT_PLUGINS: Final[tuple[tuple[str, int], ...]] = (
    (names.SCHEDULING_GATES, 0),
    (names.PRIORITY_SORT, 0),
    (names.NODE_UNSCHEDULABLE, 0),
    (names.NODE_NAME, 0),
    (names.TAINT_TOLERATION, 3),
    (names.NODE_AFFINITY, 2),
    (names.NODE_PORTS, 0),
    (names.NODE_RESOURCES_FIT, 1),
    (names.POD_TOPOLOGY_SPREAD, 2),
    (names.INTER_POD_AFFINITY, 2),
    (names.DEFAULT_PREEMPTION, 0),
    (names.NODE_RESOURCES_BALANCED_ALLOCATION, 1),
    (names.IMAGE_LOCALITY, 1),
    (names.DEFAULT_BINDER, 0),
)

DROPPED: Final[Mapping[str, str]] = {
    names.VOLUME_RESTRICTIONS: "volumes are not scheduled here",
    names.NODE_VOLUME_LIMITS: "volumes are not scheduled here",
    names.VOLUME_BINDING: "volumes are not scheduled here",
    names.VOLUME_ZONE: "volumes are not scheduled here",
    names.DYNAMIC_RESOURCES: "resource claims are not scheduled here",
}
"""Plugins of kube-scheduler 1.34 that do not exist here, and why; naming one is a warning."""

REMOVED: Final[Mapping[str, str]] = {
    "AzureDiskLimits": "NodeVolumeLimits took its place, and volumes are not scheduled here",
    "CinderLimits": "NodeVolumeLimits took its place, and volumes are not scheduled here",
    "EBSLimits": "NodeVolumeLimits took its place, and volumes are not scheduled here",
    "GCEPDLimits": "NodeVolumeLimits took its place, and volumes are not scheduled here",
    "SelectorSpread": "PodTopologySpread with its system defaults took its place",
    "ServiceAffinity": "it went with the Policy API; use InterPodAffinity",
    "NodeLabel": "it went with the Policy API; use NodeAffinity with addedAffinity",
    "NodePreferAvoidPods": "use a taint with the effect PreferNoSchedule",
    "NodeResourcesLeastAllocated": "use NodeResourcesFit with scoringStrategy.type LeastAllocated",
    "NodeResourcesMostAllocated": "use NodeResourcesFit with scoringStrategy.type MostAllocated",
    "RequestedToCapacityRatio": "use NodeResourcesFit with scoringStrategy.type RequestedToCapacityRatio",
}
"""Plugins of earlier versions, and what to write in their place; naming one is an error."""
