"""Text of objects that is meant to harm whoever looks at it: no command lets it reach the terminal as it is."""

from __future__ import annotations

import json

import pytest
import yaml

from rayched.cli import printing
from rayched.cli.main import _COMMANDS
from rayched.v1.core_pb2 import Event
from rayched.v1.meta_pb2 import ObjectMeta
from tests.cli.cluster import Commands, Result, a_pod_text, wait_until

HOSTILE = "harmless\x1b[2J\x1b]0;owned\x07\x1b[31mRED\r\nfake line\u202e\x9b1m\u2028\U000e0041"
SHOWN = "harmless\\u001b[2J\\u001b]0;owned\\u0007\\u001b[31mRED\\r\\nfake line\\u202e\\u009b1m\\u2028\\U000e0041"

SHOWING = [
    "get pods",
    "get pods -o wide",
    "get pods -o yaml",
    "get pods -o json",
    "get pods --show-labels",
    "get pod db -o yaml",
    "get pod db -o json",
    "get events",
    "get events -o yaml",
    "get events -o json",
    "get nodes",
    "describe pod db",
    "describe pods",
    "describe events",
    "describe node node-000",
    "events",
    "events --for pod/db",
    "explain db",
    "explain db -o json",
    "queue",
    "queue -o yaml",
    "queue -o json",
    "plan --drain node-000",
    "label pod db odd=yes",
    "annotate pod db odd=yes",
    "annotate pod db --list",
    "annotate pod none-such odd=\x1b[2J --dry-run",
    "patch pod none-such -p {}",
    'patch pod db -p {"metadata":{"labels":{"a":"\x1b[2J"}}}',
    "set image pod db main=odd\x1b[2J",
    "set env pod db odd\x1b[2J=1",
    "edit pod none-such",
    "diff -f none-such\x1b[2J",
    "replace -f none-such\x1b[2J",
    "hold job none-such",
    "release job none-such",
    "follow pod none-such",
    "history",
    "status",
    "create namespace \x1b[2J",
    "get pods -o jsonpath={.items[*].metadata.annotations.note}",
    "get pods -o custom-columns=\x1b[2J:.metadata.annotations.note",
    "taint node none-such a=b:NoSchedule",
    "cordon none-such",
    "uncordon none-such",
    "drain none-such",
    "delete pod none-such",
    "leader",
    "logs db",
    "logs none-such",
    "logs db -c odd\x1b[2J",
    "exec db -- true",
    "exec none-such -- odd\x1b[2J",
    "port-forward db 80",
    "port-forward none-such 80",
    "top pods",
    "top nodes",
    "top pod none-such",
    "scale pod none-such --replicas 2",
    "wait pod db --for jsonpath={.metadata.annotations.note}=x --timeout 0s",
    "run NOT_A_NAME -- true",
]
NAMESPACED = (
    "get",
    "describe",
    "events",
    "explain",
    "queue",
    "label",
    "annotate",
    "patch",
    "set",
    "edit",
    "hold",
    "release",
    "follow",
    "history",
    "delete",
    "logs",
    "port-forward",
    "scale",
    "wait",
)
WITHOUT_OBJECTS = (
    "up",
    "demo",
    "replica",
    "gateway",
    "kubeconfig",
    "hollow-nodes",
    "node",
    "api-resources",
    "login",
    "ui",
    "whoami",
    "can-i",
    "access",
    "pki",
    "token",
    "etcd",
    "audit",
    "completion",
    "examples",
    "reset",
)


def printable(result: Result) -> bool:
    return all(line.isprintable() for line in [*result.out.split("\n"), *result.errors])


def spoil(rayched: Commands, namespace: str) -> None:
    """A pod, a status and an Event with such text wherever the API takes any."""
    # YAML has no pairs for a character beyond the first 65,536.
    quoted = json.dumps(HOSTILE).replace("\\udb40\\udc41", "\\U000e0041")
    text = a_pod_text("db", namespace=namespace, cpu="17").replace("labels: {}", f"annotations: {{note: {quoted}}}")
    rayched.ok("apply", "-f", "-", stdin=text.replace("name: main", f"command: [{quoted}], name: main"))
    rayched.unschedulable("db", "Insufficient cpu", namespace)
    event = Event(metadata=ObjectMeta(name="forged", namespace=namespace), reason="Odd", type="Warning", message=HOSTILE)
    event.involved_object.kind, event.involved_object.name, event.involved_object.namespace = "Pod", "db", namespace
    event.involved_object.uid = rayched.pod("db", namespace).metadata.uid
    event.source.component = HOSTILE
    rayched.client.submit(event)


@pytest.mark.cluster
@pytest.mark.row("B105")
def test_no_command_prints_text_of_objects_as_it_is(rayched: Commands, namespace: str) -> None:
    spoil(rayched, namespace)
    wait_until(lambda: "fake line" in rayched("events", "-n", namespace).out, "the event is there")
    said = []
    for line in SHOWING:
        words = line.split()
        result = rayched(*words, *(("-n", namespace) if words[0] in NAMESPACED else ()))
        assert printable(result), (line, result)
        said.append((line, result))
    shown = {line for line, result in said if "fake line" in result.out}
    assert shown >= {"get pods -o yaml", "get pods -o json", "describe pod db", "events", "get events -o json"}
    plain = json.loads(next(result.out for line, result in said if line == "get pod db -o json"))
    assert plain["metadata"]["annotations"]["note"] == HOSTILE
    assert yaml.safe_load(next(result.out for line, result in said if line == "get pod db -o yaml")) == plain
    assert SHOWN in next(result.out for line, result in said if line == "events")


def test_every_command_that_shows_objects_is_among_those_looked_at() -> None:
    assert {line.split()[0] for line in SHOWING} | {"apply"} | set(WITHOUT_OBJECTS) == set(_COMMANDS)


def test_cells_notes_and_errors_are_one_line_whatever_they_show(capsys: pytest.CaptureFixture[str]) -> None:
    printing.plain_table(["NAME", "MESSAGE"], [[HOSTILE, "x"], ["a", HOSTILE]])
    printing.GrowingTable(2).print([[HOSTILE, HOSTILE]])
    printing.note(HOSTILE)
    printing.figures("title", [("name", "\x1b[2J")])
    with pytest.raises(SystemExit):
        printing.fail_all([HOSTILE])
    said = capsys.readouterr()
    assert len(said.out.split("\n")) == 3 + 1 + 4 + 1 and len(said.err.splitlines()) == 2
    assert all(line.isprintable() for line in [*said.out.split("\n"), *said.err.split("\n")])
    # Columns are measured as they are shown.
    assert said.out.split("\n")[0].index("MESSAGE") == len(SHOWN) + printing.GAP
