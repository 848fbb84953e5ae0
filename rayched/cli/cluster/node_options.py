"""Options on how the leader treats nodes that are lost and pods that end; names and defaults as in Kubernetes' own programs."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from rayched.api.durations import duration_seconds
from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.node_settings import NodeSettings, flag_of

NODES = NodeSettings()
TOLERATIONS = DefaultTolerations()
_DURATIONS = ("_period", "_quarantine", "_margin")


def _seconds(text: str | float) -> float:
    if isinstance(text, float):
        return text
    found = duration_seconds(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration; want one such as 500ms, 50s or 1m30s")
    return found


def _duration(help_text: str, default: float) -> Any:
    return typer.Option(metavar="DURATION", help=help_text, parser=_seconds, show_default=f"{default:g}s")


MonitorPeriod = Annotated[float, _duration("Between two looks at heartbeats.", NODES.node_monitor_period)]
MonitorGrace = Annotated[float, _duration("A node silent for longer is unreachable.", NODES.node_monitor_grace_period)]
StartupGrace = Annotated[float, _duration("The same for a node that has not reported yet.", NODES.node_startup_grace_period)]
OrphanQuarantine = Annotated[float, _duration("Pods of a node gone for longer are removed.", NODES.orphan_quarantine)]
TerminationMargin = Annotated[float, _duration("A pod not stopped so long after its time is removed.", NODES.termination_margin)]
EvictionRate = Annotated[float, typer.Option(metavar="RATE", help="Lost nodes of a zone to be emptied per second.")]
SecondaryEvictionRate = Annotated[float, typer.Option(metavar="RATE", help="The same when much of a large zone is lost.")]
UnhealthyZone = Annotated[
    float, typer.Option(metavar="PART", help="When this share of a zone's nodes is lost, evictions slow down.")
]
LargeCluster = Annotated[int, typer.Option(metavar="N", help="Larger zones keep evicting slowly; smaller zones stop.")]
TerminatedPods = Annotated[int, typer.Option(metavar="N", help="Ended pods that are kept; 0: all.", min=0)]
NotReadySeconds = Annotated[
    int, typer.Option(metavar="SECONDS", help="How long new pods stay on a node that is not ready.", min=0)
]
UnreachableSeconds = Annotated[int, typer.Option(metavar="SECONDS", help="How long new pods stay on an unreachable node.", min=0)]


def node_flags(nodes: NodeSettings, tolerations: DefaultTolerations) -> list[str]:
    """The flags of `rayched replica` that say so; those of defaults are left out."""
    flags = []
    for one in fields(nodes):
        if getattr(nodes, one.name) != getattr(NODES, one.name):
            unit = "s" if one.name.endswith(_DURATIONS) else ""
            flags += [flag_of(one.name), f"{getattr(nodes, one.name)}{unit}"]
    for name, seconds, default in (
        ("not-ready", tolerations.not_ready_seconds, TOLERATIONS.not_ready_seconds),
        ("unreachable", tolerations.unreachable_seconds, TOLERATIONS.unreachable_seconds),
    ):
        if seconds != default:
            flags += [f"--default-{name}-toleration-seconds", str(seconds)]
    return flags
