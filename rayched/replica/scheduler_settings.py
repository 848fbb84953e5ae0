"""The KubeSchedulerConfiguration of a replica, judged before anything starts. What is wrong names file, line and field."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leader.config import KUBE, PROFILES, ElectionConfig, ElectionConfigError, TimingProfile, check_config
from rayched.actors.entry_points import load_entry_points
from rayched.configuration.configuration import LeaderElectionConfiguration
from rayched.configuration.configuration_file import ConfigurationErrors, Loaded, load
from rayched.framework.registry import RegistryError, merge
from rayched.plugins.in_tree import IN_TREE

_DEFAULT_TEXT: Final = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
_DEFAULT_SOURCE: Final = "default configuration"
_STORE_TTL_SECONDS_MIN: Final = 3
"""etcd's shortest lease is 2 s with its default timings."""

log = logging.getLogger("rayched.replica")


class SchedulerSettingsError(ValueError):
    """The configuration cannot be used; `lines` say why, one defect each. `raised`: by plugins, while they were made."""

    def __init__(self, lines: tuple[str, ...], raised: tuple[BaseException, ...] = ()) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines
        self.raised = raised


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """A configuration that was found to be right, as text: the actors read it in their own processes."""

    text: str
    source: str
    loaded: Loaded
    """What it says, for people."""

    def durations(self, profile: str) -> TimingProfile:
        """Of the election: those of the configuration, else those of the profile."""
        return election_durations(profile, self.loaded.configuration.leader_election)


def election_durations(profile: str, given: LeaderElectionConfiguration) -> TimingProfile:
    """The durations of a profile of the election, or those that a configuration gives; kube-scheduler's stand in for what it
    leaves out then. Raises SchedulerSettingsError.
    """
    found = (given.lease_duration_seconds, given.renew_deadline_seconds, given.retry_period_seconds)
    if all(seconds is None for seconds in found):
        return PROFILES[profile]
    usual = (KUBE.lease_duration, KUBE.renew_deadline, KUBE.retry_period)
    lease, renew, retry = (usual[i] if seconds is None else seconds for i, seconds in enumerate(found))
    durations = TimingProfile(lease, renew, retry, max(_STORE_TTL_SECONDS_MIN, math.ceil(lease), math.ceil(1.5 * renew)))
    try:
        check_config(ElectionConfig.of(durations, identity="any"), on_started_leading=any, on_stopped_leading=any, lock=any)
    except ElectionConfigError as error:
        raise SchedulerSettingsError((f"leaderElection: {error}",)) from None
    return durations


def read_scheduler_settings(path: Path | None) -> SchedulerSettings:
    """Reads and judges the file; the default one where none is given. Raises SchedulerSettingsError."""
    text, source = _DEFAULT_TEXT, _DEFAULT_SOURCE
    if path is not None:
        try:
            text, source = path.read_text(encoding="utf-8"), str(path)
        except UnicodeDecodeError:
            raise SchedulerSettingsError((f"--config {path}: not a text in UTF-8",)) from None
        except OSError as error:
            raise SchedulerSettingsError((f"--config {path}: {error.strerror}",)) from error
    try:
        loaded = load(text, source, merge(IN_TREE, load_entry_points()))
    except ConfigurationErrors as error:
        raised = tuple(one.raised for one in error.errors if one.raised is not None)
        raise SchedulerSettingsError(tuple(map(str, error.errors)), raised) from error
    except RegistryError as error:
        raise SchedulerSettingsError((f"plugins: {error}",)) from error
    election_durations("kube", loaded.configuration.leader_election)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return SchedulerSettings(text, source, loaded)
