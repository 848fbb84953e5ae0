"""The registrations and hints that a scheduler of the default profile runs with, and what the recorded one had beside them.

Plugins come from the profile. The recorded scheduler also had volume plugins: they reject nobody there, but an event that one of
them registered for is not an event of no interest, so their registrations belong to the setting of the recorded cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rayched.configuration.profile_building import default_profile
from rayched.framework import names
from rayched.framework.cluster_event import Action, ClusterEvent, Resource
from rayched.framework.queueing_hints import Registration
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.hints import HintTable, registrations_of

SCHEDULER: Final = "default-scheduler"

_VOLUMES: Final = {
    names.VOLUME_BINDING: (Registration(ClusterEvent(Resource.CSI_NODE, Action.ADD | Action.UPDATE)),),
}


@lru_cache(maxsize=1)
def registrations() -> dict[str, Sequence[Registration]]:
    """By plugin."""
    return {plugin.name: registrations_of(plugin) for plugin in default_profile(IN_TREE).plugins()}


def hint_table() -> HintTable:
    """What the recorded queue was built with."""
    return HintTable({SCHEDULER: registrations() | _VOLUMES})
