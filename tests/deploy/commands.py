"""Command lines held against the real command, without running them.

`parsed` is the command's own parser; `checked` also builds a replica's settings from what was parsed, by their own checks, so
that a flag that lacks another one (an open address without a certificate) is found as well.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from rayched.cli.cluster.cluster_options import ClusterOptions
from rayched.cli.cluster.serving_options import ServingOptions
from rayched.cli.main import app
from rayched.replica.settings import ReplicaSettings, split_endpoints, worker_count

_GROUP: Any = get_command(app)
COMMANDS: dict[str, Any] = _GROUP.commands


class WrongCommand(AssertionError):
    """What the command itself would say."""


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """The parameters of `rayched WORDS...`; raises WrongCommand."""
    line = " ".join(("rayched", *words))
    words = _GROUP.verb_first(list(words))
    name, rest = (words[0], list(words[1:])) if words else ("", [])
    if name in ("--version", "--help"):
        return {}
    if name not in COMMANDS:
        raise WrongCommand(f"{line}: there is no command {name!r}")
    command = COMMANDS[name]
    if hasattr(command, "commands") and rest and rest[0] in command.commands:
        command, name, rest = command.commands[rest[0]], rest[0], rest[1:]
    try:
        return dict(command.make_context(name, rest).params)
    except typer.Exit:
        return {}  # --help
    except typer.TyperException as error:
        raise WrongCommand(f"{line}: {error.format_message()}") from None


def checked(words: Sequence[str]) -> ReplicaSettings:
    """The settings of `rayched replica ...`; raises WrongCommand, SettingsError."""
    given = parsed(words)
    assert words[0] == "replica", words
    fields = set(inspect.signature(ReplicaSettings).parameters)
    serving = {one.name: given.pop(one.name) for one in dataclasses.fields(ServingOptions)}
    etcd = {name: given[name] for name in ("etcd_cafile", "etcd_certfile", "etcd_keyfile", "etcd_server_name")}
    renamed = {"etcd_root": "root", "config": "scheduler_configuration"}
    found = {renamed.get(name, name): value for name, value in given.items()}
    found["etcd_endpoints"] = split_endpoints(found["etcd_endpoints"])
    found["workers"] = worker_count(found["workers"])
    if found["data_dir"] is None:
        del found["data_dir"]
    for name, value in serving.items():
        serving[name] = Path(value) if name.endswith("_file") and value is not None else value
    found |= ServingOptions(**serving).settings() | {"etcd_tls": ClusterOptions(**etcd).settings()["etcd_tls"]}
    found["insecure_etcd"] = given["insecure_etcd"]
    settings = ReplicaSettings(**{name: value for name, value in found.items() if name in fields})
    if lines := settings.missing_certificates():
        raise WrongCommand(f"rayched {' '.join(words)}: {lines[0]}")
    return settings


def flags(command: str) -> set[str]:
    """The long names of a command's options, and of those of its own commands, as its help shows them."""
    whole: Any = COMMANDS[command]
    options = [option for one in (whole, *getattr(whole, "commands", {}).values()) for option in one.params]
    return {name for option in options for name in (*option.opts, *option.secondary_opts) if name.startswith("--")}
