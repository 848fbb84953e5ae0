"""Settings in an actor's process: a configuration travels as text and is read where it is used, plugins of users included."""

from __future__ import annotations

from dataclasses import dataclass

from rayched.actors.entry_points import load_entry_points
from rayched.configuration.configuration_file import Loaded, load
from rayched.framework.registry import merge
from rayched.plugins.in_tree import IN_TREE


@dataclass(frozen=True)
class ProfilesText:
    """A KubeSchedulerConfiguration that was found to be right, and its name for messages."""

    text: str
    source: str


def profiles_of(configuration: ProfilesText) -> Loaded:
    """Raises ConfigurationErrors and RegistryError, which the replica has ruled out before."""
    return load(configuration.text, configuration.source, merge(IN_TREE, load_entry_points()))
