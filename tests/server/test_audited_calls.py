"""What the audit log has of calls at a real server over a real etcd, whose callers say who they are as in test_access.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from rayched.api.identity import IDENTITY_METADATA
from rayched.client import ApiError, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.audit_log import AuditLog
from rayched.server.audit_recorder import NAME_MAX, OBJECTS_A_LINE, REFUSALS_AT_ONCE
from rayched.server.audit_writer import AuditWriter
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import PodStatus, Service
from rayched.v1.meta_pb2 import ObjectMeta
from rayched.v1.services_pb2 import PodStatusUpdate, WatchRequest
from tests.access.matrix import IDENTITIES, binding, bindings
from tests.cli.cluster import run_here
from tests.server.objects import a_namespace, a_node, a_pod
from tests.server.serving import Serving, serving, until
from tests.server.test_access import Etcd, may, options_of

pytestmark = pytest.mark.cluster

CANARY = "canary-7d1f"


class Audited:
    """A server, its callers, and its audit log."""

    def __init__(self, server: Serving, path: Path) -> None:
        self.server, self.path = server, path
        self._clients: dict[str, Client] = {}

    def as_(self, column: str) -> Client:
        if column not in self._clients:
            self._clients[column] = Client(self.server.address, timeout_seconds=30.0)
            self._clients[column]._transport.identity = IDENTITIES[column]
        return self._clients[column]

    def lines(self, call: str = "", **wanted: Any) -> list[dict[str, Any]]:
        """Of a call, with these fields, oldest first."""
        # The last one may be half written.
        found = [json.loads(line) for line in self.path.read_text().split("\n")[:-1]]
        return [line for line in found if call in ("", line.get("call")) and wanted.items() <= line.items()]

    def line(self, call: str, **wanted: Any) -> dict[str, Any]:
        """The only one."""
        found = self.lines(call, **wanted)
        assert len(found) == 1, self.path.read_text()
        return found[0]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@pytest.fixture
def store(etcd: EtcdServer, etcd_root: str) -> Iterator[Etcd]:
    found = Etcd(etcd, Keys(etcd_root))
    yield found
    found.close()


@pytest.fixture
def audited(etcd: EtcdServer, etcd_root: str, store: Etcd, tmp_path: Path) -> Iterator[Audited]:
    for one in bindings():
        store.put(one)
    writer = AuditWriter(AuditLog(tmp_path / "audit.jsonl"), "replica-7")
    with serving(replace(options_of(etcd, etcd_root), audit=writer)) as server:
        until(lambda: may(server, "viewer", "Pod", "team-a"))
        found = Audited(server, tmp_path / "audit.jsonl")
        for name in ("team-a", "team-b"):
            found.as_("admin").submit(a_namespace(name))
        yield found
        found.close()
    writer.close()


def refused(work: Callable[[], Any]) -> ApiError:
    with pytest.raises(ApiError) as raised:
        work()
    return raised.value


@pytest.mark.row("B109")
def test_a_call_has_its_line_before_it_is_answered(audited: Audited, store: Etcd) -> None:
    sam = audited.as_("submitter")
    answer = sam.submit(a_pod("web", namespace="team-a"))

    line = audited.line("Submission.Submit", uri=IDENTITIES["submitter"])
    assert line["stage"] == "complete" and line["code"] == "OK" and line["replica"] == "replica-7"
    assert (line["kind"], line["namespace"], line["name"]) == ("Pod", "team-a", "web")
    assert line["uid"] == answer.uid and line["bytes"] > 0 and line["ms"] > 0
    assert line["roles"] == "submitter" and line["binding"] == binding("submitter", "submitter", "team-a").id
    assert line["peer"].startswith("ipv4:127.0.0.1:") and line["time"].endswith("Z")
    assert line["revision"] == store.dump()[store.keys.cluster_prefix + b"pods/team-a/web"]

    gone = sam.delete("pod", "web", "team-a")
    assert audited.line("Submission.Delete")["revision"] == gone.revision > line["revision"]
    refused(lambda: sam.get("pod", "web", "team-a"))
    missing = audited.line("Submission.Get", code="NOT_FOUND")
    assert missing["stage"] == "complete" and missing["name"] == "web" and "reason" not in missing
    assert run_here(["audit", "verify", str(audited.path)]).code == 0


@pytest.mark.row("B109")
def test_what_is_refused_is_told_with_its_reason_and_wrote_nothing(audited: Audited) -> None:
    said = refused(lambda: audited.as_("viewer").submit(a_pod("web", namespace="team-a")))
    early = audited.line("Submission.Submit", uri=IDENTITIES["viewer"])
    assert early["stage"] == "refused" and early["code"] == "PERMISSION_DENIED" and early["reason"] == said.message
    # Nothing of that one was read; of this one it is known what it was about.
    refused(lambda: audited.as_("submitter").get("pod", "web", "team-b"))
    late = audited.line("Submission.Get", uri=IDENTITIES["submitter"])
    assert late["stage"] == "refused" and (late["kind"], late["namespace"], late["name"]) == ("Pod", "team-b", "web")
    assert "revision" not in early and "revision" not in late and "roles" not in early
    # Of what an object may not say the fields are told, and not what it said.
    pod = a_pod("web", namespace="team-a", node=CANARY, labels={f"{CANARY}.kubernetes.io/x": "1"})
    refused(lambda: audited.as_("submitter").submit(pod))
    fields = audited.line("Submission.Submit", uri=IDENTITIES["submitter"])
    assert fields["reason"] == "may not say this of metadata.labels[], spec.nodeName"
    assert CANARY not in audited.path.read_text()


@pytest.mark.row("B109")
def test_of_a_call_on_many_each_object_is_told(audited: Audited, store: Etcd) -> None:
    """Those that were written have lines of their own, which no name of another one can make too long."""
    good = [a_pod(f"web-{number}", namespace="team-a") for number in range(OBJECTS_A_LINE + 7)]
    bad = [a_pod("é" * 900, namespace="team-a"), a_pod("web", namespace="team-b"), a_pod("named", namespace="team-a", node="n")]
    outcomes = audited.as_("submitter").submit_many([*bad, *good])
    assert [outcome.error is None for outcome in outcomes] == [False] * 3 + [True] * len(good)

    lines = audited.lines("Submission.SubmitMany")
    assert len({line["id"] for line in lines}) == 1 and [len(line["objects"]) for line in lines] == [OBJECTS_A_LINE, 7, 3]
    found = store.dump()
    for one in (one for line in lines[:2] for one in line["objects"]):
        assert (
            one["code"] == "OK"
            and one["revision"] == found[f"{store.keys.cluster_prefix.decode()}pods/team-a/{one['name']}".encode()]
        )
    failed = {one["name"]: one["code"] for one in lines[2]["objects"]}
    assert failed == {"é" * 253: "INVALID_ARGUMENT", "web": "PERMISSION_DENIED", "named": "PERMISSION_DENIED"}
    assert all(line["roles"] == "submitter" for line in lines)


def test_what_agents_report_is_told_but_signs_of_life_are_not(audited: Audited) -> None:
    admin = audited.as_("admin")
    admin.register_node(a_node("node-1"))
    pods = [a_pod(f"on-{number}", namespace="team-a", node="node-1", uid=f"uid-{number}") for number in range(2)]
    for pod in pods:
        admin.submit(pod)
    admin.heartbeat(["node-1"])
    updates = [
        PodStatusUpdate(namespace="team-a", name=pod.metadata.name, uid=pod.metadata.uid, status=PodStatus(phase="Running"))
        for pod in pods
    ]
    admin.update_pod_statuses(updates)
    (line,) = audited.lines("Nodes.UpdatePodStatus")
    assert [(one["name"], one["code"], one["revision"] > 0) for one in line["objects"]] == [
        ("on-0", "OK", True),
        ("on-1", "OK", True),
    ]
    assert audited.lines("Nodes.Heartbeat") == [] and audited.lines("Health.Check") == []
    refused(lambda: audited.as_("viewer").heartbeat(["node-1"]))
    assert audited.line("Nodes.Heartbeat")["stage"] == "refused"


def test_of_a_stream_its_begin_and_its_end_are_told_but_not_how_it_goes_on(audited: Audited) -> None:
    vera = audited.as_("viewer")
    audited.as_("submitter").submit(a_pod("web", namespace="team-a"))
    with vera.watch("pod", namespace="team-a") as stream:
        events = iter(stream)
        # The present state comes from a list; what follows, from the watch.
        first = next(events)
        audited.as_("submitter").submit(a_pod("web-2", namespace="team-a"))
        next(events)
        until(lambda: audited.lines("Watch.Watch") != [])
        started = audited.line("Watch.Watch")
        assert (started["stage"], started["namespace"], started["roles"]) == ("started", "team-a", "viewer")
    until(lambda: len(audited.lines("Watch.Watch")) == 2)
    ended = audited.lines("Watch.Watch")[1]
    assert ended["stage"] == "complete" and ended["id"] == started["id"] and ended["ms"] > 0
    with vera.watch("pod", namespace="team-a", start_revision=first.revision) as stream:
        next(iter(stream))
    # Of something else, from the same revision.
    with vera.watch("service", namespace="team-a", start_revision=first.revision) as stream:
        audited.as_("submitter").submit(Service(metadata=ObjectMeta(name="web", namespace="team-a")))
        next(iter(stream))
    until(lambda: len(audited.lines("Watch.Watch")) == 4)
    assert [line["kind"] for line in audited.lines("Watch.Watch")] == ["Pod", "Pod", "Service", "Service"]


def test_who_may_what_is_told_with_what_was_asked_for(audited: Audited) -> None:
    admin = audited.as_("admin")
    one = binding("nobody", "viewer", "team-b")
    admin.grant(one.to_message())
    granted = audited.line("Access.Grant")
    assert granted["request"]["binding"]["subject"] == IDENTITIES["nobody"] and granted["revision"] > 0
    admin.grant(one.to_message())
    assert "revision" not in audited.lines("Access.Grant")[1], "it was there"
    admin.revoke_grant(one.id)
    assert audited.line("Access.RevokeGrant")["request"] == {"id": one.id}


def test_what_is_tried_alone_wrote_nothing(audited: Audited) -> None:
    sam = audited.as_("submitter")
    pod = a_pod("web", namespace="team-a")
    sam.apply(pod, dry_run=True)
    sam.apply(pod)
    sam.apply(pod)
    pod.metadata.labels["a"] = "b"
    sam.apply(pod, dry_run=True)
    lines = audited.lines("Submission.Apply")
    assert [(line.get("dry_run", False), "revision" in line) for line in lines] == [
        (True, False),
        (False, True),
        (False, False),
        (True, False),
    ]


@pytest.mark.row("B58")
def test_a_claim_to_ask_for_somebody_else_is_told(audited: Audited) -> None:
    call = audited.server.channel.unary_unary("/rayched.v1.Scheduling/GetPlanBasis")
    said = ((IDENTITY_METADATA, IDENTITIES["viewer"]), ("rayched-for", IDENTITIES["admin"]))
    with pytest.raises(grpc.RpcError):
        call(b"", timeout=30, metadata=said)
    line = audited.line("Scheduling.GetPlanBasis")
    assert (line["uri"], line["claimed"], line["stage"]) == (IDENTITIES["viewer"], IDENTITIES["admin"], "refused")
    with pytest.raises(grpc.RpcError):
        call(b"", timeout=30, metadata=(("rayched-for", IDENTITIES["viewer"]),))
    line = audited.line("Scheduling.GetPlanBasis", uri=IDENTITIES["replica"])
    assert line["on_behalf_of"] == IDENTITIES["viewer"] and "claimed" not in line


@pytest.mark.row("KC28")
def test_a_call_of_a_gateway_is_told_as_one_for_its_user(audited: Audited) -> None:
    gateway = "spiffe://rayched-test/web/gateway"
    call = audited.server.channel.unary_unary("/rayched.v1.Access/WhoAmI")
    call(b"", timeout=30, metadata=((IDENTITY_METADATA, gateway), ("rayched-for", IDENTITIES["viewer"])))
    line = audited.line("Access.WhoAmI")
    assert (line["uri"], line["on_behalf_of"]) == (gateway, IDENTITIES["viewer"])


def test_watches_of_long_names_are_told_each_time_and_none_is_kept(audited: Audited) -> None:
    """Of 4,096 names of a megabyte each the replica would not survive."""
    recorder = audited.server.server._running.audit  # type: ignore[union-attr]
    assert recorder is not None
    call = audited.server.channel.unary_stream("/rayched.v1.Watch/Watch", WatchRequest.SerializeToString)
    revision = audited.as_("admin").submit(a_pod("web", namespace="team-a")).revision

    def watch(name: str) -> None:
        request = WatchRequest(kind="Pod", namespace="team-a", field_selector=f"metadata.name={name}", start_revision=revision)
        stream = call(request, timeout=30, metadata=((IDENTITY_METADATA, IDENTITIES["viewer"]),))
        stream.initial_metadata()
        stream.cancel()

    def begun() -> list[str]:
        return [line["name"] for line in audited.lines("Watch.Watch", stage="started")]

    for number, name in enumerate(("x" * (NAME_MAX + 1),) * 2, 1):
        watch(name)
        until(lambda wanted=number: len(begun()) == wanted)  # type: ignore[misc]
    assert not recorder._watches
    for _ in range(2):
        watch("web")
    until(lambda: "web" in begun())
    assert len(recorder._watches) == 1


def test_a_caller_that_is_refused_again_and_again_fills_no_log(audited: Audited) -> None:
    vera, more = audited.as_("viewer"), 60
    for _ in range(int(REFUSALS_AT_ONCE) + more):
        refused(lambda: vera.cordon("node-1"))
    own = audited.lines("Admin.Cordon")
    assert REFUSALS_AT_ONCE <= len(own) < REFUSALS_AT_ONCE + more
    recorder = audited.server.server._running.audit  # type: ignore[union-attr]
    assert recorder is not None
    audited.server.loop.call_soon_threadsafe(recorder.tell_folded)
    until(lambda: len(audited.lines("Admin.Cordon")) > len(own))
    folded = audited.lines("Admin.Cordon")[-1]
    assert folded["times"] + len(own) == REFUSALS_AT_ONCE + more and folded["uri"] == IDENTITIES["viewer"]


def canary_pod(name: str) -> Any:
    """With the canary wherever a pod of a submitter may say anything, so far as it is still valid."""
    pod = a_pod(name, namespace="team-a", labels={CANARY: CANARY, f"{CANARY}/key": CANARY})
    pod.metadata.annotations[CANARY] = CANARY
    pod.metadata.finalizers.append(f"{CANARY}/kept")
    spec, (container,) = pod.spec, pod.spec.containers
    spec.node_selector[CANARY] = CANARY
    spec.tolerations.add(key=CANARY, operator="Equal", value=CANARY, effect="NoSchedule")
    spec.scheduling_gates.add(name=f"{CANARY}/gate")
    container.name, container.image = CANARY, f"{CANARY}:{CANARY}"
    container.command.append(CANARY)
    container.args.append(CANARY)
    container.env.add(name="CANARY", value=CANARY)
    return pod


@pytest.mark.row("B108")
def test_of_what_an_object_says_nothing_is_in_the_log(audited: Audited, caplog: pytest.LogCaptureFixture) -> None:
    sam = audited.as_("submitter")
    sam.submit(canary_pod("web"))
    sam.submit_many([canary_pod("many-0"), canary_pod("many-1")])
    changed = canary_pod("web")
    changed.metadata.annotations["more"] = CANARY
    sam.apply(changed)
    wrong = canary_pod("wrong")
    wrong.metadata.labels[f"{CANARY} {CANARY}"] = CANARY
    wrong.spec.restart_policy = CANARY
    assert refused(lambda: sam.submit(wrong)).code is grpc.StatusCode.INVALID_ARGUMENT
    assert sam.submit_many([wrong, canary_pod("many-2")])[0].error is not None
    refused(lambda: audited.as_("viewer").apply(changed))
    sam.label("pod", "web", "team-a", add={CANARY: f"{CANARY}-2"}, overwrite=True)
    text = audited.path.read_text()
    assert text.count("Submission.") >= 6 and CANARY not in text
    assert CANARY not in caplog.text
