"""KubeSchedulerConfiguration as frozen values: what a file says, defaults filled in, and Kubernetes' rules for it.

The values here know nothing of files and lines; errors are FieldErrors with paths as in
`profiles[0].plugins.score.enabled[1].weight`. Where a default differs from kube-scheduler's it is said at the field.

Source: KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1, its defaults and its validation, kube-scheduler 1.34.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rayched.api.errors import FieldError, quoted
from rayched.configuration import default_plugins
from rayched.framework import names
from rayched.framework.extension_points import ExtensionPoint
from rayched.framework.profile import ALL_NODES, WhenExceeded

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
LEASES: Final = "leases"
EVERY_PLUGIN: Final = "*"

_LEASE_DURATION_SECONDS: Final = 15.0
_RENEW_DEADLINE_SECONDS: Final = 10.0
_RETRY_PERIOD_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class PluginReference:
    """A plugin as named in a profile; weight 0: none given."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """What a file says about one extension point."""

    enabled: tuple[PluginReference, ...] = ()
    disabled: tuple[str, ...] = ()

    @property
    def disables_all(self) -> bool:
        return EVERY_PLUGIN in self.disabled


NO_PLUGINS: Final = PluginSet()


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """Arguments of one plugin: a value of `framework.plugin_args`, plain YAML data for plugins of users, or None."""

    name: str
    args: Any = None


@dataclass(frozen=True, slots=True)
class PluginTimeBudget:
    """How much of a cycle a plugin may take; "*" stands for all plugins that are not named. None: the file does not say."""

    name: str
    seconds: float | None
    when_exceeded: WhenExceeded = WhenExceeded.FAIL


@dataclass(frozen=True, slots=True)
class ProfileConfiguration:
    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    percentage_of_nodes_to_score: int | None = None
    """None: the configuration's own."""
    plugins: Mapping[ExtensionPoint, PluginSet] = field(default_factory=dict)
    """Only what the file says; the default plugins are merged in when the profile is built."""
    plugin_config: tuple[PluginConfig, ...] = ()
    time_budgets: tuple[PluginTimeBudget, ...] = ()
    """A field of rayched's own, as the next one."""
    shadow_plugins: tuple[PluginReference, ...] = ()
    """Plugins that are asked beside the others and have no say."""

    def plugin_set(self, point: ExtensionPoint) -> PluginSet:
        return self.plugins.get(point, NO_PLUGINS)


@dataclass(frozen=True, slots=True)
class LeaderElectionConfiguration:
    """Times are None where the file is silent: the replica's own profile of times holds then."""

    leader_elect: bool = True
    lease_duration_seconds: float | None = None
    renew_deadline_seconds: float | None = None
    retry_period_seconds: float | None = None
    resource_lock: str = LEASES


@dataclass(frozen=True, slots=True)
class Configuration:
    parallelism: int = 16
    """Accepted and checked; how much runs at once is a matter of the workers here."""
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    percentage_of_nodes_to_score: int = ALL_NODES
    """kube-scheduler's default is 0, its adaptive share; here all nodes are scored unless a file says otherwise."""
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[ProfileConfiguration, ...] = (ProfileConfiguration(),)


def validate(configuration: Configuration) -> list[FieldError]:
    """All violations of the rules that need no plugin; plugin arguments have their own rules in `framework.plugin_args`."""
    return [
        *_validate_scalars(configuration),
        *_validate_leader_election(configuration.leader_election),
        *_validate_profiles(configuration.profiles),
    ]


def _validate_scalars(configuration: Configuration) -> Iterator[FieldError]:
    if configuration.parallelism <= 0:
        yield FieldError("parallelism", f"must be greater than 0, found {configuration.parallelism}")
    yield from _validate_percentage("percentageOfNodesToScore", configuration.percentage_of_nodes_to_score)
    initial, highest = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    if initial <= 0:
        yield FieldError("podInitialBackoffSeconds", f"must be greater than 0, found {initial}")
    if highest < initial:
        yield FieldError("podMaxBackoffSeconds", f"must not be less than podInitialBackoffSeconds ({initial}), found {highest}")


def _validate_percentage(path: str, percentage: int) -> Iterator[FieldError]:
    if not 0 <= percentage <= ALL_NODES:
        yield FieldError(path, f"must be in 0 to 100, found {percentage}")


def _validate_leader_election(election: LeaderElectionConfiguration) -> Iterator[FieldError]:
    if not election.leader_elect:
        return
    if election.resource_lock != LEASES:
        found = quoted(election.resource_lock)
        yield FieldError("leaderElection.resourceLock", f'must be "{LEASES}", found {found}: endpoints and configmaps are gone')
    times = {
        "leaseDuration": _given(election.lease_duration_seconds, _LEASE_DURATION_SECONDS),
        "renewDeadline": _given(election.renew_deadline_seconds, _RENEW_DEADLINE_SECONDS),
        "retryPeriod": _given(election.retry_period_seconds, _RETRY_PERIOD_SECONDS),
    }
    for name, seconds in times.items():
        if seconds <= 0:
            yield FieldError(f"leaderElection.{name}", "must be greater than zero")
    for longer, shorter in (("leaseDuration", "renewDeadline"), ("renewDeadline", "retryPeriod")):
        if times[longer] <= times[shorter]:
            found = f"{times[longer]:g}s is not greater than {times[shorter]:g}s"
            yield FieldError(f"leaderElection.{longer}", f"must be greater than {shorter}: {found}")


def _given(seconds: float | None, default: float) -> float:
    return default if seconds is None else seconds


def _validate_profiles(profiles: tuple[ProfileConfiguration, ...]) -> Iterator[FieldError]:
    first_of: dict[str, int] = {}
    for i, profile in enumerate(profiles):
        path = f"profiles[{i}]"
        if not profile.scheduler_name:
            text = "is required where there are several profiles" if len(profiles) > 1 else "must not be empty"
            yield FieldError(f"{path}.schedulerName", text)
        elif profile.scheduler_name in first_of:
            first = first_of[profile.scheduler_name]
            yield FieldError(
                f"{path}.schedulerName", f"{quoted(profile.scheduler_name)} is the name of profiles[{first}] already"
            )
        first_of.setdefault(profile.scheduler_name, i)
        if profile.percentage_of_nodes_to_score is not None:
            yield from _validate_percentage(f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
        yield from _validate_plugin_sets(path, profile)
        yield from _validate_plugin_config(path, profile)
        yield from _validate_time_budgets(path, profile)
    yield from _validate_common_queue_sort(profiles)


def _validate_plugin_sets(path: str, profile: ProfileConfiguration) -> Iterator[FieldError]:
    for point, plugins in profile.plugins.items():
        for i, reference in enumerate(plugins.enabled):
            at = f"{path}.plugins.{point.value}.enabled[{i}]"
            if not reference.name:
                yield FieldError(f"{at}.name", "is required")
            elif reference.name == EVERY_PLUGIN:
                yield FieldError(f"{at}.name", '"*" stands for all plugins under disabled only')
            elif reference.name in default_plugins.REMOVED:
                yield FieldError(f"{at}.name", _removed(reference.name))
            if reference.weight < 0:
                yield FieldError(f"{at}.weight", f"must not be negative, found {reference.weight}")
        for i, name in enumerate(plugins.disabled):
            if not name:
                yield FieldError(f"{path}.plugins.{point.value}.disabled[{i}].name", "is required")
    for i, reference in enumerate(profile.shadow_plugins):
        if not reference.name:
            yield FieldError(f"{path}.shadowPlugins[{i}].name", "is required")
        if reference.weight < 0:
            yield FieldError(f"{path}.shadowPlugins[{i}].weight", f"must not be negative, found {reference.weight}")


def _validate_plugin_config(path: str, profile: ProfileConfiguration) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, plugin in enumerate(profile.plugin_config):
        at = f"{path}.pluginConfig[{i}].name"
        if not plugin.name:
            yield FieldError(at, "is required")
        elif plugin.name in seen:
            yield FieldError(at, f"{quoted(plugin.name)} is configured twice in this profile")
        elif plugin.name in default_plugins.REMOVED:
            yield FieldError(at, _removed(plugin.name))
        seen.add(plugin.name)


def _validate_time_budgets(path: str, profile: ProfileConfiguration) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, budget in enumerate(profile.time_budgets):
        at = f"{path}.pluginTimeBudgets[{i}]"
        if not budget.name:
            yield FieldError(f"{at}.name", "is required")
        elif budget.name in seen:
            yield FieldError(f"{at}.name", f"{quoted(budget.name)} has a budget already")
        seen.add(budget.name)
        if budget.seconds is None:
            yield FieldError(f"{at}.perCycle", 'is required, a duration such as "50ms"')
        elif budget.seconds <= 0:
            yield FieldError(f"{at}.perCycle", f"must be greater than zero, found {budget.seconds:g}s")


def _removed(name: str) -> str:
    return f"{quoted(name)} is no plugin any more: {default_plugins.REMOVED[name]}"


def _validate_common_queue_sort(profiles: tuple[ProfileConfiguration, ...]) -> Iterator[FieldError]:
    """One queue holds the pods of all profiles, so there is one order."""
    if not profiles:
        return
    canonical = profiles[0].plugin_set(ExtensionPoint.QUEUE_SORT)
    sorter = canonical.enabled[0].name if canonical.enabled else names.PRIORITY_SORT
    args = [plugin.args for plugin in profiles[0].plugin_config if plugin.name == sorter]
    for i, profile in enumerate(profiles[1:], start=1):
        if profile.plugin_set(ExtensionPoint.QUEUE_SORT) != canonical:
            yield FieldError(f"profiles[{i}].plugins.queueSort", "must be the same in all profiles")
        for j, plugin in enumerate(profile.plugin_config):
            if plugin.name == sorter and [plugin.args] != args:
                yield FieldError(
                    f"profiles[{i}].pluginConfig[{j}].args", "must be the same in all profiles for a QueueSort plugin"
                )
