"""The service Access over a model of etcd: bindings given, taken away and told, and the last administrator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from rayched.access.binding_table import BindingTable
from rayched.access.bindings import RoleBinding
from rayched.access.identity import Identity
from rayched.access.tokens import BearerToken, hash_of
from rayched.server.errors import ApiFailure
from rayched.server.services.token_calls import EXPIRED_A_CALL, TOKENS_OF_ONE_MAX
from rayched.store.keys import KeyTextError
from rayched.v1.access_pb2 import (
    CanIRequest,
    GrantRequest,
    IssueTokenRequest,
    ListGrantsRequest,
    RevokeGrantRequest,
    WhoAmIRequest,
)
from rayched.v1.access_pb2 import RoleBinding as RoleBindingMessage
from tests.access.matrix import DOMAIN, IDENTITIES, binding
from tests.access.services_over_model import ServicesOverModel
from tests.server.api_over_model import KEYS

ADA, EVE = binding("admin", "admin"), binding("everywhere", "admin")
VERA = RoleBindingMessage(subject=f"spiffe://{DOMAIN}/user/vera", role="viewer", namespaces=["team-a"])


class AccessOverModel(ServicesOverModel):
    """Its table follows the model as a feed does."""

    def __init__(self, *found: RoleBinding) -> None:
        super().__init__(BindingTable())
        for one in found:
            self.api.store.model.put(KEYS.binding(one.id), one.to_message().SerializeToString(deterministic=True))
        self.follow()

    def follow(self) -> None:
        entries = [entry for entry in self.api.store.model.now.values() if entry.key.startswith(KEYS.bindings_prefix)]
        self.guard.authorizer.table.listed({entry.key: entry.value for entry in entries})

    def ask(self, column: str, name: str, request: Any) -> Any:
        try:
            return self.do(column, f"Access.{name}", request)
        finally:
            self.follow()


def code_of(work: Callable[[], Any]) -> str:
    with pytest.raises(ApiFailure) as raised:
        work()
    return str(raised.value.code.name)


def test_a_role_is_given_told_and_taken_away() -> None:
    access = AccessOverModel(ADA)

    given = access.ask("admin", "Grant", GrantRequest(binding=VERA))

    assert given.changed and given.revision == access.revision
    assert access.ask("viewer", "WhoAmI", WhoAmIRequest()).bindings == [given.binding]
    assert access.ask("viewer", "ListGrants", ListGrantsRequest(subject=VERA.subject)).bindings == [given.binding]
    assert [one.role for one in access.ask("admin", "ListGrants", ListGrantsRequest()).bindings] == ["admin", "viewer"]
    gone = access.ask("admin", "RevokeGrant", RevokeGrantRequest(id=given.binding.id))
    assert gone.binding == given.binding
    assert not access.ask("viewer", "WhoAmI", WhoAmIRequest()).bindings
    assert code_of(lambda: access.ask("admin", "RevokeGrant", RevokeGrantRequest(id=given.binding.id))) == "NOT_FOUND"
    assert code_of(lambda: access.ask("admin", "RevokeGrant", RevokeGrantRequest())) == "INVALID_ARGUMENT"
    with pytest.raises(KeyTextError, match="id of a role binding"):
        access.ask("admin", "RevokeGrant", RevokeGrantRequest(id="a/b"))


def test_the_same_again_changes_nothing_and_more_of_it_changes_the_one_there_is() -> None:
    access = AccessOverModel(ADA)
    sam = RoleBindingMessage(subject=IDENTITIES["submitter"], role="submitter", namespaces=["team-a"])
    first = access.ask("admin", "Grant", GrantRequest(binding=sam))
    again = access.ask("admin", "Grant", GrantRequest(binding=sam))
    assert not again.changed and again.revision == first.revision

    sam.privileged = True
    more = access.ask("admin", "Grant", GrantRequest(binding=sam))

    assert more.changed and more.binding.id == first.binding.id
    found = access.ask("submitter", "WhoAmI", WhoAmIRequest()).bindings
    assert [one.privileged for one in found] == [True]


def test_what_cannot_be_granted_is_refused_with_all_its_fields() -> None:
    access = AccessOverModel(ADA)
    bad = RoleBindingMessage(subject="vera", role="king", privileged=True)

    with pytest.raises(ApiFailure) as raised:
        access.ask("admin", "Grant", GrantRequest(binding=bad))

    assert raised.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [one.field for one in raised.value.violations] == ["subject", "role"]


@pytest.mark.row("B60")
def test_the_last_administrator_stays() -> None:
    access = AccessOverModel(ADA, binding("operator", "operator"))

    failure = code_of(lambda: access.ask("admin", "RevokeGrant", RevokeGrantRequest(id=ADA.id)))

    assert failure == "FAILED_PRECONDITION"
    assert access.guard.authorizer.table.of(ADA.subject) == (ADA,)
    access.ask("admin", "Grant", GrantRequest(binding=EVE.to_message()))
    assert access.ask("admin", "RevokeGrant", RevokeGrantRequest(id=ADA.id)).binding.id == ADA.id
    assert code_of(lambda: access.ask("everywhere", "RevokeGrant", RevokeGrantRequest(id=EVE.id))) == "FAILED_PRECONDITION"


@pytest.mark.row("B60")
def test_two_administrators_cannot_take_each_other_away_at_once() -> None:
    access = AccessOverModel(ADA, EVE)
    model = access.api.store.model
    # Another replica's removal comes between the look and the write.
    access.api.store.before_next = lambda: model.delete(KEYS.binding(EVE.id))

    assert code_of(lambda: access.ask("admin", "RevokeGrant", RevokeGrantRequest(id=ADA.id))) == "FAILED_PRECONDITION"

    assert KEYS.binding(EVE.id) not in model.now, "it came between"
    assert KEYS.binding(ADA.id) in model.now


def test_a_binding_that_cannot_be_read_can_be_taken_away() -> None:
    access = AccessOverModel(ADA)
    access.api.store.model.put(KEYS.binding("0123456789abcdef"), b"\xff\xff")

    assert len(access.ask("admin", "ListGrants", ListGrantsRequest()).bindings) == 1
    gone = access.ask("admin", "RevokeGrant", RevokeGrantRequest(id="0123456789abcdef"))

    assert gone.binding == RoleBindingMessage(id="0123456789abcdef")
    assert KEYS.binding("0123456789abcdef") not in access.api.store.model.now


CAN_I: dict[str, tuple[CanIRequest, bool]] = {
    "its own": (CanIRequest(call="Submission.Get", kind="Pod", namespace="team-a"), True),
    "a foreign one": (CanIRequest(call="Submission.Get", kind="Pod", namespace="team-b"), False),
    "all": (CanIRequest(call="Submission.List", kind="Pod"), False),
    "a kind of the cluster": (CanIRequest(call="Submission.Get", kind="Node", name="node-1"), False),
    "a namespace": (CanIRequest(call="Submission.Get", kind="Namespace", name="team-a"), True),
    "about no object": (CanIRequest(call="Leadership.GetLeader"), True),
    "nobody's": (CanIRequest(call="Eviction.Evict", kind="Service", namespace="team-a"), False),
}


@pytest.mark.parametrize("case", CAN_I)
def test_can_i_says_what_the_call_would_be_told(case: str) -> None:
    access = AccessOverModel(ADA, binding("viewer", "viewer", "team-a"))
    request, allowed = CAN_I[case]

    answer = access.ask("viewer", "CanI", request)

    assert answer.allowed == allowed
    assert bool(answer.reason) == (not allowed) and (allowed or f"may not {request.call}" in answer.reason)


def test_can_i_about_others_is_for_who_sees_their_bindings() -> None:
    access = AccessOverModel(ADA, binding("viewer", "viewer", "team-a"), binding("operator", "operator"))
    about_vera = CanIRequest(call="Submission.Get", kind="Pod", namespace="team-a", subject=IDENTITIES["viewer"])

    for column in ("admin", "operator", "viewer"):
        request = CanIRequest()
        request.CopyFrom(about_vera)
        assert access.ask(column, "CanI", request).allowed
    assert code_of(lambda: access.ask("nobody", "CanI", about_vera)) == "PERMISSION_DENIED"
    other = CanIRequest(call="Submission.Get", kind="Pod", namespace="team-a", subject=IDENTITIES["nobody"])
    assert not access.ask("admin", "CanI", other).allowed


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (CanIRequest(call="Submission.Steal"), 'there is no call "Submission.Steal"'),
        (CanIRequest(call="Submission.Get"), "kind: is missing; Submission.Get is about one of Pod"),
        (CanIRequest(call="Submission.Get", kind="Pot"), 'kind "Pot" is not known'),
        (CanIRequest(call="Submission.Get", kind="Node", namespace="team-a"), "nodes belong to no namespace"),
        (CanIRequest(call="Submission.Get", kind="Pod", subject="vera"), 'identity "vera"'),
    ],
)
def test_a_question_that_means_nothing_is_told_why(request_: CanIRequest, message: str) -> None:
    access = AccessOverModel(ADA)

    with pytest.raises(Exception, match=message.replace("(", r"\(")):
        access.ask("admin", "CanI", request_)


def a_token(id: str, subject: str, expires_at: float) -> BearerToken:
    who = Identity.parse(subject)
    return BearerToken(id, hash_of(id), who, who, "", 0.0, expires_at)


def test_expired_tokens_are_not_counted_and_go_when_one_is_made() -> None:
    now, vera, sam = 1_000_000.0, IDENTITIES["viewer"], IDENTITIES["submitter"]
    services = ServicesOverModel()
    services.access._clock = lambda: now
    model, letters = services.api.store.model, "abcdefghijklmnopqrstuvwxyz"
    long_gone = [a_token(f"aaaaaa{one}{two}", vera, now - 1_000.0 - 26 * at) for at, one in enumerate("abcd") for two in letters]
    gone = [a_token("bbbbbbbb", sam, now - 301.0), a_token("cccccccc", vera, now - 299.0)]
    kept = [a_token(f"dddddd{one}{two}", vera, now + 1.0) for one in "abcd" for two in letters][: TOKENS_OF_ONE_MAX - 1]
    for one in (*long_gone, *gone, *kept):
        model.put(KEYS.token(one.id), one.stored())

    def there() -> set[str]:
        """As they are in etcd; the table follows."""
        entries = {key: entry.value for key, entry in model.now.items() if key.startswith(KEYS.tokens_prefix)}
        services.guard.tokens.listed(entries)
        return {key.decode().rpartition("/")[2] for key in entries}

    def issue(column: str) -> str:
        return str(services.do(column, "Access.IssueToken", IssueTokenRequest()).token.id)

    before = there()
    assert len(long_gone) > TOKENS_OF_ONE_MAX and services.guard.tokens.count(now) == len(kept)
    # Another replica has removed one of them meanwhile.
    oldest = min(long_gone, key=lambda one: one.expires_at)
    model.delete(KEYS.token(oldest.id))
    made = {issue("viewer")}
    after = there()
    assert len(before - after) == EXPIRED_A_CALL and made <= after and oldest.id not in after
    assert code_of(lambda: issue("viewer")) == "RESOURCE_EXHAUSTED", "those that count are counted"
    for _ in range(6):
        there()
        made.add(issue("submitter"))
    assert there() == {one.id for one in kept} | {"cccccccc"} | made, "others' go too, but not what expired just now"
