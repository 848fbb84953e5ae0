"""The configuration in force, as /configz shows it: the replica's settings, the KubeSchedulerConfiguration with its defaults, and
what came of it, the plugins of each profile in their order with their weights.

Arguments of plugins that are not ours are left out: nobody knows what they hold.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rayched.configuration.configuration import PluginConfig
from rayched.configuration.configuration_file import Loaded
from rayched.framework.extension_points import ExtensionPoint
from rayched.framework.profile import Profile
from rayched.replica.settings import ReplicaSettings

_REDACTED: Final = "<redacted>"


def configuration_shown(settings: ReplicaSettings, loaded: Loaded) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    return {
        "replica": shown(settings),
        "kubescheduler.config.k8s.io": shown(loaded.configuration),
        "profiles": {name: _profile(profile) for name, profile in loaded.profiles.items()},
    }


def shown(value: Any) -> Any:
    """Fields in camel case, as Kubernetes writes them."""
    if isinstance(value, PluginConfig) and not dataclasses.is_dataclass(value.args) and value.args is not None:
        return {"name": value.name, "args": _REDACTED}
    if dataclasses.is_dataclass(value):
        return {_camel(field.name): shown(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return shown(value.value)
    if isinstance(value, Mapping):
        return {str(shown(key)): shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [shown(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _profile(profile: Profile) -> dict[str, Any]:
    found: dict[str, Any] = {"percentageOfNodesToScore": profile.percentage_of_nodes_to_score, "plugins": {}}
    for point in ExtensionPoint:
        plugins = getattr(profile, point.name.lower(), ())
        of_point = [
            {"name": plugin.name} | ({"weight": profile.weights[plugin.name]} if point is ExtensionPoint.SCORE else {})
            for plugin in (plugins if isinstance(plugins, tuple) else (plugins,))
        ]
        if of_point:
            found["plugins"][point.value] = of_point
    return found


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
