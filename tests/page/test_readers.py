"""The page over TLS: each reader sees what their own role allows, and nobody what another one may; a real replica and gateway."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from rayched.v1.access_pb2 import RoleBinding
from rayched.v1.core_pb2 import Event, Node
from tests.cli.cluster import wait_until
from tests.gateway.requests import ask, connection_to
from tests.gateway.test_bearer_tokens import bearer, is_known, issued
from tests.gateway.test_identity import Secured, a_pod, secured
from tests.page.streams import Frame, PageFrames

pytestmark = pytest.mark.cluster

__all__ = ["secured"]


class ReaderFrames(PageFrames):
    """A stream over TLS, of whoever the headers or the certificate are of."""

    def __init__(self, url: str, tls: ssl.SSLContext, headers: Mapping[str, str] | None = None) -> None:
        self._connection = connection_to(url, tls)
        self._connection.request("GET", "/ui/stream?topics=usage,status,leader,events", headers=dict(headers or {}))
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def seen_until(self, is_enough: Callable[[list[Frame]], bool]) -> list[Frame]:
        """All that came, in its order."""
        seen: list[Frame] = []
        for frame in self:
            seen.append(frame)
            if is_enough(seen):
                return seen
        raise AssertionError("the stream ended")


def denied(seen: list[Frame]) -> set[str]:
    """What the reader may not see, as told last."""
    return set(next((content["topics"] for name, content in reversed(seen) if name == "denied"), ()))


def events(seen: list[Frame]) -> list[dict[str, Any]]:
    """Those that the page has then."""
    found: list[dict[str, Any]] = []
    for name, content in seen:
        if content.get("anew") or "events" in content.get("topics", ()):
            found = []
        if name == "events":
            found = found + content["events"]
    return found


def an_event(namespace: str, about: str) -> Event:
    event = Event(api_version="v1", kind="Event", type="Normal", reason="Tested", message=f"a word about {about}")
    event.metadata.namespace, event.metadata.name = namespace, f"{about}.1"
    event.involved_object.kind, event.involved_object.namespace, event.involved_object.name = "Pod", namespace, about
    return event


@pytest.mark.row("UI34")
def test_nobody_gets_the_page_itself_and_nothing_else(secured: Secured) -> None:
    nobody = secured.tls(None)
    index = ask(secured.url, "/ui/", tls=nobody)
    assert index.status == 200 and b'id="sign-in"' in index.body
    for place in ("/ui/api/queue", "/ui/api/pod/team-a/web", "/ui/api/node/n", "/ui/api/replicas", "/ui/stream?topics=usage"):
        for headers in ({}, bearer("rt_aaaaaaaa_" + "A" * 43)):
            answer = ask(secured.url, place, headers=headers, tls=nobody)
            assert answer.status == 401 and list(answer.document) == ["error"], place
    json_body = {"Content-Type": "application/json"}
    assert ask(secured.url, "/ui/api/plan", "POST", {}, headers=json_body, tls=nobody).status == 401


@pytest.mark.row("UI38")
def test_a_reader_of_one_namespace_sees_nothing_of_another_though_others_look_as_well(secured: Secured) -> None:
    secured.admin.register_node(Node(api_version="v1", kind="Node", metadata={"name": "node-of-all"}))
    seated = a_pod("seated", "team-a")
    seated.spec.node_name = "node-of-all"
    secured.admin.submit(seated)
    operator = secured.user("olga", "operator")
    headers, nobody = bearer(issued(secured, "rosa").secret), secured.tls(None)
    with ReaderFrames(secured.url, operator) as all_of_it, ReaderFrames(secured.url, nobody, headers) as own:
        all_of_it.until(lambda name, content: name == "usage" and content.get("names") == ["node-of-all"])
        for namespace in ("team-b", "team-a"):
            secured.admin.submit(an_event(namespace, f"pod-of-{namespace}"))
        all_of_it.seen_until(lambda seen: {"team-a", "team-b"} <= {event["namespace"] for event in events(seen)})
        seen = own.seen_until(lambda seen: bool(denied(seen) and events(seen)))
        # Those of the reader's own namespace come, and go on coming.
        secured.admin.submit(an_event("team-b", "later-of-b"))
        secured.admin.submit(an_event("team-a", "later-of-a"))
        seen += own.seen_until(lambda seen: "later-of-a" in json.dumps(seen))
        assert denied(seen) == {"usage"} and {event["namespace"] for event in events(seen)} == {"team-a"}
        assert not [name for name, _ in seen if name == "usage"]
        assert not [name for name in ("node-of-all", "team-b", "later-of-b") if name in json.dumps(seen)]

    def get(place: str) -> tuple[int, Any]:
        answer = ask(secured.url, f"/ui/api/{place}", headers=headers, tls=nobody)
        return answer.status, answer.document

    # That the replica here has no leader to ask about its queue is no matter of one that has a node.
    assert get("pod/team-a/seated")[1]["name"] == "seated"
    assert {get(place)[0] for place in ("pod/team-b/web", "pod/team-b/none", "explain/team-b/web", "node/node-of-all")} == {403}
    assert get("pod/team-b/web")[1]["error"].replace("/web", "/none") == get("pod/team-b/none")[1]["error"]
    assert ask(secured.url, "/ui/api/node/node-of-all", tls=operator).document["name"] == "node-of-all"
    plan = ask(secured.url, "/ui/api/plan", "POST", {}, headers={**headers, "Content-Type": "application/json"}, tls=nobody)
    assert plan.status == 403 and "may not Scheduling.GetPlanBasis" in plan.document["error"]


@pytest.mark.row("UI37")
def test_a_stream_ends_with_its_token(secured: Secured) -> None:
    found, nobody = issued(secured, "rita"), secured.tls(None)
    with ReaderFrames(secured.url, nobody, bearer(found.secret)) as stream:
        assert stream.until(lambda name, _: name == "hello")
        secured.admin.revoke_token(found.token.id, found.token.subject)
        began = time.monotonic()
        for _ in stream:
            pass
        # Two seconds, and what a busy host takes.
        assert time.monotonic() - began < 5.0
    wait_until(lambda: not is_known(secured, found), "the replica has read it")

    def is_over() -> bool:
        with ReaderFrames(secured.url, nobody, bearer(found.secret)) as stream:
            return stream.status == 401

    # The gateway believes a second long what the replica has said of it, and what it shows is asked of the replica.
    wait_until(is_over, "a stream that is opened anew is refused")
    assert ask(secured.url, "/ui/api/pod/team-a/web", headers=bearer(found.secret), tls=nobody).status == 401


def test_what_was_shown_is_forgotten_when_the_role_goes(secured: Secured) -> None:
    operator = secured.user("otto", "operator")
    for namespace in ("team-a", "team-b"):
        secured.admin.submit(an_event(namespace, f"before-of-{namespace}"))
    with ReaderFrames(secured.url, operator) as stream:
        before = stream.seen_until(
            lambda seen: any(name == "usage" for name, _ in seen) and "before-of-team-b" in json.dumps(seen)
        )
        uri = f"spiffe://{secured.made.trust_domain}/user/otto"
        secured.admin.grant(RoleBinding(subject=uri, role="viewer", namespaces=["team-a"]))
        for binding in secured.admin.grants(uri):
            if binding.role == "operator":
                secured.admin.revoke_grant(binding.id)
        seen = stream.seen_until(lambda seen: "usage" in denied(seen) and "before-of-team-a" in json.dumps(events(seen)))
        assert {event["namespace"] for event in events(before + seen)} == {"team-a"}


def test_a_reader_who_is_bound_to_more_sees_more(secured: Secured) -> None:
    headers, nobody = bearer(issued(secured, "rolf").secret), secured.tls(None)
    for namespace in ("team-a", "team-b"):
        secured.admin.submit(an_event(namespace, f"shown-of-{namespace}"))
    with ReaderFrames(secured.url, nobody, headers) as stream:
        stream.seen_until(lambda seen: "shown-of-team-a" in json.dumps(events(seen)))
        uri = f"spiffe://{secured.made.trust_domain}/user/rolf"
        secured.admin.grant(RoleBinding(subject=uri, role="viewer", namespaces=["team-b"]))
        stream.seen_until(lambda seen: "shown-of-team-b" in json.dumps(events(seen)))


@pytest.mark.row("UI40", "UI41")
def test_other_names_and_other_pages_are_refused(secured: Secured) -> None:
    operator = secured.user("olga", "operator")
    port = urlsplit(secured.url).port
    for host, code in ((f"localhost:{port}", 200), (f"rebind.example:{port}", 421)):
        assert ask(secured.url, "/ui/", headers={"Host": host}, tls=operator).status == code
    for headers in ({"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = ask(secured.url, "/ui/api/pod/team-a/web", headers=headers, tls=operator)
        assert answer.status == 403
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
