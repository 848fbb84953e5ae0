"""How patient the leader is with nodes and with pods that end.

Names and defaults are kube-controller-manager's of 1.34 where it has them. A value; checked as a whole when it is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


class NodeSettingsError(ValueError):
    """A setting that cannot be used: one line, naming the flag, what was found and what is allowed."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """All in seconds, or evictions per second, but for the last two of the zones and the last one of pods."""

    node_monitor_period: float = 5.0
    """Between two looks at the heartbeats of nodes."""
    node_monitor_grace_period: float = 50.0
    """A node is unreachable when its heartbeat has not changed for so long."""
    node_startup_grace_period: float = 60.0
    """The same for a node whose agent has never said how it is."""
    node_eviction_rate: float = 0.1
    """Nodes a second of one zone whose pods may begin to be evicted, because the node was lost."""
    secondary_node_eviction_rate: float = 0.01
    """The same where much of a large zone is lost; in a small one then nothing is evicted."""
    orphan_quarantine: float = 40.0
    """Pods of a node that is gone for so long are gone too."""
    termination_margin: float = 20.0
    """A pod that is still there so long after it had to be gone is removed by force."""
    unhealthy_zone_threshold: float = 0.55
    """The part of a zone's nodes that has to be lost for much of it to be lost."""
    large_cluster_size_threshold: int = 50
    """Nodes above which a zone is large."""
    terminated_pod_gc_threshold: int = 12_500
    """So many pods that have ended stay, the oldest of more are removed; 0: all stay."""

    def __post_init__(self) -> None:
        for one in fields(self):
            found = getattr(self, one.name)
            if not math.isfinite(found) or found < 0:
                raise NodeSettingsError(f"{flag_of(one.name)} {found:g}: allowed are numbers from 0 on")
        if self.node_monitor_period < 0.05:
            raise NodeSettingsError(f"--node-monitor-period {self.node_monitor_period:g}: allowed are 0.05 s and more")
        if self.node_monitor_grace_period < 2 * self.node_monitor_period:
            raise NodeSettingsError(
                f"--node-monitor-grace-period {self.node_monitor_grace_period:g}: "
                f"allowed is twice --node-monitor-period ({self.node_monitor_period:g}) and more"
            )
        if self.unhealthy_zone_threshold > 1:
            raise NodeSettingsError(f"--unhealthy-zone-threshold {self.unhealthy_zone_threshold:g}: allowed are 0 to 1")


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")
