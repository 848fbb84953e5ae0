"""The registry: which plugin names exist, and how each is made from its arguments.

A factory gets the plugin's arguments: for in-tree plugins a value of `framework.plugin_args` (or None for a plugin without
arguments), for plugins of users what stands under `args` in the configuration file, as plain dicts, lists and scalars, or None.
The in-tree table lives in `plugins.in_tree`; this room knows no concrete plugin. `actors.entry_points` finds those of users.

Source: Registry and its Merge of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

PluginFactory: TypeAlias = Callable[[Any], Any]
"""Gives a plugin of any form; whoever builds profiles proves it."""
Registry: TypeAlias = Mapping[str, PluginFactory]


class RegistryError(ValueError):
    """A plugin that cannot be registered: one line, naming it and where it comes from."""


def merge(*registries: Registry) -> Registry:
    """All plugins of all registries. No name may come twice: a second one would replace a rule in silence."""
    merged: dict[str, PluginFactory] = {}
    for registry in registries:
        for name, factory in registry.items():
            if name in merged:
                raise RegistryError(f'plugin "{name}" exists twice: give the one of the entry point another name')
            merged[name] = factory
    return merged
