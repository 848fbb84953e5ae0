"""Options of `rayched node` on node-pressure eviction; names and defaults are kubelet's, whose old ones are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rayched.cli.printing import note, wrong
from rayched.nodes.agent.eviction.manager import EvictionSettings
from rayched.nodes.agent.eviction.thresholds import (
    DEFAULT_HARD,
    EvictionFlags,
    ThresholdError,
    duration,
    ignored,
    thresholds_of,
)

_SIGNALS = "SIGNAL<AMOUNT,..."
_VALUES = "SIGNAL=VALUE,..."


@dataclass(frozen=True, kw_only=True)
class EvictionOptions:
    """As they were given."""

    eviction_hard: Annotated[
        str | None,
        typer.Option(metavar=_SIGNALS, help="A pod is killed at once below these.", show_default=DEFAULT_HARD.replace(",", ", ")),
    ] = None
    eviction_soft: Annotated[
        str, typer.Option(metavar=_SIGNALS, help="A pod is ended when it was below these for a while.", show_default=False)
    ] = ""
    eviction_soft_grace_period: Annotated[
        str, typer.Option(metavar=_VALUES, help="For how long; each soft threshold needs one.", show_default=False)
    ] = ""
    eviction_max_pod_grace_period: Annotated[
        int, typer.Option(metavar="SECONDS", help="Grace of pods that a soft threshold ends; negative: their own.")
    ] = 0
    eviction_minimum_reclaim: Annotated[
        str, typer.Option(metavar=_VALUES, help="Evict until this much above a threshold is free.", show_default=False)
    ] = ""
    eviction_pressure_transition_period: Annotated[
        str, typer.Option(metavar="DURATION", help="A condition of pressure holds so long after it was seen last.")
    ] = "5m"
    eviction_merge_defaults: Annotated[
        bool, typer.Option("--eviction-merge-defaults", help="Keep the defaults of signals that are not given.")
    ] = False

    def settings(self) -> EvictionSettings:
        """Ends the command where they make no sense."""
        try:
            thresholds = thresholds_of(
                EvictionFlags(
                    self.eviction_hard,
                    self.eviction_soft,
                    self.eviction_soft_grace_period,
                    self.eviction_minimum_reclaim,
                    self.eviction_merge_defaults,
                )
            )
            transition = duration("--eviction-pressure-transition-period", self.eviction_pressure_transition_period)
        except ThresholdError as error:
            wrong(str(error))
        for warning in ignored(thresholds):
            note(f"Warning: {warning}")
        return EvictionSettings(thresholds, self.eviction_max_pod_grace_period, transition)
