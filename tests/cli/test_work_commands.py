"""Several pods from one line, held, let go, followed to their end, and looked up afterwards."""

from __future__ import annotations

import pytest

from rayched.api import kinds
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Job
from tests.cli.cluster import Commands, wait_until
from tests.cli.test_workload_commands import end, in_background

pytestmark = pytest.mark.cluster


def pods(rayched: Commands, namespace: str) -> list[Pod]:
    return [pod for pod in rayched.client.list(kinds.POD, namespace=namespace) if isinstance(pod, Pod)]


def end_all(rayched: Commands, namespace: str, count: int, code: int) -> None:
    def running() -> list[Pod]:
        return [pod for pod in pods(rayched, namespace) if pod.status.phase == "Running"]

    wait_until(lambda: len(running()) >= count, f"{count} pods run")
    for pod in running():
        end(rayched, pod, code)


def test_an_array_is_one_line_and_its_end_the_exit_code(rayched: Commands, namespace: str) -> None:
    running = in_background(lambda: rayched("run", "array", "-n", namespace, "--count", "3", "--rm", "--", "true"))
    end_all(rayched, namespace, 3, 0)
    result = running()
    assert (result.code, result.out) == (0, "")
    assert result.errors[-1] == "job.batch/array: 3 of 3 succeeded, 0 running"
    wait_until(lambda: not list(rayched.client.list(kinds.JOB, namespace=namespace)), "the job is deleted")
    wait_until(lambda: not pods(rayched, namespace), "its pods are gone")


def test_a_count_that_is_always_started_again_is_a_replica_set(rayched: Commands, namespace: str) -> None:
    words = ("run", "web", "-n", namespace, "--restart", "Always", "--count", "2", "--image", "web:1")
    assert rayched.ok(*words) == ["replicaset.apps/web created"]
    wait_until(lambda: len(pods(rayched, namespace)) == 2, "two pods are there")
    assert all(pod.metadata.labels["run"] == "web" for pod in pods(rayched, namespace))
    rayched.ok("delete", "rs", "web", "-n", namespace)
    wait_until(lambda: not pods(rayched, namespace), "its pods are gone")


def test_a_job_is_held_released_followed_and_remembered(rayched: Commands, namespace: str) -> None:
    place = ("-n", namespace)
    assert rayched.ok("run", "count", *place, "--count", "2", "--hold", "--", "true") == ["job.batch/count created"]
    assert rayched.ok("hold", "job/count", *place) == ["job.batch/count already held"]
    assert pods(rayched, namespace) == []
    assert rayched.ok("release", "job/count", *place) == ["job.batch/count released"]
    following = in_background(lambda: rayched("follow", "job/count", *place))
    end_all(rayched, namespace, 2, 0)
    result = following()
    assert result.code == 0 and result.errors[-1] == "job.batch/count: 2 of 2 succeeded, 0 running"
    rows = [line.split() for line in rayched.ok("history", *place)]
    assert rows[0][:3] == ["NAME", "STATUS", "EXIT"]
    assert sorted(row[0].split("/")[0] for row in rows[1:]) == ["job.batch", "pod", "pod"]
    assert rayched("history", "--failed", *place).errors == [f"No resources found in {namespace} namespace."]
    assert rayched("history", "--since", "1h", *place, "-o", "name").lines
    job = rayched.client.get(kinds.JOB, "count", namespace)
    assert isinstance(job, Job) and job.status.succeeded == 2


def test_a_pod_is_held_from_its_creation_and_followed_with_its_code(rayched: Commands, namespace: str) -> None:
    place = ("-n", namespace)
    assert rayched.ok("run", "hello", *place, "--hold", "--", "true") == ["pod/hello created"]
    wait_until(lambda: rayched.ok("queue", *place, "-t", "gated", "-o", "name") == ["pod/hello"], "it waits at its gate")
    refused = rayched("hold", "pod/hello", *place)
    assert refused.code == 2 and "a pod is held from its creation on" in refused.errors[0]
    assert rayched.ok("release", "pod/hello", *place) == ["pod/hello released"]
    assert rayched.ok("release", "pod/hello", *place) == ["pod/hello not held"]
    following = in_background(lambda: rayched("follow", "pod/hello", *place))
    pod = rayched.running("hello", namespace)
    end(rayched, pod, 7)
    assert following().code == 7
    (row,) = (line.split() for line in rayched.ok("history", *place, "--no-headers", "--failed"))
    assert row[:3] == ["pod/hello", "Failed", "7"]


def test_a_job_that_failed_ends_the_command_so(rayched: Commands, namespace: str) -> None:
    rayched.ok("run", "bad", "-n", namespace, "--count", "1", "--detach", "--", "false")
    rayched.ok("patch", "job", "bad", "-n", namespace, "--type=merge", "-p", '{"spec":{"backoffLimit":0}}')
    following = in_background(lambda: rayched("follow", "job/bad", "-n", namespace))
    end_all(rayched, namespace, 1, 1)
    result = following()
    assert result.code == 1 and result.errors[-1].startswith("error: job.batch/bad failed: BackoffLimitExceeded")
