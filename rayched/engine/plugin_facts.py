"""What the engine has to know of a plugin to choose how it is asked: a record, made once a profile.

It takes microseconds to find out what forms a plugin has, and one to compare sets of flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rayched.framework.accelerated import DomainFilterPlugin, GroupingScorePlugin, ResourcePlugin, StackingPlugin
from rayched.framework.contract import has_form, reads_pod
from rayched.framework.plugin import ColumnPlugin, CountingPlugin, NormalizingPlugin, PodPart
from rayched.framework.profile import Profile
from rayched.snapshot.columns import Log

VOLATILE: Final = Log.USAGE | Log.PORTS
"""Aspects that bindings change. A plugin that reads one of them has its columns refreshed at each decision."""


@dataclass(frozen=True, slots=True)
class PluginFacts:
    plugin: ColumnPlugin
    counts: bool
    """Its answers depend on counters."""
    normalizes: bool
    """Its raw scores are brought to 0..100 by bounds."""
    needs: bool
    """Its filter can be asked as amounts that have to be free."""
    stacks: bool
    """It can be asked on behalf of many keys at once."""
    blocks_domains: bool
    """Its filter can be asked as domains that are refused."""
    groups: bool
    """Its score can be asked by group of rows."""
    is_volatile: bool
    """Bindings change its answers, on the row itself."""
    reads_usage: bool
    reads_usage_alone: bool
    reads_pod: PodPart


def facts_of(profile: Profile) -> Mapping[str, PluginFacts]:
    """Of each plugin that is asked about nodes, by name, in the order in which an attempt first meets them."""
    asked: list[ColumnPlugin] = [*profile.pre_filter, *profile.filter, *profile.score]
    return {name: _facts(plugin) for name, plugin in {plugin.name: plugin for plugin in asked}.items()}


def _facts(plugin: ColumnPlugin) -> PluginFacts:
    return PluginFacts(
        plugin,
        counts=has_form(plugin, CountingPlugin),
        normalizes=has_form(plugin, NormalizingPlugin),
        needs=has_form(plugin, ResourcePlugin),
        stacks=has_form(plugin, StackingPlugin),
        blocks_domains=has_form(plugin, DomainFilterPlugin),
        groups=has_form(plugin, GroupingScorePlugin),
        is_volatile=bool(plugin.reads & VOLATILE),
        reads_usage=bool(plugin.reads & Log.USAGE),
        reads_usage_alone=plugin.reads == Log.USAGE,
        reads_pod=reads_pod(plugin),
    )
