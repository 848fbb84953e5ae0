"""scale, wait and run, as a person uses them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rayched.api.kinds import REPLICA_SET
from rayched.cli.output.json_path import PathFault, compiled
from rayched.v1.core_pb2 import Pod, PodStatus
from rayched.v1.services_pb2 import PodStatusUpdate
from rayched.v1.workloads_pb2 import ReplicaSet
from tests.cli.cluster import Commands, Result, a_pod_text, run_here, wait_until

DOCUMENT = {
    "metadata": {"name": "db", "labels": {"example.com/a": "x"}},
    "status": {
        "phase": "Running",
        "ready": True,
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Odd", "status": "False", "count": 3}],
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{.status.phase}", ["Running"]),
        ("{$.status.phase}", ["Running"]),
        ("status.phase", ["Running"]),
        (".status.conditions[1].type", ["Odd"]),
        (".status.conditions[-2].type", ["Ready"]),
        (".status.conditions[9].type", []),
        (".status.conditions[*].type", ["Ready", "Odd"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type!='Ready')].type", ["Odd"]),
        (".status.conditions[?(@.count==3)].type", ["Odd"]),
        (r".metadata.labels.example\.com/a", ["x"]),
        (".metadata.labels['example.com/a']", ["x"]),
        (".metadata.labels", [{"example.com/a": "x"}]),
        (".nothing.here", []),
        (".status.conditions[*]['type','status']", ["Ready", "True", "Odd", "False"]),
        (".status.conditions[0,1].type", ["Ready", "Odd"]),
        (".status.conditions[0:1].type", ["Ready"]),
        (".status.conditions[:].type", ["Ready", "Odd"]),
        ("..type", ["Ready", "Odd"]),
        (".status..count", [3]),
        (".status.conditions[?(@.count)].type", ["Odd"]),
        (".status.conditions[?(@.count>2)].type", ["Odd"]),
        (".status.conditions[?(@.count<10)].type", ["Odd"]),
        (".status.phase.deeper", []),
    ],
)
def test_a_path_leads_to_values(path: str, found: list[Any]) -> None:
    assert compiled(path)(DOCUMENT) == found


@pytest.mark.parametrize(("path", "missing"), [("{.a", '"}" is missing at its end'), (".a}", '"{" is missing at its beg')])
def test_a_path_with_one_brace_alone_is_told_which_one_is_missing(path: str, missing: str) -> None:
    with pytest.raises(PathFault, match=re.escape(missing)):
        compiled(path)


@pytest.mark.parametrize("path", ["", "{}", ".a[", ".a[?(b)]", "{.a}{.b}", "[1:2:3]", ".a[?(@.b=~1)]"])
def test_what_is_no_path_is_told(path: str) -> None:
    with pytest.raises(PathFault, match=r"names no field|cannot be read"):
        compiled(path)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("wait pod/a --for=soon", "--for 'soon': want delete, create, condition=NAME"),
        ("wait pod/a --for=condition", "--for 'condition': want"),
        ("wait pod/a --for=jsonpath={.a}=", "has no value behind the equals sign"),
        ("wait pod/a --for=jsonpath={.a[}", "cannot be read from"),
        ("wait pod/a --for=delete --timeout=soon", "--timeout 'soon': is no duration"),
        ("run a", "name what to run"),
        ("run a --restart Sometimes -- true", "--restart 'Sometimes': want one of Always, OnFailure, Never"),
        ("run a --env x -- true", "--env 'x': want NAME=VALUE"),
        ("run a --labels x -- true", "--labels 'x': want KEY=VALUE"),
        ("run a --parallelism 2 -- true", "--parallelism says how many of --count run at a time"),
        ("follow pods", "name one pod or job, as in pod/hello or job/count"),
        ("follow node/a", "name one pod or job, as in pod/hello or job/count"),
        ("run a --rm --detach -- true", "--rm deletes what has ended"),
    ],
)
def test_wrong_options_are_told_before_anything_happens(words: str, text: str) -> None:
    result = run_here(words.split(), None, {"RAYCHED_SERVER": "127.0.0.1:1"})
    assert result.code == 2
    assert text in result.errors[0]


def a_replica_set(rayched: Commands, namespace: str, replicas: int) -> None:
    text = f"""apiVersion: apps/v1
kind: ReplicaSet
metadata: {{name: web, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: main, image: "registry.example/web:1"}}], terminationGracePeriodSeconds: 0}}
"""
    rayched.ok("apply", "-f", "-", stdin=text)


def in_background(work: Callable[[], Result]) -> Callable[[], Result]:
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()

    def result() -> Result:
        thread.join(60.0)
        return found[0]

    return result


@pytest.mark.cluster
@pytest.mark.row("W12")
def test_a_replica_set_is_scaled_and_waited_for(rayched: Commands, namespace: str) -> None:
    a_replica_set(rayched, namespace, 1)
    place = ("-n", namespace)
    assert rayched.ok("scale", "rs", "web", "--replicas", "3", *place) == ["replicaset.apps/web scaled"]
    ready = "--for=jsonpath={.status.readyReplicas}=3"
    assert rayched.ok("wait", ready, "rs/web", "--timeout", "60s", *place) == ["replicaset.apps/web condition met"]
    row = rayched.ok("get", "rs", "web", *place)[1].split()
    assert row[:4] == ["web", "3", "3", "3"]
    names = [line.split()[0] for line in rayched.ok("get", "pods", "--no-headers", *place)]
    assert len(names) == 3 and all(name.startswith("web-") for name in names)
    refused = rayched("scale", "rs", "web", "--current-replicas", "2", "--replicas", "9", *place)
    assert refused.code == 1 and "expected replicas to be 2, was 3" in refused.errors[0]
    refused = rayched("scale", "service", "web", "--replicas", "1", *place)
    assert refused.code == 1
    too_late = rayched("wait", "--for=jsonpath={.status.replicas}=9", "rs/web", "--timeout", "100ms", *place)
    assert (too_late.code, too_late.errors) == (1, ["error: timed out waiting for the condition on replicasets/web"])
    once = rayched("wait", "--for=jsonpath={.status.replicas}=9", "rs/web", "--timeout", "0s", *place)
    assert (once.code, once.errors) == (1, ["error: timed out waiting for the condition on replicasets/web"])
    assert any(is_told_of_its_end(rayched, namespace, name) for name in names)
    rayched.ok("delete", "rs", "web", *place)
    wait_until(lambda: not list(rayched.client.list("pods", namespace=namespace)), "the pods go with their ReplicaSet")
    assert rayched.ok("wait", "--for=delete", f"pod/{names[0]}", *place) == []
    missing = rayched("wait", "--for=condition=Ready", "pod/none-such", *place)
    assert missing.code == 1 and "none-such" in missing.errors[0]


def is_told_of_its_end(rayched: Commands, namespace: str, name: str) -> bool:
    """False where the pod was gone before anybody waited, of which nothing is told."""
    waiting = in_background(lambda: rayched("wait", "--for=delete", f"pod/{name}", "-n", namespace))
    time.sleep(0.5)
    rayched.client.delete("pods", name, namespace, grace_period_seconds=0)
    result = waiting()
    assert (result.code, result.errors) == (0, [])
    return result.out == f"pod/{name} condition met\n"


@pytest.mark.cluster
def test_scaling_is_a_new_desire(rayched: Commands, namespace: str) -> None:
    a_replica_set(rayched, namespace, 0)
    before = rayched.client.get(REPLICA_SET, "web", namespace)
    answer = rayched.client.scale(REPLICA_SET, "web", namespace, replicas=2)
    found = answer.object.replica_set
    assert isinstance(before, ReplicaSet)
    assert (found.spec.replicas, found.metadata.generation) == (2, before.metadata.generation + 1)
    assert (answer.changed, answer.previous_replicas) == (True, 0)
    # Repeated, as after an answer that was lost.
    again = rayched.client.scale(REPLICA_SET, "web", namespace, replicas=2, current_replicas=0)
    assert not again.changed
    rayched.client.delete(REPLICA_SET, "web", namespace)
    wait_until(lambda: not list(rayched.client.list("pods", namespace=namespace)), "the pods go with their ReplicaSet")


@pytest.mark.cluster
@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.row("W13")
def test_a_command_runs_as_a_pod_and_ends_as_it_ends(rayched: Commands, namespace: str, code: int) -> None:
    running = in_background(
        lambda: rayched("run", "hello", "-n", namespace, "--env", "A=b", "--requests", "cpu=100m", "--", "sh", "-c", "exit 7")
    )
    wait_until(lambda: bool(list(rayched.client.list("pods", namespace=namespace))), "the pod is there")
    pod = rayched.pod_when("hello", lambda found: found.status.phase == "Running", "runs", namespace)
    assert list(pod.spec.containers[0].command) == ["sh", "-c", "exit 7"]
    assert (pod.spec.restart_policy, pod.metadata.labels["run"]) == ("Never", "hello")
    end(rayched, pod, code)
    assert running().code == code


@pytest.mark.cluster
def test_a_pod_that_goes_before_its_end_is_an_error(rayched: Commands, namespace: str) -> None:
    running = in_background(lambda: rayched("run", "hello", "-n", namespace, "--", "true"))
    wait_until(lambda: bool(list(rayched.client.list("pods", namespace=namespace))), "the pod is there")
    rayched.client.delete("pods", "hello", namespace, grace_period_seconds=0)
    result = running()
    assert (result.code, result.errors[-1]) == (1, "error: pod/hello was deleted before it had ended")


@pytest.mark.cluster
def test_a_pod_that_is_to_run_for_ever_is_made_and_left(rayched: Commands, namespace: str) -> None:
    lines = rayched.ok("run", "web", "-n", namespace, "--restart", "Always", "--", "sleep", "1000")
    assert lines == ["pod/web created"]
    assert rayched("run", "web", "-n", namespace, "--", "true").code == 1
    late = rayched("run", "big", "-n", namespace, "--requests", "cpu=5000", "--timeout", "2s", "--", "true")
    assert (late.code, late.errors[-1]) == (1, "error: timed out waiting for the condition on pods/big; it goes on")
    assert any(f"waiting for pod {namespace}/big: Unschedulable: 0/" in line for line in late.errors)


def end(rayched: Commands, pod: Pod, code: int, phase: str = "", **said: str) -> None:
    status = PodStatus(phase=phase or ("Failed" if code else "Succeeded"), **said)
    status.container_statuses.add(name="hello").state.terminated.exit_code = code
    update = PodStatusUpdate(name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid, status=status)
    assert rayched.client.update_pod_statuses([update]) == (None,)


@pytest.mark.cluster
def test_a_pod_that_failed_though_its_command_ended_well_is_told_of_and_deleted(rayched: Commands, namespace: str) -> None:
    running = in_background(lambda: rayched("run", "hello", "-n", namespace, "--rm", "--", "true"))
    wait_until(lambda: bool(list(rayched.client.list("pods", namespace=namespace))), "the pod is there")
    pod = rayched.pod_when("hello", lambda found: found.status.phase == "Running", "runs", namespace)
    end(rayched, pod, 0, phase="Failed", reason="DeadlineExceeded", message="it took too long")
    result = running()
    assert (result.code, result.errors[-1]) == (1, "error: pod/hello failed: DeadlineExceeded: it took too long")
    wait_until(lambda: not list(rayched.client.list("pods", namespace=namespace)), "it is deleted")


@pytest.mark.cluster
def test_what_cannot_be_started_is_told(rayched: Commands, namespace: str) -> None:
    running = in_background(lambda: rayched("run", "hello", "-n", namespace, "--", "nosuchprogram"))
    wait_until(lambda: bool(list(rayched.client.list("pods", namespace=namespace))), "the pod is there")
    pod = rayched.pod_when("hello", lambda found: found.status.phase == "Running", "runs", namespace)
    status = PodStatus(phase="Failed")
    ended = status.container_statuses.add(name="hello").state.terminated
    ended.exit_code, ended.reason, ended.message = 128, "StartError", "cannot start 'nosuchprogram': \x1b[31mnot found"
    update = PodStatusUpdate(name="hello", namespace=namespace, uid=pod.metadata.uid, status=status)
    assert rayched.client.update_pod_statuses([update]) == (None,)
    result = running()
    assert (result.code, result.errors[-1]) == (128, "error: cannot start 'nosuchprogram': \\u001b[31mnot found")


@pytest.mark.cluster
def test_a_pod_that_goes_on_is_not_deleted_when_the_time_is_over(rayched: Commands, namespace: str) -> None:
    late = rayched("run", "hello", "-n", namespace, "--rm", "--timeout", "1s", "--", "sleep", "1000")
    assert (late.code, late.errors[-1]) == (1, "error: timed out waiting for the condition on pods/hello; it goes on")
    pod = rayched.pod_when("hello", lambda found: found.status.phase == "Running", "runs", namespace)
    assert not pod.metadata.HasField("deletion_timestamp")


@pytest.mark.cluster
@pytest.mark.row("W12")
def test_conditions_are_waited_for_whatever_their_case(rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("db", namespace=namespace))
    assert rayched.ok("wait", "--for=condition=podscheduled", "pod/db", "-n", namespace) == ["pod/db condition met"]
    assert rayched("wait", "--for=condition=PodScheduled=false", "pod/db", "-n", namespace, "--timeout", "0s").code == 1
    assert rayched.ok("wait", "--for=create", "pod/db", "-n", namespace) == ["pod/db condition met"]
    assert rayched.ok("wait", "--for=jsonpath={.spec.nodeName}", "pod", "--all", "-n", namespace) == ["pod/db condition met"]
