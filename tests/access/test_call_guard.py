"""The guard at the edge: whose rights count, what a stream may outlive, and what is not known yet."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import grpc
import pytest

from rayched.access.authorizing import Authorizer
from rayched.access.binding_table import BindingTable
from rayched.access.bindings import read_binding
from rayched.access.identity import Identity, IdentityKind
from rayched.access.tokens import BearerToken, TokenTable, hash_of
from rayched.api.identity import FOR_METADATA
from rayched.server.call_guard import (
    INSECURE_ADMIN,
    INSECURE_BINDINGS,
    CallGuard,
    insecure_guard,
    loopback_identity,
)
from rayched.server.edge.caller import Caller
from rayched.server.errors import ApiFailure
from rayched.v1.services_pb2 import (
    ExplainRequest,
    GetRequest,
    HeartbeatRequest,
    ListRequest,
    ObjectKey,
    RegisterNodeRequest,
    WatchRequest,
)
from tests.access.matrix import IDENTITIES, binding, bindings, identity, table_of


class ContextWith:
    """What gRPC tells of a call with this metadata."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        self._pairs = pairs

    def peer(self) -> str:
        return "ipv4:127.0.0.1:40000"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"transport_security_type": [b"ssl"]}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._pairs


def guard_of(column: str, table: BindingTable | None = None) -> CallGuard:
    return CallGuard(Authorizer(table or table_of(*bindings())), lambda context: identity(column))


def begin(guard: CallGuard, context: Any, call: str) -> Caller:
    """As the edge does it, before a request is read."""
    caller = guard.identify(context)
    guard.authorize(caller, call)
    return caller


def code_of(work: Any) -> str:
    with pytest.raises(ApiFailure) as raised:
        work()
    return str(raised.value.code.name)


@pytest.mark.row("B57")
def test_a_replica_asks_with_the_rights_of_whom_it_asks_for() -> None:
    guard = guard_of("replica")
    caller = begin(guard, ContextWith((FOR_METADATA, IDENTITIES["viewer"])), "Scheduling.Explain")

    assert caller.identity == identity("viewer") and caller.is_passed_on
    guard.judge(caller, "Scheduling.Explain", ExplainRequest(namespace="team-a", name="web"))
    foreign = ExplainRequest(namespace="team-b", name="web")
    assert code_of(lambda: guard.judge(caller, "Scheduling.Explain", foreign)) == "PERMISSION_DENIED"
    assert code_of(lambda: begin(guard, ContextWith(), "Scheduling.Explain")) == "PERMISSION_DENIED", "in its own name"
    bad = ContextWith((FOR_METADATA, "root"))
    assert code_of(lambda: begin(guard, bad, "Scheduling.Explain")) == "UNAUTHENTICATED"


def gateway_guard() -> CallGuard:
    """Where the caller is a gateway that has a binding of its own."""
    return CallGuard(Authorizer(table_of(*bindings())), lambda context: Identity("rayched-test", IdentityKind.WEB, "gateway"))


@pytest.mark.row("KC28")
def test_a_gateway_asks_with_the_rights_of_the_user_it_asks_for() -> None:
    guard = gateway_guard()
    caller = begin(guard, ContextWith((FOR_METADATA, IDENTITIES["viewer"])), "Scheduling.Explain")
    assert caller.identity == identity("viewer")
    question = ExplainRequest(namespace="team-a", name="web", hops=3)
    guard.judge(caller, "Scheduling.Explain", question)
    assert question.hops == 0, "only a replica knows how often a question was passed on"
    foreign = ExplainRequest(namespace="team-b", name="web")
    assert code_of(lambda: guard.judge(caller, "Scheduling.Explain", foreign)) == "PERMISSION_DENIED"
    assert code_of(lambda: begin(guard, ContextWith(), "Scheduling.Explain")) == "PERMISSION_DENIED", "in its own name"
    assert code_of(lambda: begin(guard, ContextWith((FOR_METADATA, "root")), "Leadership.GetLeader")) == "UNAUTHENTICATED"


@pytest.mark.row("KC28")
@pytest.mark.parametrize("asker", [IDENTITIES["node"], IDENTITIES["replica"], INSECURE_ADMIN.uri])
def test_a_gateway_asks_for_users_of_its_cluster_alone(asker: str) -> None:
    context = ContextWith((FOR_METADATA, asker))
    assert code_of(lambda: begin(gateway_guard(), context, "Leadership.GetLeader")) == "PERMISSION_DENIED"


@pytest.mark.row("B58")
@pytest.mark.parametrize("column", ["nobody", "viewer", "operator", "node"])
def test_nobody_else_asks_for_others(column: str) -> None:
    guard = guard_of(column)
    context = ContextWith((FOR_METADATA, IDENTITIES["admin"]))

    caller = begin(guard, context, "Leadership.GetLeader")

    assert caller.identity == identity(column) and not caller.is_passed_on
    assert code_of(lambda: begin(guard, context, "Nodes.Register" if column != "node" else "Admin.Cordon")) == "PERMISSION_DENIED"


@pytest.mark.row("B59")
@pytest.mark.parametrize(("column", "asks_for", "hops", "believed"), [
    ("admin", "", 2, 0),
    ("admin", "", -5, 0),
    ("viewer", "admin", 2, 0),
    ("replica", "admin", 2, 2),
    ("replica", "admin", -5, 0),
])  # fmt: skip
def test_how_often_a_question_was_passed_on_is_a_replicas_to_say(column: str, asks_for: str, hops: int, believed: int) -> None:
    guard, request = guard_of(column), ExplainRequest(namespace="team-a", name="web", hops=hops)
    pairs = ((FOR_METADATA, IDENTITIES[asks_for]),) if asks_for else ()

    guard.judge(begin(guard, ContextWith(*pairs), "Scheduling.Explain"), "Scheduling.Explain", request)

    assert request.hops == believed


@pytest.mark.row("B50")
@pytest.mark.parametrize("call", ["Submission.List", "Watch.Watch"])
def test_an_empty_namespace_never_means_what_one_may_see(call: str) -> None:
    guard = guard_of("viewer")
    request = ListRequest(kind="Pod") if call == "Submission.List" else WatchRequest(kind="Pod")

    assert code_of(lambda: guard.judge(begin(guard, ContextWith(), call), call, request)) == "PERMISSION_DENIED"
    request.field_selector = "metadata.namespace=team-a"
    assert code_of(lambda: guard.judge(begin(guard, ContextWith(), call), call, request)) == "PERMISSION_DENIED"


@pytest.mark.row("B54")
def test_a_kind_of_the_cluster_has_no_namespace_to_hide_in() -> None:
    guard = guard_of("submitter")
    for kind, name in (("Node", "node-1"), ("Namespace", "team-b")):
        request = GetRequest(key=ObjectKey(kind=kind, namespace="team-a", name=name))
        assert code_of(lambda request=request: guard.judge(Caller(identity("submitter")), "Submission.Get", request)) == (  # type: ignore[misc]
            "PERMISSION_DENIED"
        )


@pytest.mark.row("B75", "B76", "B86")
def test_an_agent_of_many_answers_for_those_of_its_binding() -> None:
    many = Identity("rayched-test", IdentityKind.NODES, "hollow")
    nodes = table_of(*bindings())
    message = binding("viewer", "viewer", "team-a").to_message()
    message.subject, message.role, message.nodes[:] = many.uri, "node", ["node-{1..2}"]
    del message.namespaces[:]
    nodes.changed([(f"/b/{read_binding(message).id}".encode(), message.SerializeToString())])
    guard = CallGuard(Authorizer(nodes), lambda context: many)

    def judge(call: str, request: Any) -> Caller:
        caller = begin(guard, ContextWith(), call)
        guard.judge(caller, call, request)
        return caller

    def registration(name: str) -> RegisterNodeRequest:
        request = RegisterNodeRequest()
        request.node.metadata.name = name
        return request

    judge("Nodes.Heartbeat", HeartbeatRequest(nodes=["node-1", "node-2"]))
    assert judge("Nodes.Register", registration("node-2")).node_text == "system:node:node-2"
    assert code_of(lambda: judge("Nodes.Heartbeat", HeartbeatRequest(nodes=["node-1", "node-3"]))) == "PERMISSION_DENIED"
    assert code_of(lambda: judge("Nodes.Register", registration("node-3"))) == "PERMISSION_DENIED"
    bold = registration("node-1")
    bold.node.metadata.labels["node-restriction.rayched.io/x"] = "y"
    assert code_of(lambda: judge("Nodes.Register", bold)) == "PERMISSION_DENIED"
    for selector in ("", "spec.nodeName=node-1"):
        request = ListRequest(kind="Pod", field_selector=selector)
        assert code_of(lambda request=request: judge("Submission.List", request)) == "PERMISSION_DENIED"  # type: ignore[misc]


@pytest.mark.row("B81", "B85")
def test_what_an_agent_may_not_say_of_its_own_node() -> None:
    guard = guard_of("node")

    def judge(change: Any) -> None:
        request = RegisterNodeRequest()
        request.node.metadata.name = "node-1"
        change(request.node)
        guard.judge(begin(guard, ContextWith(), "Nodes.Register"), "Nodes.Register", request)

    judge(lambda node: node.metadata.labels.update({"kubernetes.io/os": "linux"}))
    for change in (
        lambda node: node.metadata.labels.update({"node-restriction.rayched.io/x": "1"}),
        lambda node: node.metadata.labels.update({"sub.node-restriction.rayched.io/x": "1"}),
        lambda node: node.metadata.owner_references.add(kind="Pod", name="web", uid="1"),
        lambda node: setattr(node.spec, "unschedulable", True),
    ):
        assert code_of(lambda change=change: judge(change)) == "PERMISSION_DENIED"  # type: ignore[misc]


@pytest.mark.row("B84")
def test_an_agent_deletes_no_node() -> None:
    guard = guard_of("node")
    for call in ("Submission.Delete", "Submission.Apply", "Submission.Submit", "Admin.Label", "Admin.Taint", "Admin.Cordon"):
        assert code_of(lambda call=call: begin(guard, ContextWith(), call)) == "PERMISSION_DENIED"  # type: ignore[misc]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 5.0))


@pytest.mark.row("B53", "B61")
def test_a_stream_ends_when_its_right_does() -> None:
    async def play() -> None:
        table = table_of(*bindings())
        guard = guard_of("viewer", table)
        caller = begin(guard, ContextWith(), "Watch.Watch")
        guard.judge(caller, "Watch.Watch", WatchRequest(kind="Pod", namespace="team-a"))
        outcome: list[ApiFailure] = []

        async def stream() -> None:
            try:
                with guard.going_on(caller, "Watch.Watch"):
                    await asyncio.Event().wait()
            except ApiFailure as failure:
                outcome.append(failure)

        task = asyncio.create_task(stream())
        await asyncio.sleep(0)
        other = binding("operator", "operator")
        table.changed([(f"/rayched/access/bindings/{other.id}".encode(), None)])
        guard.judge_open_streams()
        await asyncio.sleep(0)
        assert not task.done(), "what does not concern it does not end it"
        mine = binding("viewer", "viewer", "team-a")
        table.changed([(f"/rayched/access/bindings/{mine.id}".encode(), None)])
        guard.judge_open_streams()
        await asyncio.wait_for(task, 1.0)
        assert outcome[0].code is grpc.StatusCode.PERMISSION_DENIED
        assert "may not Watch.Watch of pods of namespace team-a" in outcome[0].message

    run(play())


def test_a_stream_that_its_caller_ends_is_no_refusal() -> None:
    async def play() -> None:
        guard = guard_of("viewer")
        caller = begin(guard, ContextWith(), "Watch.Watch")

        async def stream() -> None:
            with guard.going_on(caller, "Watch.Watch"):
                await asyncio.Event().wait()

        task = asyncio.create_task(stream())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert caller.ended is None

    run(play())


@pytest.mark.row("B62")
def test_before_the_bindings_are_read_nobody_is_told_that_they_may_not() -> None:
    table = BindingTable(INSECURE_BINDINGS)
    unread = guard_of("viewer", table)

    assert code_of(lambda: begin(unread, ContextWith(), "Submission.Get")) == "UNAVAILABLE"
    assert code_of(lambda: begin(guard_of("node", table), ContextWith(), "Submission.Delete")) == "PERMISSION_DENIED"
    begin(unread, ContextWith(), "Leadership.GetLeader")
    begin(CallGuard(Authorizer(table)), ContextWith(), "Submission.Delete")
    table.listed({})
    assert code_of(lambda: begin(unread, ContextWith(), "Submission.Get")) == "PERMISSION_DENIED"


def test_without_certificates_everybody_is_an_administrator_but_agents() -> None:
    guard = insecure_guard()

    assert loopback_identity(ContextWith()) == INSECURE_ADMIN == Identity.parse("spiffe://insecure/user/admin")
    assert loopback_identity(ContextWith(("rayched-identity", "somebody"))) == INSECURE_ADMIN
    agent = ContextWith(("rayched-identity", "system:node:node-7"))
    assert loopback_identity(agent) == Identity.parse("spiffe://insecure/node/node-7")
    assert code_of(lambda: begin(guard, agent, "Submission.Delete")) == "PERMISSION_DENIED"
    odd = ContextWith(("rayched-identity", "system:node:a/b"))
    assert code_of(lambda: begin(guard, odd, "Leadership.GetLeader")) == "UNAUTHENTICATED"
    caller = begin(guard, ContextWith(), "Submission.Get")
    guard.judge(caller, "Submission.Get", GetRequest(key=ObjectKey(kind="Node", name="node-1")))
    assert guard.is_admin(caller) and caller.proves_nothing


@pytest.mark.row("B49")
def test_a_refusal_is_the_same_whatever_there_is() -> None:
    guard = guard_of("viewer")

    def said(name: str) -> str:
        request = GetRequest(key=ObjectKey(kind="Pod", namespace="team-b", name=name))
        with pytest.raises(ApiFailure) as raised:
            guard.judge(Caller(identity("viewer")), "Submission.Get", request)
        return raised.value.message.replace(name, "NAME")

    assert said("there") == said("nowhere")


@pytest.mark.row("B62")
def test_while_etcd_is_away_known_tokens_count_and_others_are_not_called_wrong() -> None:
    vera, secret = identity("viewer"), "s" * 43
    token = BearerToken("aaaaaaaa", hash_of(secret), vera, vera, "", 0.0, 100.0)
    guard = CallGuard(Authorizer(table_of(*bindings())), takes_tokens=True, clock=lambda: 50.0)
    known, unknown = (ContextWith(("authorization", f"Bearer rt_{id}_{secret}")) for id in ("aaaaaaaa", "bbbbbbbb"))
    assert code_of(lambda: guard.identify(known)) == "UNAVAILABLE", "nothing was read yet"
    guard.tokens.listed({b"/access/tokens/aaaaaaaa": token.stored()})
    assert guard.identify(known).identity == vera
    assert code_of(lambda: guard.identify(unknown)) == "UNAUTHENTICATED"
    guard.tokens.is_current = False
    assert guard.identify(known).token == token
    assert code_of(lambda: guard.identify(unknown)) == "UNAVAILABLE"
    assert code_of(lambda: guard.identify(ContextWith())) == "UNAUTHENTICATED", "no token is none"


def a_token(maker: str = "viewer", secret: str = "s" * 43) -> BearerToken:
    return BearerToken("aaaaaaaa", hash_of(secret), identity("viewer"), identity(maker), "", 0.0, 100.0)


def taking_tokens(table: BindingTable, *tokens: BearerToken, at: float = 50.0) -> CallGuard:
    guard = CallGuard(Authorizer(table), takes_tokens=True, clock=lambda: at)
    guard.tokens.listed({f"/t/{one.id}".encode(): one.stored() for one in tokens})
    return guard


def showing(secret: str = "s" * 43, id: str = "aaaaaaaa") -> ContextWith:
    return ContextWith(("authorization", f"Bearer rt_{id}_{secret}"))


@pytest.mark.row("B38", "B40", "B41")
def test_a_token_counts_as_it_was_made_and_until_it_expires() -> None:
    table = table_of(*bindings())
    assert taking_tokens(table, a_token()).identify(showing()).identity == identity("viewer")
    for context in (showing("s" * 42), showing("s" * 42 + "S"), showing("S" + "s" * 42), showing(id="aaaaaaab")):
        assert code_of(lambda one=context: taking_tokens(table, a_token()).identify(one)) == "UNAUTHENTICATED"  # type: ignore[misc]
    assert code_of(lambda: taking_tokens(table, a_token(), at=100.0).identify(showing())) == "UNAUTHENTICATED"


@pytest.mark.row("B43")
def test_a_token_for_another_one_counts_while_its_maker_is_administrator() -> None:
    by_admin = a_token("admin")
    assert taking_tokens(table_of(*bindings()), by_admin).identify(showing()).identity == identity("viewer")
    without = table_of(*(one for one in bindings() if one.subject != identity("admin")))
    assert code_of(lambda: taking_tokens(without, by_admin).identify(showing())) == "PERMISSION_DENIED"
    assert taking_tokens(without, a_token()).identify(showing()).identity == identity("viewer")
    assert code_of(lambda: taking_tokens(BindingTable(), by_admin).identify(showing())) == "UNAVAILABLE"
    guard = taking_tokens(table_of(*bindings()), a_token())
    assert code_of(lambda: guard.authorize(guard.identify(showing()), "Access.IssueToken")) == "PERMISSION_DENIED"


def test_a_join_token_and_another_one_are_told_apart_by_their_form() -> None:
    vera, secret = identity("viewer"), "s" * 43
    token = BearerToken("aaaaaaaa", hash_of(secret), vera, vera, "", 0.0, 100.0)
    joins = replace(token, id="aaaaaaab", subject=identity("node"))
    table = TokenTable()
    table.listed({b"/t/aaaaaaaa": token.stored(), b"/t/aaaaaaab": joins.stored()})
    assert (token.text(secret), joins.text(secret)) == (f"rt_aaaaaaaa_{secret}", f"join.aaaaaaab.{secret}")
    assert table.find(token.text(secret), 50.0) == token and table.find(joins.text(secret), 50.0) == joins
    assert table.find(f"join.aaaaaaaa.{secret}", 50.0) is None and table.find(f"rt_aaaaaaab_{secret}", 50.0) is None


@pytest.mark.row("B44")
def test_a_join_token_lets_one_call_and_another_token_makes_no_token() -> None:
    joins = replace(a_token("admin"), subject=identity("node"))
    guard = taking_tokens(table_of(*bindings()), joins)
    shown = ContextWith(("authorization", f"Bearer {joins.text('s' * 43)}"))
    guard.authorize(guard.identify(shown), "Access.SignCertificate")
    for call in (
        "Access.WhoAmI",
        "Access.CanI",
        "Nodes.Register",
        "Nodes.Heartbeat",
        "AgentStreams.Serve",
        "Leadership.GetLeader",
    ):
        assert code_of(lambda one=call: guard.authorize(guard.identify(shown), one)) == "PERMISSION_DENIED", call  # type: ignore[misc]
    other = taking_tokens(table_of(*bindings()), a_token())
    # The certificate ends with the token.
    other.authorize(other.identify(showing()), "Access.SignCertificate")
    assert code_of(lambda: other.authorize(other.identify(showing()), "Access.IssueToken")) == "PERMISSION_DENIED"


def test_what_etcd_has_that_is_no_token_lets_nobody_in() -> None:
    vera, secret = identity("viewer"), "s" * 43
    token = BearerToken("aaaaaaaa", hash_of(secret), vera, vera, "", 0.0, 100.0)
    node = replace(token, subject=identity("replica"))
    table = TokenTable()
    table.listed({b"/t/aaaaaaab": token.stored(), b"/t/x": b"\xff", b"/t/aaaaaaaa": node.stored()})
    assert table.count(50.0) == 0 and table.find(f"rt_aaaaaaaa_{secret}", 50.0) is None
    assert len(table.problems) == 3 and any("which no token may" in one for one in table.problems)
    table.changed([(b"/t/aaaaaaaa", token.stored())])
    assert table.find(f"rt_aaaaaaaa_{secret}", 50.0) == token and table.find(f"rt_aaaaaaaa_{secret}", 100.0) is None
    table.changed([(b"/t/aaaaaaaa", None)])
    assert not table.counts(token, 50.0)
