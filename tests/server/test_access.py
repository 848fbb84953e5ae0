"""Who may what at a real server over a real etcd, whose callers say who they are in metadata that tests alone believe."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
import pytest
from google.protobuf import message_factory

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.access.bindings import RoleBinding
from rayched.access.identity import Identity
from rayched.api.identity import IDENTITY_METADATA
from rayched.client import ApiError, Client
from rayched.client.node_agent import NodeAgentClient
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.edge.limits import LOOPBACK, EdgeLimits
from rayched.server.ports import Leader
from rayched.server.server_options import ServerOptions
from rayched.server.server_parts import SERVED
from rayched.store.keys import Keys
from rayched.v1.access_pb2 import RoleBinding as RoleBindingMessage
from rayched.v1.core_pb2 import Node, NodeStatus, Pod, PodStatus, Taint
from rayched.v1.services_pb2 import ContinueToken, ListRequest, PodStatusUpdate, RegisterNodeRequest
from tests.access.matrix import DOMAIN, IDENTITIES, MatrixCell, binding, bindings, cells, request_of
from tests.server.objects import a_namespace, a_node, a_pod
from tests.server.serving import Serving, serving, until

pytestmark = pytest.mark.cluster

REPLICA: Final = Identity.parse(IDENTITIES["replica"])
ROOT: Final = (binding("admin", "admin"),)
CELLS: Final = tuple(cells())
REFUSED: Final = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


def said_identity(context: Any) -> Identity:
    """Who says nothing is a replica, as one that passes a question on says nothing of itself here."""
    said = next((str(text) for key, text in context.invocation_metadata() if key == IDENTITY_METADATA), "")
    return Identity.parse(said) if said else REPLICA


def options_of(etcd: EtcdServer, root: str) -> ServerOptions:
    """Without limits: one identity makes hundreds of calls a second here."""
    return ServerOptions(
        "127.0.0.1:0",
        [etcd.endpoint],
        Keys(root),
        edge=EdgeLimits(identity=LOOPBACK),
        identity_of=said_identity,
        built_in_bindings=ROOT,
    )


class Etcd:
    """The keys below one root, past every rule."""

    def __init__(self, etcd: EtcdServer, keys: Keys) -> None:
        self._channel = open_channel([etcd.endpoint])
        self._kv = rpc.KVStub(self._channel)
        self.keys = keys

    def put(self, found: RoleBinding) -> None:
        value = found.to_message().SerializeToString(deterministic=True)
        self._kv.Put(rpc.PutRequest(key=self.keys.binding(found.id), value=value))

    def remove(self, found: RoleBinding) -> None:
        self._kv.DeleteRange(rpc.DeleteRangeRequest(key=self.keys.binding(found.id)))

    def dump(self) -> dict[bytes, int]:
        """Keys that a call may change, and their revisions."""
        root = self.keys.root.encode()
        answer = self._kv.Range(rpc.RangeRequest(key=root + b"/", range_end=root + b"0"))
        return {pair.key: pair.mod_revision for pair in answer.kvs}

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def store(etcd: EtcdServer, etcd_root: str) -> Iterator[Etcd]:
    found = Etcd(etcd, Keys(etcd_root))
    yield found
    found.close()


@pytest.fixture
def api(etcd: EtcdServer, etcd_root: str, store: Etcd) -> Iterator[Serving]:
    for one in bindings():
        store.put(one)
    with serving(options_of(etcd, etcd_root)) as server:
        until(lambda: may(server, "viewer", "Pod", "team-a"))
        yield server


@pytest.fixture
def as_(api: Serving) -> Iterator[Callable[[str], Client]]:
    """A client of each column."""
    made: list[Client] = []

    def client(column: str) -> Client:
        found = Client(api.address, timeout_seconds=30.0)
        found._transport.identity = IDENTITIES[column]
        made.append(found)
        return found

    yield client
    for one in made:
        one.close()


def may(server: Serving, column: str, kind: str, namespace: str) -> bool:
    with Client(server.address, timeout_seconds=30.0) as client:
        client._transport.identity = IDENTITIES[column]
        return client.can_i("Submission.Get", kind, namespace).allowed


def code_of(work: Callable[[], Any]) -> str:
    with pytest.raises(ApiError) as raised:
        work()
    return str(raised.value.code.name)


def denied(work: Callable[[], Any]) -> str:
    """The message of a refusal."""
    with pytest.raises(ApiError) as raised:
        work()
    assert raised.value.code is grpc.StatusCode.PERMISSION_DENIED, str(raised.value)
    return raised.value.message


# --------------------------------------------------------------------------------------------------------------- the matrix


def code_of_cell(channel: grpc.Channel, cell: MatrixCell) -> grpc.StatusCode | None:
    """The code of the call; None: it has answered."""
    service, _, name = cell.call.partition(".")
    method = SERVED[service].methods_by_name[name]
    kind = "_".join("stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming))
    response = message_factory.GetMessageClass(method.output_type)
    call: Any = getattr(channel, kind)(
        f"/{method.containing_service.full_name}/{name}", lambda request: request.SerializeToString(), response.FromString
    )
    request = request_of(cell)
    try:
        if cell.call == "Submission.SubmitMany":
            (result,) = call(request, timeout=30, metadata=_metadata(cell)).results
            return next((code for code in grpc.StatusCode if code.value[0] == result.outcome.code), None)
        if not method.server_streaming:
            call(request, timeout=30, metadata=_metadata(cell))
            return None
        stream = call(iter([request]) if method.client_streaming else request, timeout=30, metadata=_metadata(cell))
        next(iter(stream), None)
        stream.cancel()
    except grpc.RpcError as error:
        return error.code()  # type: ignore[no-any-return]
    return None


def _metadata(cell: MatrixCell) -> tuple[tuple[str, str], ...]:
    return ((IDENTITY_METADATA, IDENTITIES[cell.column]),)


@pytest.mark.slow
@pytest.mark.row("B46")
def test_each_refused_cell_of_the_matrix_changes_nothing_in_etcd(api: Serving, store: Etcd) -> None:
    quiet = (b"/leader/", b"/compaction")

    def state() -> dict[bytes, int]:
        return {key: revision for key, revision in store.dump().items() if not any(part in key for part in quiet)}

    before = state()
    for cell in [cell for cell in CELLS if cell.letter == "n"]:
        assert code_of_cell(api.channel, cell) is grpc.StatusCode.PERMISSION_DENIED, str(cell)
    assert state() == before


@pytest.mark.slow
@pytest.mark.row("B46")
def test_each_allowed_cell_of_the_matrix_is_not_refused(api: Serving) -> None:
    # What takes things away comes last, and the roles themselves are not taken.
    last = ("Submission.Delete", "Eviction.Evict")
    asked = sorted((cell for cell in CELLS if cell.letter in "Ya"), key=lambda cell: cell.call in last)
    for cell in asked:
        code = code_of_cell(api.channel, cell)
        assert code not in REFUSED, f"{cell}: {code}"


# ------------------------------------------------------------------------------------------------------------- at the edge


@pytest.mark.row("B48")
def test_what_is_no_method_is_unimplemented(api: Serving) -> None:
    call = api.channel.unary_unary("/rayched.v1.Submission/Steal")
    with pytest.raises(grpc.RpcError) as raised:
        call(b"", timeout=30, metadata=((IDENTITY_METADATA, IDENTITIES["admin"]),))
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.row("B49", "B73")
def test_a_foreign_object_is_refused_with_the_words_of_one_that_is_not_there(as_: Callable[[str], Client]) -> None:
    admin, viewer, submitter = as_("admin"), as_("viewer"), as_("submitter")
    admin.submit(a_namespace("team-b"))
    admin.submit(a_pod("there", namespace="team-b"))

    def told(work: Callable[[str], Any]) -> None:
        said = {name: denied(lambda name=name: work(name)).replace(name, "NAME") for name in ("there", "nowhere")}  # type: ignore[misc]
        assert said["there"] == said["nowhere"]
        assert "team-b" in said["there"]

    told(lambda name: viewer.get("pod", name, "team-b"))
    told(lambda name: viewer.explain(name, "team-b"))
    told(lambda name: submitter.delete("pod", name, "team-b", grace_period_seconds=0))
    told(lambda name: submitter.evict(name, "team-b"))
    told(lambda name: submitter.label("pod", name, "team-b", add={"a": "b"}, overwrite=True))
    told(lambda name: submitter.submit(a_pod(name, namespace="team-b"), dry_run=True))
    told(lambda name: submitter.apply(a_pod(name, namespace="team-b"), dry_run=True))
    assert admin.get("pod", "there", "team-b").metadata.name == "there"


@pytest.mark.row("B50", "B51", "B52")
def test_lists_stay_within_their_namespace(as_: Callable[[str], Client], store: Etcd) -> None:
    admin, viewer = as_("admin"), as_("viewer")
    for namespace in ("team-a", "team-b"):
        admin.submit(a_namespace(namespace))
        for number in range(3):
            admin.submit(a_pod(f"pod-{number}", namespace=namespace))
    denied(lambda: viewer.list_all("pods"))
    denied(viewer.queue)
    pages = iter(viewer.pages("pods", namespace="team-a", limit=1))
    first = next(pages)
    token, revision = getattr(first, "continue"), first.revision
    assert [item.pod.metadata.namespace for item in first.objects] == ["team-a"] and token

    def page(namespace: str, token: str, revision: int = 0) -> Any:
        request = ListRequest(kind="Pod", namespace=namespace, revision=revision)
        setattr(request, "continue", token)
        return viewer._transport.call("Submission.List", request, total_seconds=5.0)

    denied(lambda: page("team-b", token))
    forged = _forged(token, store.keys.root.encode() + b"/cluster/pods/team-b/")
    for item in page("team-a", forged).objects:
        assert item.pod.metadata.namespace == "team-a"
    store.remove(binding("viewer", "viewer", "team-a"))
    until(lambda: code_is_denied(lambda: viewer.list_all("pods", namespace="team-a")), 2.0)
    denied(lambda: page("team-a", token, 0))
    denied(lambda: page("team-a", "", revision))


def _forged(token: str, key: bytes) -> str:
    found = ContinueToken.FromString(base64.urlsafe_b64decode(token))
    found.after_key = key
    return base64.urlsafe_b64encode(found.SerializeToString()).decode()


def code_is_denied(work: Callable[[], Any]) -> bool:
    try:
        work()
    except ApiError as error:
        return bool(error.code is grpc.StatusCode.PERMISSION_DENIED)
    return False


@pytest.mark.row("B53", "B61")
def test_a_watch_ends_with_its_binding(api: Serving, as_: Callable[[str], Client], store: Etcd) -> None:
    admin, viewer, operator = as_("admin"), as_("viewer"), as_("operator")
    admin.submit(a_namespace("team-a"))
    ended: list[ApiError] = []

    def follow() -> None:
        try:
            for _ in viewer.watch("pods", namespace="team-a"):
                pass
        except ApiError as error:
            ended.append(error)

    seen: list[str] = []

    def see_others() -> None:
        with operator.watch("pods") as stream:
            seen.append(next(event.object.metadata.name for event in stream if event.object is not None))

    threads = [threading.Thread(target=work) for work in (follow, see_others)]
    for thread in threads:
        thread.start()
    until(lambda: api.streams == 2)
    store.remove(binding("viewer", "viewer", "team-a"))
    threads[0].join(60.0)
    (error,) = ended
    assert error.code is grpc.StatusCode.PERMISSION_DENIED
    assert "may not Watch.Watch of pods of namespace team-a" in error.message
    admin.submit(a_pod("web", namespace="team-a"))
    threads[1].join(60.0)
    assert seen == ["web"], "a stream of somebody else goes on"


@pytest.mark.row("B60")
def test_of_all_administrators_in_etcd_one_stays(as_: Callable[[str], Client], store: Etcd) -> None:
    admin = as_("admin")
    other = admin.grant(RoleBindingMessage(subject=f"spiffe://{DOMAIN}/user/other", role="admin")).binding
    admin.revoke_grant(other.id)
    assert code_of(lambda: admin.revoke_grant(binding("admin", "admin").id)) == "FAILED_PRECONDITION"
    assert store.keys.binding(binding("admin", "admin").id) in store.dump()


@pytest.mark.row("B57", "B58")
def test_a_question_that_is_passed_on_is_judged_by_who_asked(etcd: EtcdServer, etcd_root: str, store: Etcd) -> None:
    for one in bindings():
        store.put(one)
    options = options_of(etcd, etcd_root)
    with serving(options, "replica-0") as leader, serving(options, "replica-1") as standby:
        record = Leader("replica-0", leader.address, 7)
        for server in (leader, standby):
            server.leadership.set(record)
            until(lambda server=server: may(server, "viewer", "Pod", "team-a"))  # type: ignore[misc]
        until(lambda: leader.leadership.leads)
        with Client(standby.address, timeout_seconds=30.0) as client:
            client._transport.identity = IDENTITIES["viewer"]
            assert client.explain("known", "team-a").uid == "7"
            assert "Scheduling.Explain of Pod team-b/known" in denied(lambda: client.explain("known", "team-b"))
            denied(client.plan_basis)
            client._transport.identity = IDENTITIES["operator"]
            assert client.plan_basis().seed == 0
            client._transport.identity = IDENTITIES["admin"]
            assert client.plan_basis().seed == 5
        # The leader believes it of a replica alone.
        call = leader.channel.unary_unary("/rayched.v1.Scheduling/GetPlanBasis")
        for said in ((IDENTITY_METADATA, IDENTITIES["viewer"]),):
            with pytest.raises(grpc.RpcError) as raised:
                call(b"", timeout=30, metadata=(said, ("rayched-for", IDENTITIES["admin"])))
            assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.RpcError) as raised:
            call(b"", timeout=30, metadata=(("rayched-for", IDENTITIES["viewer"]),))
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED


# ----------------------------------------------------------------------------------------------------------------- of nodes


@pytest.fixture
def agent(api: Serving) -> Iterator[NodeAgentClient]:
    with NodeAgentClient(api.address, timeout_seconds=30.0) as found:
        found._transport.identity = IDENTITIES["node"]
        yield found


def registration(name: str, change: Callable[[Node], object] = lambda node: None) -> RegisterNodeRequest:
    node = a_node(name)
    change(node)
    return RegisterNodeRequest(node=node)


@pytest.mark.row("B75", "B76", "B77")
def test_an_agent_writes_of_its_own_node_alone(agent: NodeAgentClient, as_: Callable[[str], Client], store: Etcd) -> None:
    admin = as_("admin")
    for name in ("node-1", "node-2"):
        admin.register_node(a_node(name))
    before = store.dump()
    denied(lambda: agent.heartbeat(["node-2"]))
    denied(lambda: agent.heartbeat(["node-1", "node-2"]))
    denied(lambda: agent.begin(registration("node-2")))
    denied(lambda: agent.report_node("node-2", 0, NodeStatus(phase="Running")))
    denied(lambda: agent.delete("node", "node-1"))
    denied(lambda: agent.begin(registration("node-1", lambda node: node.metadata.owner_references.add(kind="Pod", name="a"))))
    assert store.dump() == before
    agent.heartbeat(["node-1"])
    assert {key for key, revision in store.dump().items() if before.get(key) != revision} == {store.keys.heartbeat("node-1")}


@pytest.mark.row("B78", "B79", "B80")
def test_an_agent_writes_of_pods_on_its_own_node_alone(agent: NodeAgentClient, as_: Callable[[str], Client], store: Etcd) -> None:
    admin = as_("admin")
    admin.register_node(a_node("node-1"))
    pods = {place: a_pod(f"on-{place or 'none'}", node=place, uid=f"uid-{place or 0}") for place in ("node-1", "node-2", "")}
    for pod in pods.values():
        admin.submit(pod)
    admin.delete("pod", "on-node-2", grace_period_seconds=30)
    before = store.dump()

    def report(node: str, place: str, **more: Any) -> Any:
        pod: Pod = pods[place]
        update = PodStatusUpdate(namespace="default", name=pod.metadata.name, uid=pod.metadata.uid, **more)
        return agent.report_pods(node, 0, [update])[0]

    denied(lambda: report("node-2", "node-2", status=PodStatus(phase="Failed")))
    for place in ("node-2", ""):
        assert report("node-1", place, status=PodStatus(phase="Failed")).code is grpc.StatusCode.FAILED_PRECONDITION
        assert report("node-1", place, remove=True).code is grpc.StatusCode.FAILED_PRECONDITION
    assert store.dump() == before
    assert report("node-1", "node-1", status=PodStatus(phase="Running")) is None


@pytest.mark.row("B82", "B83")
def test_an_agent_loses_no_taint_and_offers_no_more_than_at_first(agent: NodeAgentClient, as_: Callable[[str], Client]) -> None:
    admin = as_("admin")
    agent.begin(registration("node-1", lambda node: node.spec.taints.add(key="dedicated", value="gpu", effect="NoSchedule")))
    admin.taint("node-1", add=[Taint(key="drained", effect="NoExecute")])

    agent.begin(registration("node-1"))

    node = admin.get("node", "node-1")
    assert isinstance(node, Node) and {taint.key for taint in node.spec.taints} == {"dedicated", "drained"}
    larger = NodeStatus()
    larger.allocatable["cpu"].string = "64"
    denied(lambda: agent.report_node("node-1", 0, larger))
