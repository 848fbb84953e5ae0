"""Who is refused whatever they ask for: by the deny list, as soon as it is known, and for what a gateway may not be used for."""

from __future__ import annotations

import asyncio

import pytest

from rayched.access.authorizing import Authorizer
from rayched.access.bindings import read_binding
from rayched.access.identity import Identity, IdentityKind
from rayched.access.tokens import BearerToken
from rayched.api.identity import FOR_METADATA, FOR_SERIAL_METADATA
from rayched.server.admission.write_gate import CALLS
from rayched.server.call_guard import CallGuard
from rayched.server.errors import ApiFailure, Code
from rayched.v1.services_pb2 import WatchRequest
from tests.access.matrix import DOMAIN, IDENTITIES, binding, bindings, identity, table_of
from tests.access.test_call_guard import ContextWith, begin, code_of
from tests.server.test_revocations import a_revocation

GATEWAY = Identity(DOMAIN, IdentityKind.WEB, "gateway")
OWN_SERIAL, LOST_SERIAL = "0a", "0b"


def proving_guard(caller: Identity) -> CallGuard:
    """Where everybody shows the certificate OWN_SERIAL, and nothing was read of who is refused."""
    return CallGuard(Authorizer(table_of(*bindings())), lambda context: caller, serial_of=lambda context: OWN_SERIAL)


def refusing(caller: Identity, *, serial: str = "", uri: str = "") -> CallGuard:
    guard = proving_guard(caller)
    guard.revoked.listed(dict([a_revocation(serial, uri)]))
    return guard


def asking_for(column: str, serial: str = "") -> ContextWith:
    return ContextWith((FOR_METADATA, IDENTITIES[column]), (FOR_SERIAL_METADATA, serial))


@pytest.mark.row("B31")
def test_a_lost_certificate_is_refused_at_the_gateway_as_well() -> None:
    guard = refusing(GATEWAY, serial=LOST_SERIAL)
    with pytest.raises(ApiFailure) as raised:
        begin(guard, asking_for("viewer", LOST_SERIAL), "Submission.Get")
    assert raised.value.code is Code.UNAUTHENTICATED
    assert raised.value.message == f"certificate {LOST_SERIAL} of {IDENTITIES['viewer']} is revoked"
    assert raised.value.trailers == (), "the gateway's own certificate counts, and a newer one of it would not help"
    # Another one of the same user counts, and so does none, as of a gateway that does not tell.
    for serial in ("0c", ""):
        assert begin(guard, asking_for("viewer", serial), "Submission.Get").identity == identity("viewer")
    own = refusing(GATEWAY, serial=OWN_SERIAL)
    with pytest.raises(ApiFailure, match=f"certificate {OWN_SERIAL} of {GATEWAY} is revoked"):
        begin(own, asking_for("viewer", "0c"), "Submission.Get")


@pytest.mark.row("KC28")
@pytest.mark.parametrize(("column", "asks_for"), [("replica", "viewer"), ("viewer", "admin")])
def test_only_a_gateway_says_which_certificate_its_user_has_shown(column: str, asks_for: str) -> None:
    guard = refusing(identity(column), serial=LOST_SERIAL)
    assert begin(guard, asking_for(asks_for, LOST_SERIAL), "Submission.Get").identity == identity("viewer")


@pytest.mark.row("KC28")
@pytest.mark.parametrize("call", sorted(call for call in CALLS if call.startswith("Access.")))
def test_through_a_gateway_nothing_is_changed_of_who_may_what(call: str) -> None:
    guard = refusing(GATEWAY, serial=LOST_SERIAL)
    with pytest.raises(ApiFailure, match="through a gateway nothing is changed of who may what") as raised:
        begin(guard, asking_for("admin"), call)
    assert raised.value.code is Code.PERMISSION_DENIED
    begin(refusing(identity("replica"), serial=LOST_SERIAL), asking_for("admin"), call)
    begin(refusing(identity("admin"), serial=LOST_SERIAL), ContextWith(), call)


@pytest.mark.row("KC28")
def test_a_gateway_with_rights_of_its_own_gives_none_away() -> None:
    administrator = binding("admin", "admin").to_message()
    administrator.subject = GATEWAY.uri
    guard = CallGuard(Authorizer(table_of(*bindings(), read_binding(administrator))), lambda context: GATEWAY)
    assert code_of(lambda: begin(guard, ContextWith(), "Access.Grant")) == "PERMISSION_DENIED"
    for context in (ContextWith(), asking_for("admin")):
        begin(guard, context, "Access.ListGrants")


@pytest.mark.row("B31")
def test_before_it_is_known_who_is_refused_nothing_is_bound() -> None:
    guard = proving_guard(identity("operator"))
    begin(guard, ContextWith(), "Scheduling.GetSchedulerStatus")
    assert code_of(lambda: begin(guard, ContextWith(), "Scheduling.Bind")) == "UNAVAILABLE"
    guard.revoked.listed({})
    begin(guard, ContextWith(), "Scheduling.Bind")


@pytest.mark.row("B31")
def test_a_stream_that_waited_while_its_caller_was_refused_does_not_begin() -> None:
    async def play() -> None:
        guard = proving_guard(identity("viewer"))
        guard.revoked.listed({})
        caller = begin(guard, ContextWith(), "Watch.Watch")
        # It waits for its request, and nobody looks for it among the streams that are open.
        guard.revoked.changed([a_revocation(identity=IDENTITIES["viewer"])])
        guard.judge_open_streams()
        with pytest.raises(ApiFailure) as raised, guard.going_on(caller, "Watch.Watch"):
            guard.judge(caller, "Watch.Watch", WatchRequest(kind="Pod", namespace="team-a"))
            pytest.fail("it goes on")
        assert raised.value.code is Code.UNAUTHENTICATED
        guard.revoked.listed({})
        with guard.going_on(caller, "Watch.Watch"):
            assert guard._open, "one that may begin does"
        assert not guard._open

    asyncio.run(play())


def test_a_certificate_counts_while_the_token_behind_it_does_at_a_gateway_as_well() -> None:
    """A replica is told by the gateway which token that is."""
    guard = refusing(GATEWAY, serial=LOST_SERIAL)
    shown = asking_for("viewer", f"0c {behind('viewer', guard)}")
    assert begin(guard, shown, "Submission.Get").identity == identity("viewer")
    with pytest.raises(ApiFailure, match="was made with a token that counts no more") as raised:
        begin(guard, asking_for("submitter", shown.invocation_metadata()[1][1]), "Submission.Get")
    assert raised.value.trailers == (), "the gateway's own certificate counts"
    guard.tokens.listed({})
    with pytest.raises(ApiFailure, match="was made with a token that counts no more"):
        begin(guard, shown, "Submission.Get")
    guard.tokens.is_current = False
    with pytest.raises(ApiFailure) as unknown:
        begin(guard, shown, "Submission.Get")
    assert unknown.value.code is Code.UNAVAILABLE, "it may be a new one"


def behind(column: str, guard: CallGuard) -> str:
    """The id of a token of somebody, which the guard knows."""
    whose = identity(column)
    made = BearerToken("aaaaaaaa", bytes(32), whose, whose, "", 0.0, 4e9)
    guard.tokens.listed({b"/rayched/access/tokens/aaaaaaaa": made.stored()})
    return made.id
