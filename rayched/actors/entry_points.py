"""Plugins of users: installed packages with an entry point in the group `rayched.plugins`.

Its name is the plugin's name, its value the factory, usually the class.
"""

from __future__ import annotations

from importlib import metadata
from typing import Final

from rayched.framework.registry import PluginFactory, Registry, RegistryError

ENTRY_POINT_GROUP: Final = "rayched.plugins"


def load_entry_points() -> Registry:
    """The installed plugins of users. Reads the environment's package metadata and imports what it names."""
    return registry_of(metadata.entry_points(group=ENTRY_POINT_GROUP))


def registry_of(entry_points: metadata.EntryPoints) -> Registry:
    """The factories behind these entry points."""
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
        found[entry_point.name] = factory
    return found
