"""Settings in an actor's process: a configuration travels as text and is read where it is used, plugins of users included; flags
travel as plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rayched.framework.configuration_file import Loaded, load
from rayched.framework.registry import load_entry_points, merge
from rayched.plugins.in_tree import IN_TREE


@dataclass(frozen=True)
class ProfilesText:
    """A KubeSchedulerConfiguration that was found to be right, and its name for messages."""

    text: str
    source: str


@dataclass(frozen=True)
class QueueFlags:
    """What flags say about the queue; a KubeSchedulerConfiguration has no fields for it."""

    unschedulable_seconds_max: float = 300.0
    """--pod-max-in-unschedulable-pods-duration: a pod that no event woke for longer is tried again."""
    retries_in_a_row_max: int = 0
    """--head-of-line-limit: attempts of pods tried before, after which the pod that waits longest has its turn; 0: never."""


DEFAULT_FLAGS: Final = QueueFlags()


def profiles_of(configuration: ProfilesText) -> Loaded:
    """Raises ConfigurationErrors and RegistryError, which the replica has ruled out before."""
    return load(configuration.text, configuration.source, merge(IN_TREE, load_entry_points()))
