"""The KubeSchedulerConfiguration of a replica, judged before anything starts. What is wrong names file, line and field."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rayched.framework.configuration_file import ConfigurationErrors, Loaded, load
from rayched.framework.registry import RegistryError, load_entry_points, merge
from rayched.plugins.in_tree import IN_TREE

_DEFAULT_TEXT: Final = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
_DEFAULT_SOURCE: Final = "default configuration"

log = logging.getLogger("rayched.replica")


class SchedulerSettingsError(ValueError):
    """The configuration cannot be used; `lines` say why, one defect each."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """A configuration that was found to be right, as text: the actors read it in their own processes."""

    text: str
    source: str
    loaded: Loaded
    """What it says, for people."""


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
        raise SchedulerSettingsError(tuple(map(str, error.errors))) from error
    except RegistryError as error:
        raise SchedulerSettingsError((f"plugins: {error}",)) from error
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return SchedulerSettings(text, source, loaded)
