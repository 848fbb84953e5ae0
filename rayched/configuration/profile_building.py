"""Profiles made out of a configuration and a registry: default plugins merged in, MultiPoint expanded, weights found.

For each extension point, in kube-scheduler's order of precedence:

1. what the profile enables there and also through MultiPoint (the default plugins among it), in the order given there;
2. what MultiPoint enables (first the default plugins, then the profile's own) and the extension point does not disable;
3. what else the profile enables there.

`disabled: [{name: "*"}]` at an extension point leaves what is enabled there; under multiPoint it drops the default plugins. A
plugin that is enabled and disabled at the same place is enabled, and comes under 3. What `score` says about a weight beats what
`multiPoint` says, and that the default plugin's weight; an entry without a weight says 1.

Each plugin is made once a profile, from its pluginConfig or its defaults. All that is wrong comes back at once, as FieldErrors.

Source: mergePlugins, expandMultiPointPlugins and NewFramework of kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rayched.api.errors import FieldError, did_you_mean, quoted
from rayched.configuration import default_plugins
from rayched.configuration.configuration import (
    EVERY_PLUGIN,
    Configuration,
    PluginReference,
    PluginSet,
    ProfileConfiguration,
)
from rayched.framework import contract
from rayched.framework.extension_points import PROTOCOLS, ExtensionPoint
from rayched.framework.plugin import MAX_NODE_SCORE, Plugin
from rayched.framework.profile import Profile, TimeBudget
from rayched.framework.raised import place_of
from rayched.framework.registry import Registry
from rayched.framework.simple_plugin import lift

TOTAL_SCORE_MAX: Final = 2**31 - 1
"""The highest total that a node may get: 100 times the sum of the weights."""

_KNOWN_NAMES: Final = frozenset(name for name, _ in default_plugins.DEFAULT_PLUGINS)


@dataclass(frozen=True, slots=True)
class BuiltProfiles:
    """Profiles by scheduler name; empty where there are errors."""

    profiles: Mapping[str, Profile]
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[FieldError, ...] = ()


def build_profiles(configuration: Configuration, registry: Registry) -> BuiltProfiles:
    """All profiles of a configuration that is valid in itself. Their QueueSort plugins are equal, as the rules want it."""
    profiles: dict[str, Profile] = {}
    builds = [_Build(profile, f"profiles[{i}]", registry, configuration) for i, profile in enumerate(configuration.profiles)]
    for build in builds:
        profile = build.profile()
        if profile is not None:
            profiles[profile.scheduler_name] = profile
    errors = tuple(error for build in builds for error in build.errors)
    warnings = tuple(warning for build in builds for warning in build.warnings)
    return BuiltProfiles({} if errors else profiles, errors, warnings)


def default_profile(registry: Registry) -> Profile:
    """The profile that holds where nobody configures anything."""
    built = build_profiles(Configuration(), registry)
    if built.errors:
        raise ValueError("; ".join(map(str, built.errors)))
    (profile,) = built.profiles.values()
    return profile


@dataclass(slots=True)
class _Build:
    """One profile on its way."""

    said: ProfileConfiguration
    path: str
    registry: Registry
    configuration: Configuration
    errors: list[FieldError] = field(default_factory=list)
    warnings: list[FieldError] = field(default_factory=list)
    made: dict[str, Plugin] = field(default_factory=dict)

    def profile(self) -> Profile | None:
        self._warn_of_unknown_names()
        multi_point = self._multi_point()
        needed = dict.fromkeys(reference.name for reference in multi_point)
        for point in PROTOCOLS:
            needed.update(dict.fromkeys(self._own(point)))
        shadows = self._shadows(needed)
        needed.update(dict.fromkeys(shadows))
        self._make(needed)
        points = {point: self._expand(point, multi_point) for point in PROTOCOLS}
        queue_sort, bind = points[ExtensionPoint.QUEUE_SORT], points[ExtensionPoint.BIND]
        if len(queue_sort) != 1:
            found = ", ".join(plugin.name for plugin in queue_sort) or "none"
            self._error("plugins.queueSort", f"exactly one QueueSort plugin is needed, found {found}")
        if not bind:
            self._error("plugins.bind", "at least one Bind plugin is needed, found none")
        score = points[ExtensionPoint.SCORE]
        weights = self._weights(score, multi_point)
        # Without any Score plugin PreScore is not asked either.
        pre_score_alone = tuple(plugin for plugin in points[ExtensionPoint.PRE_SCORE] if score and plugin not in score)
        weights.update({plugin.name: 0 for plugin in pre_score_alone})
        asked = {plugin.name for plugins in points.values() for plugin in plugins}
        budgets = self._time_budgets(asked | {self.made[name].name for name in shadows if name in self.made})
        if self.errors:
            return None
        percentage = self.said.percentage_of_nodes_to_score
        profile = Profile(
            scheduler_name=self.said.scheduler_name,
            pre_enqueue=points[ExtensionPoint.PRE_ENQUEUE],
            queue_sort=queue_sort[0],
            pre_filter=points[ExtensionPoint.PRE_FILTER],
            filter=points[ExtensionPoint.FILTER],
            post_filter=points[ExtensionPoint.POST_FILTER],
            score=(*score, *pre_score_alone),
            weights=weights,
            reserve=points[ExtensionPoint.RESERVE],
            permit=points[ExtensionPoint.PERMIT],
            pre_bind=points[ExtensionPoint.PRE_BIND],
            bind=bind,
            post_bind=points[ExtensionPoint.POST_BIND],
            time_budgets=budgets,
            percentage_of_nodes_to_score=(self.configuration.percentage_of_nodes_to_score if percentage is None else percentage),
        )
        return replace(profile, shadow=self._shadowed(profile, shadows)) if shadows else profile

    # -------------------------------------------------------------------------------------------------- references

    def _warn_of_unknown_names(self) -> None:
        """Kubernetes' plugins that are not here are warned of; names that nobody knows are errors."""
        for point, plugins in self.said.plugins.items():
            for i, reference in enumerate(plugins.enabled):
                self._check_name(reference.name, f"plugins.{point.value}.enabled[{i}].name")
            for i, name in enumerate(plugins.disabled):
                if name != EVERY_PLUGIN and not self._is_kubernetes_name(name):
                    self._check_name(name, f"plugins.{point.value}.disabled[{i}].name")
        for i, plugin in enumerate(self.said.plugin_config):
            self._check_name(plugin.name, f"pluginConfig[{i}].name")

    def _check_name(self, name: str, where: str) -> None:
        if not name or name in self.registry or name in default_plugins.REMOVED or name == EVERY_PLUGIN:
            return
        if name in default_plugins.DROPPED:
            self._warn(where, f"{quoted(name)} is left out: {default_plugins.DROPPED[name]}")
        elif name in _KNOWN_NAMES:
            self._warn(where, f"{quoted(name)} is left out: this version does not have it")
        else:
            self._error(where, self._not_installed(name))

    def _not_installed(self, name: str) -> str:
        known = sorted(self.registry)
        return f"{quoted(name)} is no plugin that is installed; there are {', '.join(known)}{did_you_mean(name, known)}"

    def _is_kubernetes_name(self, name: str) -> bool:
        return name in _KNOWN_NAMES or name in default_plugins.DROPPED

    def _multi_point(self) -> list[PluginReference]:
        """The default plugins as the profile changes them, then the plugins that it adds. Repeated names stay repeated."""
        said = self.said.plugin_set(ExtensionPoint.MULTI_POINT)
        overrides = {reference.name: reference for reference in said.enabled}
        merged: list[PluginReference] = []
        replaced: set[str] = set()
        for name, weight in default_plugins.DEFAULT_PLUGINS:
            if said.disables_all or name in said.disabled or name not in self.registry:
                continue
            override = overrides.get(name)
            if override is not None:
                replaced.add(name)
            merged.append(PluginReference(name, weight) if override is None else override)
        for reference in said.enabled:
            if reference.name in self.registry and not (reference.name in replaced and overrides[reference.name] is reference):
                merged.append(reference)
        return merged

    def _own(self, point: ExtensionPoint) -> list[str]:
        """Names that the profile enables at the extension point itself."""
        return [r.name for r in self.said.plugin_set(point).enabled if r.name in self.registry]

    # ------------------------------------------------------------------------------------------------------ making

    def _make(self, needed: Mapping[str, Any]) -> None:
        args = {plugin.name: (i, plugin.args) for i, plugin in enumerate(self.said.plugin_config)}
        for name in needed:
            i, given = args.get(name, (None, None))
            where = "plugins" if i is None else f"pluginConfig[{i}].args"
            try:
                made = self.registry[name](given)
                wrong = contract.faults(made)
            except Exception as problem:
                # Told with all else that is wrong, before anything runs. A ValueError is how a plugin refuses its arguments;
                # for anything else its author has to know where.
                place = "" if isinstance(problem, ValueError) else f" ({place_of(problem)})"
                self._error(where, f"plugin {quoted(name)} cannot be made: {type(problem).__name__}: {problem}{place}", problem)
            else:
                for fault in wrong:
                    self._error("plugins", f"plugin {quoted(name)}: {fault}")
                for words in contract.advice(made):
                    self._warn("plugins", f"plugin {quoted(name)}: {words}")
                if not wrong:
                    self.made[name] = lift(name, made) if contract.is_simple(made) else made

    # --------------------------------------------------------------------------------------------------- expanding

    def _expand(self, point: ExtensionPoint, multi_point: list[PluginReference]) -> Any:
        """The plugins of an extension point, in order."""
        said = self.said.plugin_set(point)
        own = self._enabled_here(point, said)
        if said.disables_all:
            return tuple(self.made[name] for name in own)
        both: list[str] = []
        through_multi_point: list[str] = []
        for reference in multi_point:
            name = reference.name
            if not self._takes_part(name, point) or name in said.disabled:
                continue
            if name in own:
                both.append(name)
            elif name in through_multi_point:
                self._error(f"plugins.{ExtensionPoint.MULTI_POINT.value}", f"{quoted(name)} is enabled twice")
                return ()
            else:
                through_multi_point.append(name)
        first = [name for name in own if name in both]
        last = [name for name in own if name not in both]
        return tuple(self.made[name] for name in (*first, *through_multi_point, *last))

    def _enabled_here(self, point: ExtensionPoint, said: PluginSet) -> list[str]:
        enabled: list[str] = []
        for i, reference in enumerate(said.enabled):
            name = reference.name
            where = f"plugins.{point.value}.enabled[{i}].name"
            if name not in self.made:
                continue
            if name in enabled:
                self._error(where, f"{quoted(name)} is enabled twice")
            elif not self._takes_part(name, point):
                self._error(where, f"{quoted(name)} is no {point.title} plugin")
            else:
                enabled.append(name)
        return enabled

    def _takes_part(self, name: str, point: ExtensionPoint) -> bool:
        return name in self.made and contract.has_form(self.made[name], PROTOCOLS[point])

    # ----------------------------------------------------------------------------------------------------- weights

    def _weights(self, score: tuple[Plugin, ...], multi_point: list[PluginReference]) -> dict[str, int]:
        given: dict[str, int] = {}
        for reference in (*self.said.plugin_set(ExtensionPoint.SCORE).enabled, *multi_point):
            given.setdefault(reference.name, reference.weight or 1)
        weights: dict[str, int] = {}
        name_of = {id(plugin): name for name, plugin in self.made.items()}
        for plugin in score:
            weights[plugin.name] = given[name_of[id(plugin)]]
        if MAX_NODE_SCORE * sum(weights.values()) > TOTAL_SCORE_MAX:
            self._error("plugins.score", f"the sum of the weights must not exceed {TOTAL_SCORE_MAX // MAX_NODE_SCORE}")
        return weights

    # ---------------------------------------------------------------------------------------------------- shadows

    def _shadows(self, enabled: Mapping[str, Any]) -> dict[str, int]:
        """Weights of the shadow plugins."""
        found: dict[str, int] = {}
        for i, reference in enumerate(self.said.shadow_plugins):
            where = f"shadowPlugins[{i}].name"
            if reference.name in enabled or reference.name in found:
                self._error(where, f"{quoted(reference.name)} is enabled in this profile already")
            elif reference.name in self.registry:
                found[reference.name] = reference.weight or 1
            elif reference.name:
                self._error(where, self._not_installed(reference.name))
        return found

    def _shadowed(self, profile: Profile, shadows: Mapping[str, int]) -> Profile:
        """The profile with its shadow plugins at the extension points that evaluate nodes."""

        def more(point: ExtensionPoint) -> Any:
            return tuple(self.made[name] for name in shadows if self._takes_part(name, point))

        score = more(ExtensionPoint.SCORE)
        return replace(
            profile,
            pre_filter=(*profile.pre_filter, *more(ExtensionPoint.PRE_FILTER)),
            filter=(*profile.filter, *more(ExtensionPoint.FILTER)),
            score=(*profile.score, *score),
            weights={**profile.weights, **{self.made[n].name: w for n, w in shadows.items() if self.made[n] in score}},
        )

    # ---------------------------------------------------------------------------------------------------- budgets

    def _time_budgets(self, plugins: set[str]) -> dict[str, TimeBudget]:
        """By plugin; what is said of all holds for those that are not named."""
        said = {b.name: TimeBudget(b.seconds, b.when_exceeded) for b in self.said.time_budgets if b.seconds is not None}
        for i, budget in enumerate(self.said.time_budgets):
            if budget.name not in (*plugins, EVERY_PLUGIN):
                known = sorted(plugins)
                hint = did_you_mean(budget.name, known)
                where = f"pluginTimeBudgets[{i}].name"
                self._error(where, f"{quoted(budget.name)} is no plugin of this profile; there are {', '.join(known)}{hint}")
        for_all = said.pop(EVERY_PLUGIN, None)
        return said if for_all is None else {name: said.get(name, for_all) for name in plugins}

    # ------------------------------------------------------------------------------------------------------ errors

    def _error(self, where: str, message: str, raised: BaseException | None = None) -> None:
        self.errors.append(FieldError(f"{self.path}.{where}", message, raised))

    def _warn(self, where: str, message: str) -> None:
        self.warnings.append(FieldError(f"{self.path}.{where}", message))
