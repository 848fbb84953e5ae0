"""Plugins under test, known to a scheduler without being installed: as a registry in this process, by entry points in others."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from rayched.actors.entry_points import ENTRY_POINT_GROUP, load_entry_points
from rayched.framework.registry import Registry, merge
from rayched.plugins.in_tree import IN_TREE

Plugins: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""Factories by name, usually classes: of column plugins, per-pod plugins or simple plugins."""

_DISTRIBUTION = "plugins_under_test-0.dist-info"


def registry_with(plugins: Plugins) -> Registry:
    """The plugins in the tree, the installed ones and these."""
    installed = {name: factory for name, factory in load_entry_points().items() if name not in plugins}
    return merge(IN_TREE, installed, plugins)


def configuration_with(plugins: Plugins) -> str:
    """A KubeSchedulerConfiguration whose one profile has the default plugins and these, each with weight 1."""
    enabled = ", ".join(f"{{name: {name}}}" for name in plugins)
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "profiles:\n"
        "- schedulerName: default-scheduler\n"
        f"  plugins: {{multiPoint: {{enabled: [{enabled}]}}}}\n"
    )


def python_path_with(plugins: Plugins, directory: Path) -> str:
    """A $PYTHONPATH under which other processes find these plugins by their entry points; writes metadata below `directory`.

    Raises ValueError for a factory that cannot be imported by module and name.
    """
    metadata = directory / _DISTRIBUTION
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-under-test\nVersion: 0\n")
    lines = [f"{name} = {factory.__module__}:{factory.__qualname__}" for name, factory in plugins.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINT_GROUP}]", *lines, ""]))
    roots = {str(_root_of(factory)): None for factory in plugins.values()}
    inherited = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([str(directory), *roots, *([inherited] if inherited else [])])


def _root_of(factory: Callable[[Any], Any]) -> Path:
    """The directory from which the factory's module is imported."""
    name = factory.__module__
    file = getattr(importlib.import_module(name), "__file__", None) if name != "__main__" else None
    if file is None or "<" in factory.__qualname__:
        raise ValueError(f"plugin {factory.__qualname__} of {name}: other processes need it at the top of a module in a file")
    path = Path(file).resolve()
    return path.parents[len(name.split(".")) - (0 if path.name == "__init__.py" else 1)]
