"""Attacks of callers who want what is not theirs, and of texts that want out."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from contextlib import closing
from typing import Final

from rayched.api.kinds import wrap
from rayched.client.contexts import write_context_file
from rayched.v1.core_pb2 import Event, Node, NodeStatus, Pod
from rayched.v1.services_pb2 import (
    ExplainRequest,
    GetPlanBasisRequest,
    GetPlanBasisResponse,
    GetSchedulerStatusRequest,
    GetSchedulerStatusResponse,
    RegisterNodeRequest,
    SubmitRequest,
    SubmitResponse,
    UpdateNodeStatusRequest,
)
from rayched.v1.workloads_pb2 import PriorityClass
from tests.listening import listening
from tests.probe.attack import Attack, Shown
from tests.probe.world import ProbeWorld

_SECONDS_MAX: Final = 10.0
_PORT_SECONDS_MAX: Final = 0.5
_ESCAPES: Final = "harmless\x1b[2J\x1b]0;owned\x07\x1b[31mRED\r\nfake line\u202e"
SEED: Final = 4_711
"""That the replica is started with."""


def a_pod(name: str, namespace: str = "team-a") -> Pod:
    pod = Pod(api_version="v1", kind="Pod", metadata={"name": name, "namespace": namespace})
    pod.spec.containers.add(name="main", image="registry.example/a:1").resources.requests["cpu"].string = "10m"
    return pod


def _odd_names(world: ProbeWorld) -> Shown:
    epoch = world.admin.leader().epoch
    codes = set()
    for namespace, name in (("a/b", "web"), ("team-a", "a/b"), ("team-a", "a\0b"), ("team-a", "x" * (32 << 10))):
        for role in ("admin", "viewer"):
            codes.add(world.ask(role, "Scheduling.Explain", ExplainRequest(namespace=namespace, name=name))[0])
        # One a second of a caller is looked at.
        time.sleep(1.1)
    now = world.admin.leader().epoch
    return f"{', '.join(sorted(codes))}; epoch {epoch}, then {now}", now == epoch and codes <= {
        "INVALID_ARGUMENT",
        "PERMISSION_DENIED",
    }


def _ports_of_etcd(world: ProbeWorld) -> Shown:
    etcd = world.cluster.etcd
    assert etcd is not None and etcd.pid is not None
    found = listening({etcd.pid})
    return f"{len(found)} ports", not found


def _pages(world: ProbeWorld) -> Shown:
    """What a page in a browser would send, to every port that there is."""
    answered = []
    for _, port in listening(world.tree()):
        headers = {"Origin": "https://evil.example", "Content-Type": "text/plain", "Host": "evil.example"}
        for method, path in (("POST", "/v3/kv/put"), ("GET", "/metrics"), ("GET", "/configz")):
            try:
                with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_PORT_SECONDS_MAX)) as connection:
                    connection.request(method, path, b'{"key":"YQ==","value":"eA=="}' if method == "POST" else None, headers)
                    status = connection.getresponse().status
            except (OSError, http.client.HTTPException):
                continue
            if status < 400:
                answered.append(f"{port}{path} {status}")
    return ", ".join(answered) or "no answer but refusals", not answered


def _anybody(world: ProbeWorld) -> Shown:
    node = Node(metadata={"name": "node-003"})
    node.status.capacity["cpu"].string = node.status.allocatable["cpu"].string = "100000"
    bound, critical = a_pod("direct"), a_pod("critical")
    bound.spec.node_name, critical.spec.priority_class_name = "node-001", "system-node-critical"
    default = PriorityClass(metadata={"name": "mine"}, value=1_000_000_000, global_default=True)
    tries = [
        ("nobody", "Nodes.Register", RegisterNodeRequest(node=node)),
        ("agent", "Nodes.Register", RegisterNodeRequest(node=node)),
        ("agent", "Nodes.UpdateNodeStatus", UpdateNodeStatusRequest(name="node-002", status=NodeStatus())),
        ("submitter", "Submission.Submit", SubmitRequest(object=wrap(bound))),
        ("submitter", "Submission.Submit", SubmitRequest(object=wrap(critical))),
        ("submitter", "Submission.Submit", SubmitRequest(object=wrap(default))),
        ("viewer", "Submission.Submit", SubmitRequest(object=wrap(a_pod("mine")))),
        ("submitter", "Submission.Submit", SubmitRequest(object=wrap(a_pod("theirs", "team-b")))),
    ]
    others = []
    for role, call, request in tries:
        code, said = world.ask(role, call, request)
        if code != "PERMISSION_DENIED":
            others.append(f"{call} of {role} {code} {said.decode(errors='replace')[:60]}")
    return f"{len(tries) - len(others)} of {len(tries)} PERMISSION_DENIED {'; '.join(others)}".rstrip(), not others


def _terminal(world: ProbeWorld) -> Shown:
    event = Event(metadata={"name": "fake.1", "namespace": "team-a"}, reason="Preempted", type="Warning", message=_ESCAPES)
    event.involved_object.kind, event.involved_object.name, event.involved_object.namespace = "Pod", "web", "team-a"
    world.ask("admin", "Submission.Submit", SubmitRequest(object=wrap(event)))
    context = world.directory / "context.yaml"
    assert world.cluster.tls is not None
    write_context_file(context, [world.address], world.cluster.tls)
    line = [sys.executable, "-m", "rayched.cli.main", "events", "-n", "team-a", "--context", str(context)]
    done = subprocess.run(line, capture_output=True, timeout=60, check=False)
    text = done.stdout.decode()
    raw = [one for one in text if (ord(one) < 0x20 and one != "\n") or 0x7F <= ord(one) <= 0x9F or one == "\u202e"]
    return f"exit code {done.returncode}, {len(raw)} raw characters", not done.returncode and "RED" in text and not raw


def _anothers_uid(world: ProbeWorld) -> Shown:
    theirs, own = a_pod("secret-name", "team-b"), a_pod("own")
    theirs.metadata.uid = own.metadata.uid = "job-4711"
    world.ask("admin", "Submission.Submit", SubmitRequest(object=wrap(theirs)))
    code, said = world.ask("submitter", "Submission.Submit", SubmitRequest(object=wrap(own)))
    tells = b"secret-name" in said or b"team-b" in said
    is_shared = code == "OK" and SubmitResponse.FromString(said).uid == "job-4711"
    again = world.ask("submitter", "Submission.Submit", SubmitRequest(object=wrap(own)))
    is_again = again[0] == code == "OK" and SubmitResponse.FromString(again[1]).uid == SubmitResponse.FromString(said).uid
    word = "tells of it" if tells else "no word of it"
    return f"{code}, {word}{', one uid for both' if is_shared else ''}", is_again and not tells and not is_shared


def _seed(world: ProbeWorld) -> Shown:
    code, said = world.ask("everywhere", "Scheduling.GetPlanBasis", GetPlanBasisRequest())
    seed = GetPlanBasisResponse.FromString(said).seed if code == "OK" else -1
    return f"{code}, seed {seed}", code == "OK" and seed == 0


def _http_endpoint(world: ProbeWorld) -> Shown:
    statuses = []
    for path in ("/metrics", "/configz", "/statusz"):
        with closing(http.client.HTTPConnection(world.http_address, timeout=_SECONDS_MAX)) as connection:
            connection.request("GET", path, headers={"Host": "evil.example"})
            statuses.append(connection.getresponse().status)
    return ", ".join(map(str, statuses)), set(statuses) == {421}


def _hops(world: ProbeWorld) -> Shown:
    code, said = world.ask("viewer", "Scheduling.GetSchedulerStatus", GetSchedulerStatusRequest(hops=-(2**31)))
    pids = len(GetSchedulerStatusResponse.FromString(said).pids) if code == "OK" else -1
    return f"{code}, {pids} pids", code == "OK" and pids == 0


ATTACKS: Final = (
    Attack("F1", "explain a/b", "ended the leader, and the next one", "refused, same epoch", _odd_names),
    Attack("F2", "etcd's port", "every key read and written", "no port", _ports_of_etcd),
    Attack("F3", "a page's requests to all ports", "wrote a bound pod", "no port answers one", _pages),
    Attack("F6", "eight calls that are others' to make", "all done", "all PERMISSION_DENIED", _anybody),
    Attack("F13", "an Event with escapes", "reached the terminal raw", "none raw", _terminal),
    Attack("F15", "another namespace's uid", "told the pod's name, or taken", "created, and no word", _anothers_uid),
    Attack("F16", "the basis of plans", "told the seed", "no seed", _seed),
    Attack("F20", "the HTTP port by another name", "answered", "421", _http_endpoint),
    Attack("F21", "hops of a client", "believed, pids told", "ignored, no pids", _hops),
)
