"""A KubeSchedulerConfiguration file, read into values: `kubescheduler.config.k8s.io/v1`, and v1beta3 as older documents have it.

`load` is all that a program needs: text in, configuration and profiles out, or ConfigurationErrors with everything that is wrong,
each line with file, line and field. Reading the file is the caller's.

What kube-scheduler knows and rayched has no use for: settings without effect are warnings, extenders are an error, as pods would
be placed without asking them. Other versions and the Policy kind are refused with a word on what to write instead.

Source: kube-scheduler 1.34 (v1) and 1.28 (v1beta3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rayched.api.errors import FieldError, quoted
from rayched.configuration.configuration import (
    DEFAULT_SCHEDULER_NAME,
    LEASES,
    Configuration,
    LeaderElectionConfiguration,
    PluginConfig,
    PluginReference,
    PluginSet,
    PluginTimeBudget,
    ProfileConfiguration,
    validate,
)
from rayched.configuration.plugin_args_file import INT64_MAX, read_args
from rayched.configuration.profile_building import build_profiles
from rayched.configuration.yaml_fields import Document, Section, read_document
from rayched.framework import plugin_args
from rayched.framework.extension_points import ExtensionPoint
from rayched.framework.profile import Profile, WhenExceeded
from rayched.framework.registry import Registry

KIND: Final = "KubeSchedulerConfiguration"
GROUP: Final = "kubescheduler.config.k8s.io"
API_VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta3")
EARLIER_API_VERSIONS: Final = tuple(f"{GROUP}/{version}" for version in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2"))

_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "clientConnection": "there is no API server of Kubernetes to connect to",
    "enableProfiling": "there is no profiling endpoint",
    "enableContentionProfiling": "there is no profiling endpoint",
    "delayCacheUntilActive": "standbys always keep their caches warm",
}
_WITHOUT_EFFECT_IN_ELECTION: Final[Mapping[str, str]] = {
    "resourceName": "the leader's record has a key of its own in etcd",
    "resourceNamespace": "the leader's record has a key of its own in etcd",
}


@dataclass(frozen=True, slots=True)
class Located:
    """One thing to say about a file: where and what."""

    source: str
    line: int
    path: str
    message: str
    raised: BaseException | None = None
    """What a plugin raised."""

    def __str__(self) -> str:
        field = f"{self.path}: " if self.path else ""
        return f"{self.source}:{self.line}: {field}{self.message}"


class ConfigurationErrors(ValueError):
    """All that is wrong with a configuration file, in the order of its lines; never empty. One line each in the text."""

    def __init__(self, errors: Sequence[Located]) -> None:
        self.errors = tuple(sorted(errors, key=lambda error: error.line))
        super().__init__("\n".join(map(str, self.errors)))


@dataclass(frozen=True, slots=True)
class Loaded:
    configuration: Configuration
    profiles: Mapping[str, Profile]
    """By scheduler name."""
    warnings: tuple[Located, ...] = ()


def load(text: str, source: str, registry: Registry) -> Loaded:
    """Configuration and profiles of a file's text; `source` is its name in messages. Raises ConfigurationErrors."""
    document, root = read_document(text)
    configuration = None if root is None or document.errors else _read_configuration(document, root)
    profiles: Mapping[str, Profile] = {}
    if configuration is not None:
        # A field that could not be read has its default here, so rules that compare fields are still worth checking.
        document.errors += validate(configuration)
        document.errors += _validate_args(configuration)
        built = build_profiles(configuration, registry)
        document.errors += built.errors
        document.warnings += built.warnings
        profiles = built.profiles
    if configuration is None or document.errors:
        raise ConfigurationErrors([_locate(document, source, error) for error in document.errors])
    warnings = tuple(_locate(document, source, warning) for warning in document.warnings)
    return Loaded(configuration, profiles, warnings)


def _locate(document: Document, source: str, said: FieldError) -> Located:
    return Located(source, document.line_of(said.path), said.path, said.message, said.raised)


def _validate_args(configuration: Configuration) -> list[FieldError]:
    found: list[FieldError] = []
    for i, profile in enumerate(configuration.profiles):
        for j, plugin in enumerate(profile.plugin_config):
            if isinstance(plugin.args, plugin_args.PluginArgs):
                found += plugin_args.validate_args(plugin.args, f"profiles[{i}].pluginConfig[{j}].args")
    return found


# ------------------------------------------------------------------------------------------------------------- reading


def _read_configuration(document: Document, root: Section) -> Configuration | None:
    """None where kind or version are none that can be read: the rest would mean nothing then."""
    kind, version = root.text("kind"), root.text("apiVersion")
    if document.errors or not _is_readable(kind, version, root):
        return None
    for name, reason in _WITHOUT_EFFECT.items():
        if root.plain(name):
            root.warn(name, f"has no effect: {reason}")
    if root.plain("extenders"):
        root.error("extenders", "extenders are not called: write a plugin in their place")
    default = Configuration()
    configuration = Configuration(
        parallelism=root.integer("parallelism", default.parallelism),
        leader_election=_read_leader_election(root.section("leaderElection")),
        percentage_of_nodes_to_score=root.integer("percentageOfNodesToScore", default.percentage_of_nodes_to_score),
        pod_initial_backoff_seconds=_seconds(root, "podInitialBackoffSeconds", default.pod_initial_backoff_seconds),
        pod_max_backoff_seconds=_seconds(root, "podMaxBackoffSeconds", default.pod_max_backoff_seconds),
        profiles=_read_profiles(root.sections("profiles"), version),
    )
    root.close()
    return configuration


def _is_readable(kind: str, version: str, root: Section) -> bool:
    wanted = f"write kind {KIND} with apiVersion {API_VERSIONS[0]}"
    if kind == "Policy":
        root.error("kind", f"scheduling policies (predicates and priorities) are gone since Kubernetes 1.23; {wanted}")
    elif kind != KIND:
        root.error("kind", f"must be {quoted(KIND)}, found {quoted(kind)}" if kind else f"is required; {wanted}")
    elif version in EARLIER_API_VERSIONS:
        root.error("apiVersion", f"{quoted(version)} is no longer read (algorithmSource and Policy went with it); {wanted}")
    elif version not in API_VERSIONS:
        allowed = " or ".join(map(quoted, API_VERSIONS))
        root.error("apiVersion", f"must be {allowed}, found {quoted(version)}" if version else f"is required; {wanted}")
    else:
        return True
    return False


def _seconds(root: Section, name: str, default: int) -> int:
    return root.integer(name, default, low=-INT64_MAX, high=INT64_MAX)


def _read_leader_election(section: Section | None) -> LeaderElectionConfiguration:
    if section is None:
        return LeaderElectionConfiguration()
    for name, reason in _WITHOUT_EFFECT_IN_ELECTION.items():
        if section.text(name):
            section.warn(name, f"has no effect: {reason}")
    if not section.boolean("leaderElect", True):
        section.warn("leaderElect", "has no effect: every write is fenced by an epoch, which only an elected leader has")
    election = LeaderElectionConfiguration(
        leader_elect=section.boolean("leaderElect", True),
        lease_duration_seconds=section.optional_duration("leaseDuration"),
        renew_deadline_seconds=section.optional_duration("renewDeadline"),
        retry_period_seconds=section.optional_duration("retryPeriod"),
        resource_lock=section.text("resourceLock") or LEASES,
    )
    section.close()
    return election


def _read_profiles(sections: list[Section], version: str) -> tuple[ProfileConfiguration, ...]:
    if not sections:
        return (ProfileConfiguration(),)
    # With one profile the name may be left out; with several each needs its own.
    default_name = DEFAULT_SCHEDULER_NAME if len(sections) == 1 else ""
    return tuple(_read_profile(section, version, default_name) for section in sections)


def _read_profile(section: Section, version: str, default_name: str) -> ProfileConfiguration:
    plugins = section.section("plugins")
    profile = ProfileConfiguration(
        scheduler_name=section.text("schedulerName", default_name),
        percentage_of_nodes_to_score=section.optional_integer("percentageOfNodesToScore"),
        plugins={} if plugins is None else _read_plugins(plugins),
        plugin_config=tuple(_read_plugin_config(entry, version) for entry in section.sections("pluginConfig")),
        time_budgets=tuple(map(_read_time_budget, section.sections("pluginTimeBudgets"))),
        shadow_plugins=tuple(map(_read_reference, section.sections("shadowPlugins"))),
    )
    section.close()
    return profile


def _read_time_budget(entry: Section) -> PluginTimeBudget:
    what = WhenExceeded(entry.text("whenExceeded", WhenExceeded.FAIL.value, [one.value for one in WhenExceeded]))
    budget = PluginTimeBudget(entry.text("name"), entry.optional_duration("perCycle"), what)
    entry.close()
    return budget


def _read_plugins(section: Section) -> dict[ExtensionPoint, PluginSet]:
    found: dict[ExtensionPoint, PluginSet] = {}
    for point in ExtensionPoint:
        plugins = section.section(point.value)
        if plugins is None:
            continue
        found[point] = PluginSet(
            enabled=tuple(_read_reference(entry) for entry in plugins.sections("enabled")),
            disabled=tuple(_read_reference(entry).name for entry in plugins.sections("disabled")),
        )
        plugins.close()
    if found.pop(ExtensionPoint.PRE_SCORE, None) is not None:
        section.warn(
            ExtensionPoint.PRE_SCORE.value, "has no effect: what a plugin prepares for Score goes with score and multiPoint"
        )
    section.close()
    return found


def _read_reference(entry: Section) -> PluginReference:
    reference = PluginReference(entry.text("name"), entry.integer("weight", 0))
    entry.close()
    return reference


def _read_plugin_config(entry: Section, version: str) -> PluginConfig:
    name = entry.text("name")
    args: Any = read_args(name, entry, version)
    entry.close()
    return PluginConfig(name, args)
