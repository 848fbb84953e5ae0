"""Completion in real shells, with an empty environment of theirs, and the manual page as groff reads it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rayched.cli.shell.command_words import all_commands
from tests.cli.cluster import run_here

Complete = Callable[..., set[str]]
_BASH = """
source "$1"; rayched() { echo "asked-for-$2"; echo node-1; }
shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rayched; printf '%s\\n' "${COMPREPLY[@]}"
"""
_ZSH = """
compdef() { : }; _describe() { print -rl -- ${${(P)2}%%:*} }; _files() { print FILES }; compadd() { shift; print -rl -- "$@" }
source "$1"; rayched() { print "asked-for-$2"; print node-1 }
shift; words=("$@"); CURRENT=$#; _rayched
"""
_FISH = """
source $argv[1]; function rayched; echo "asked-for-$argv[2]"; echo node-1; end
complete -C (string join ' ' -- $argv[2..-1])
"""
_SHELLS = {
    "bash": ("bash", "--norc", "-c", _BASH, "bash"),
    "zsh": ("zsh", "-f", "-c", _ZSH, "zsh"),
    "fish": ("fish", "-c", _FISH),
}


@pytest.fixture(params=_SHELLS)
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    """What a shell offers behind these words; the last one is not finished."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(run_here(["completion", shell]).out)

    def found(*words: str) -> set[str]:
        done = subprocess.run(
            [*_SHELLS[shell], str(script), "rayched", *words],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        # zsh and fish narrow the list themselves, the one after this.
        offered = {word.strip() for line in done.stdout.splitlines() for word in line.split("\t")[:1]}
        return {word for word in offered if word.startswith(words[-1])}

    return found


def test_a_shell_offers_commands_and_their_options(complete: Complete) -> None:
    commands = {one.path[0] for one in all_commands()}
    assert len(commands) > 40
    assert complete("") == commands
    assert complete("hol") == {"hold", "hollow-nodes"}
    assert complete("get", "--no-") == {"--no-headers"}
    assert complete("-n", "kube-system", "get", "--show") == {"--show-labels"}
    assert complete("access", "") == {"grant", "revoke", "list", "deny", "denied", "readmit"}
    assert complete("access", "grant", "--write") == {"--write-rate"}


def test_a_shell_offers_what_an_option_takes(complete: Complete) -> None:
    assert complete("get", "-o", "") == {"wide", "yaml", "json", "name"}
    assert complete("run", "--restart", "A") == {"Always"}


def test_a_shell_asks_the_cluster_for_names(complete: Complete) -> None:
    assert complete("get", "pod") >= {"pods", "podgroups"}
    assert complete("-n", "shop", "get", "pod") >= {"pods", "podgroups"}
    assert complete("get", "nodes", "") == {"node-1", "asked-for-nodes"}
    assert complete("describe", "-n", "shop", "jobs", "") == {"node-1", "asked-for-jobs"}
    assert complete("cordon", "") == {"node-1", "asked-for-nodes"}
    assert complete("logs", "-c", "main", "") == {"node-1", "asked-for-pods"}


def test_the_manual_page_has_every_command_and_option(tmp_path: Path) -> None:
    page = run_here(["completion", "man"]).out
    for command in all_commands():
        assert command.says.rstrip(".").replace("-", "\\-") in page or "demo" in command.path, command.name
        for option in command.options:
            assert all(name.replace("-", "\\-") in page for name in option.names if name != "--help"), (command.name, option)
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert "Create or change objects as manifests say." in done.stdout


def test_another_shell_is_refused() -> None:
    refused = run_here(["completion", "tcsh"])
    assert refused.code == 2
    assert "'tcsh'" in refused.errors[0] and "bash" in refused.errors[0]
