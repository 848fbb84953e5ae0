"""Configuration files for tests: read one, or collect all that is said against it."""

from __future__ import annotations

import textwrap

import pytest

from rayched.configuration.configuration_file import ConfigurationErrors, Loaded, load
from rayched.plugins.in_tree import IN_TREE

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def loaded(text: str) -> Loaded:
    return load(textwrap.dedent(text), "sched.yaml", IN_TREE)


def read(body: str) -> Loaded:
    """A file with the usual head."""
    return loaded(HEAD + textwrap.dedent(body))


def faults(text: str) -> list[str]:
    """All lines of the refusal."""
    with pytest.raises(ConfigurationErrors) as caught:
        loaded(text)
    return str(caught.value).splitlines()


def faults_of(body: str) -> list[str]:
    return faults(HEAD + textwrap.dedent(body))
