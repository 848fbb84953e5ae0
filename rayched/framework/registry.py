"""The registry: which plugin names exist, and how each is made from its arguments.

A factory gets the plugin's arguments: for in-tree plugins a value of `framework.plugin_args` (or None for a plugin without
arguments), for plugins of users what stands under `args` in the configuration file, as plain dicts, lists and scalars, or None.
The in-tree table lives in `plugins.in_tree`; this room knows no concrete plugin. Plugins of users are installed packages with an
entry point in the group `rayched.plugins`: its name is the plugin's name, its value the factory, usually the class.

Source: Registry and its Merge of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Final, TypeAlias

from rayched.framework import simple_plugin
from rayched.framework.plugin import Plugin

ENTRY_POINT_GROUP: Final = "rayched.plugins"

PluginFactory: TypeAlias = Callable[[Any], Plugin]
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


def load_entry_points() -> Registry:
    """The installed plugins of users. Reads the environment's package metadata and imports what it names."""
    return registry_of(metadata.entry_points(group=ENTRY_POINT_GROUP))


def registry_of(entry_points: metadata.EntryPoints) -> Registry:
    """The factories behind these entry points; simple plugins are lifted to rows."""
    found: dict[str, PluginFactory] = {}
    for entry_point in entry_points:
        try:
            factory = entry_point.load()
        except Exception as problem:
            raise RegistryError(
                f'plugin "{entry_point.name}" ({entry_point.value}) cannot be imported: {type(problem).__name__}: {problem}'
            ) from problem
        if not callable(factory):
            raise RegistryError(f'plugin "{entry_point.name}" ({entry_point.value}) is no class or function that makes a plugin')
        if entry_point.name in found:
            raise RegistryError(f'plugin "{entry_point.name}" ({entry_point.value}) exists twice among the installed packages')
        found[entry_point.name] = simple_plugin.lifting(entry_point.name, factory)
    return found
