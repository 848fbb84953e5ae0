"""Every option of every command that takes a duration, a number or a choice, with what is none: one line and exit code 2."""

from __future__ import annotations

import enum
from collections.abc import Iterator

import pytest

from tests.cli.cluster import run_here
from tests.deploy.commands import COMMANDS

COMPLETE = {
    "apply": "-f none.yaml",
    "get": "pods",
    "describe": "pods",
    "delete": "pods a",
    "drain": "node-1",
    "cordon": "node-1",
    "uncordon": "node-1",
    "taint": "nodes node-1 a=b:NoSchedule",
    "label": "nodes node-1 a=b",
    "explain": "pod-1",
    "logs": "pod-1",
    "top": "pods",
    "node": "node-1",
    "hollow-nodes": "1",
    "run": "a --image web:1",
    "create": "-f none.yaml",
    "annotate": "pod a x=y",
    "patch": "pod a -p {}",
    "hold": "job a",
    "release": "job a",
    "follow": "pod/a",
    "scale": "rs a --replicas 1",
    "wait": "pod/a --for=delete",
}
"""What a command wants in any case."""
ELSEWHERE = {"replica --pod-max-in-unschedulable-pods-duration"}
"""A replica blocks signals before it looks at its options: tests/replica/test_bad_starts.py has it as a process of its own."""


def wrong_values() -> Iterator[tuple[str, str]]:
    """Option and value, with the command."""
    for name, command in COMMANDS.items():
        if hasattr(command, "commands"):
            continue  # tests/cli/test_pki_command.py has those; verify has one, which tests of the audit log try
        for option in command.params:
            annotation, told = option.type_descriptor.annotation, option.type_descriptor.parameter_info
            flag = f"{name} {max(option.opts, key=len)}"
            if not flag.partition(" ")[2].startswith("--"):
                continue
            is_choice = isinstance(annotation, type) and issubclass(annotation, enum.Enum)
            if option.metavar == "DURATION" or is_choice or annotation in (int, float):
                yield flag, "soon"
                if told.min is not None:
                    yield flag, f"{told.min - 1}"
                if told.max is not None:
                    yield flag, f"{told.max + 1}"


CASES = [case for case in wrong_values() if case[0] not in ELSEWHERE]


def test_the_table_has_options_of_each_sort_and_what_is_left_out_exists() -> None:
    flags = {flag for flag, _ in wrong_values()}
    assert flags >= ELSEWHERE | {
        "drain --timeout",
        "delete --timeout",
        "up --timeout",
        "up --node-monitor-period",
    }
    assert flags >= {"drain --grace-period", "demo --replicas", "up --node-eviction-rate", "plan --add-nodes", "plan --output"}


@pytest.mark.parametrize(("option", "value"), CASES)
def test_a_wrong_value_is_told_in_a_line_with_the_option_and_exit_code_2(option: str, value: str) -> None:
    command, flag = option.split()
    result = run_here([command, *COMPLETE.get(command, "").split(), f"{flag}={value}"])
    (line,) = result.errors
    assert (result.code, result.out) == (2, ""), line
    assert line.startswith("error: ") and flag in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("up --node-eviction-rate=-1", "--node-eviction-rate -1: allowed are numbers from 0 on"),
        ("up --unhealthy-zone-threshold=2", "--unhealthy-zone-threshold 2: allowed are 0 to 1"),
        ("up --head-of-line-limit=-1", "--head-of-line-limit"),
        ("up --election-profile=slow", "--election-profile slow: allowed are fast and kube"),
        ("up --log-level=all", "--log-level all: allowed are "),
        ("up --log-format=xml", "--log-format xml: allowed are "),
        ("up --etcd-endpoints=nowhere", "--etcd-endpoints 'nowhere': an address is host:port"),
        ("hollow-nodes 1 --cpu=many", "--cpu: "),
        ("hollow-nodes 1 --label=a", "--label 'a': want NAME=VALUE"),
        ("events --types=Odd", "--types: found 'odd', allowed are Normal, Warning"),
        ("events --for=web", "--for: 'web' is not TYPE/NAME, for example pod/web"),
        ("events --for=pod/web -A", "cannot be combined with --all-namespaces"),
        ("delete -f none.yaml --all", "-f and -k cannot be combined"),
        ("delete", "name what to delete"),
        ("drain", "name the nodes, or choose them with -l"),
        ("get pod/a -A", "cannot be combined"),
        ("get pods,nodes -w", "--watch follows one type of object"),
        ("explain a -o yaml", "json"),
        ("logs a --tail=-2", "--tail must be greater than or equal to -1"),
        ("logs a --all-containers -c b", "--all-containers and --container: only one of them is possible"),
        ("logs node/a", "node/a: only pods have logs"),
        ("exec a", "you must specify at least one command for the container"),
        ("exec a --token-file none -- true", "--token-file none: cannot be read (No such file or directory)"),
        ("port-forward a 80:x", "port '80:x': want [LOCAL:]REMOTE, each of 1 to 65535"),
        ("top odd", "odd: nothing is known of what these use; nodes and pods are possible"),
        ("demo --examples nowhere", "--examples nowhere: no such directory"),
        ("plan --like node-1", "--add-nodes and --like belong together"),
    ],
)
def test_options_that_mean_nothing_alone_or_together_are_exit_code_2(words: str, said: str) -> None:
    result = run_here(words.split())
    (line,) = result.errors
    assert (result.code, result.out) == (2, ""), line
    assert said in line
