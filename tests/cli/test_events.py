"""events and describe: what the scheduler tells of pods, through etcd and gRPC, in kubectl's layout."""

from __future__ import annotations

import os
import re

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api.columns import event_interval
from rayched.v1.core_pb2 import Event
from tests.cli.cluster import Commands, a_pod_text, run_here, started, wait_until

NOW = 2_000_000_000


def rows(lines: list[str]) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in lines]


@pytest.mark.cluster
def test_events_of_a_namespace_and_of_one_pod_in_kubectls_layout(rayched: Commands, web: str) -> None:
    wait_until(lambda: len(rayched("events", "-n", web).lines) == 4, "three pods have an event each")
    headings, *found = rows(rayched.ok("events", "-n", web))
    assert headings == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    by_pod = {row[3]: row for row in found}
    node = rayched.pod("web-0", web).spec.node_name
    assert by_pod["Pod/web-0"][1:] == ["Normal", "Scheduled", "Pod/web-0", f"Successfully assigned {web}/web-0 to {node}"]
    (condition,) = (c for c in rayched.pod("db", web).status.conditions if c.type == "PodScheduled")
    assert by_pod["Pod/db"][1:] == ["Warning", "FailedScheduling", "Pod/db", condition.message]
    assert condition.message.startswith("0/12 nodes are available: 12 Insufficient cpu.")
    about = rows(rayched.ok("events", "-n", web, "--for", "po/db", "--no-headers"))
    assert [row[1:] for row in about] == [by_pod["Pod/db"][1:]]
    assert [row[3] for row in rows(rayched.ok("events", "-n", web, "--types", "warning", "--no-headers"))] == ["Pod/db"]
    everywhere = rows(rayched.ok("events", "-A"))
    assert everywhere[0][0] == "NAMESPACE" and web in {row[0] for row in everywhere}
    # They end by themselves after an hour, whoever leads then.
    assert all(3_500 < seconds <= 3_900 for seconds in rayched.lease_seconds(f"/rayched/events/{web}/"))
    nobody = rayched("events", "-n", web, "--for", "pod/none-such")
    assert (nobody.code, nobody.out, nobody.errors) == (0, "", [f"No events found in {web} namespace."])


@pytest.mark.cluster
def test_who_was_elected_is_told_in_kube_system(rayched: Commands) -> None:
    wait_until(lambda: "became leader" in rayched("events", "-n", "kube-system").out, "the leader says so")
    found = rows(rayched.ok("events", "-n", "kube-system", "--no-headers"))
    assert found and all(row[1:4] == ["Normal", "LeaderElection", "Lease/kube-scheduler"] for row in found)


@pytest.mark.cluster
def test_describe_ends_with_the_events_of_the_pod(rayched: Commands, web: str) -> None:
    wait_until(lambda: "FailedScheduling" in rayched("describe", "pod", "db", "-n", web).out, "the event is there")
    lines = rayched.ok("describe", "pod", "db", "-n", web)
    found = rows(lines[lines.index("Events:") + 1 :])
    assert found[0] == ["Type", "Reason", "Age", "From", "Message"] and set("".join(found[1])) == {"-"}
    assert [*found[2][:2], found[2][3]] == ["Warning", "FailedScheduling", "default-scheduler"]
    assert found[2][4].startswith("0/12 nodes are available: ")


@pytest.mark.cluster
def test_events_are_followed_as_they_come_and_can_be_read_as_objects(rayched: Commands, namespace: str, name: str) -> None:
    with started("events", "-n", namespace, "-w", environment={**os.environ, "RAYCHED_SERVER": rayched.server}) as watch:
        assert watch.line().startswith("LAST SEEN")
        rayched.ok("apply", "-f", "-", stdin=a_pod_text(name, namespace=namespace))
        assert f"Successfully assigned {namespace}/{name} to " in watch.line()
    (line,) = rayched.ok("get", "events", "-n", namespace, "--field-selector", f"involvedObject.name={name}", "-o", "name")
    text = "\n".join(rayched.ok("get", line, "-n", namespace, "-o", "yaml"))
    assert "reason: Scheduled" in text and "kind: Event" in text and "component: default-scheduler" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("events --for web-0", "error: --for: 'web-0' is not TYPE/NAME"),
        ("events --for nothing/web-0", "error: there is no kind"),
        ("events --types Bad", "error: --types: found 'bad', allowed are Normal, Warning"),
        ("events -A --for pod/web-0", "error: --for names an object of one namespace"),
    ],
)
def test_a_wrong_question_is_one_line(words: str, said: str) -> None:
    result = run_here(words.split(), environment={"RAYCHED_SERVER": "127.0.0.1:1"})
    assert (result.code, result.out, len(result.errors)) == (2, "", 1)
    assert result.errors[0].startswith(said)


@pytest.mark.parametrize(
    ("count", "first", "last", "text"),
    [(1, 300, 300, "5m"), (3, 1200, 300, "5m (x3 over 20m)"), (2, 10, 0, "10s (x2 over 10s)"), (0, 60, 0, "60s")],
)
def test_what_happened_several_times_says_how_often_and_since_when(count: int, first: int, last: int, text: str) -> None:
    event = Event(count=count, first_timestamp=Timestamp(seconds=NOW - first))
    if last:
        event.last_timestamp.seconds = NOW - last
    assert event_interval(event, NOW) == text


@pytest.mark.cluster
def test_events_have_the_outputs_of_get(rayched: Commands, web: str) -> None:
    wait_until(lambda: len(rayched("events", "-n", web).lines) == 4, "three pods have an event each")
    reasons = rayched.ok("events", "-n", web, "-o", "jsonpath={.items[*].reason}")
    assert sorted(reasons[0].split()) == ["FailedScheduling", "Scheduled", "Scheduled"]
    found = rayched.ok("events", "-n", web, "--for", "pod/db", "-o", "custom-columns=R:.reason,O:.involvedObject.name")
    assert [line.split() for line in found] == [["R", "O"], ["FailedScheduling", "db"]]
    refused = rayched("events", "-w", "-o", "json")
    assert refused.code == 2 and "--output cannot be combined with --watch" in refused.errors[0]
