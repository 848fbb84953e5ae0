"""Whatever is sent, the answer is one of Kubernetes', and never an internal error."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rayched.gateway import bodies
from rayched.gateway.protobuf_bodies import CONTENT_TYPE, PREFIX
from tests.gateway.requests import ask

pytestmark = pytest.mark.cluster

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "0", "-1", "web", "default", "All", "true", "9" * 30, "a=b", "!", "in (", "\x00", "ü"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["metadata", "spec", "status", "kind", "apiVersion", "name", "labels", "containers", "replicas", "op", "path", "value"]
)
FIELDS_MORE = st.sampled_from(
    ["target", "preconditions", "dryRun", "gracePeriodSeconds", "deleteOptions", "propagationPolicy", "$patch", "items"]
)
DOCUMENTS = st.recursive(
    VALUES,
    lambda inner: st.dictionaries(FIELDS | FIELDS_MORE | TEXTS, inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=12,
)
PLACES = st.sampled_from(
    [
        "/api/v1/pods",
        "/api/v1/nodes",
        "/api/v1/nodes/nobody",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/nobody",
        "/api/v1/namespaces/default/pods/nobody/eviction",
        "/api/v1/namespaces/default/pods/nobody/binding",
        "/api/v1/namespaces/default/bindings",
        "/api/v1/namespaces/default/pods/nobody/log",
        "/api/v1/namespaces/default/pods/nobody/exec",
        "/api/v1/namespaces/default/pods/nobody/attach",
        "/api/v1/namespaces/default/pods/nobody/portforward",
        "/api/v1/namespaces/default/events",
        "/apis/apps/v1/namespaces/default/replicasets/nobody/scale",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/openapi/v3/api/v1",
        "/apis",
    ]
)
NAMES = st.sampled_from(
    [
        "limit",
        "continue",
        "labelSelector",
        "fieldSelector",
        "resourceVersion",
        "resourceVersionMatch",
        "dryRun",
        "fieldValidation",
        "includeObject",
        "gracePeriodSeconds",
        "propagationPolicy",
        "container",
        "tailLines",
        "sinceTime",
        "command",
        "timeoutSeconds",
    ]
)
TYPES = st.sampled_from(
    ["", "application/json", CONTENT_TYPE, *bodies.PATCHES, "application/apply-patch+yaml", bodies.YAML, "text/plain"]
)
METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])


@pytest.mark.row("KC15")
@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    method=METHODS,
    place=PLACES | st.builds(lambda place, more: f"{place}/{quote(more, safe='')}", PLACES, TEXTS),
    query=st.dictionaries(NAMES, TEXTS, max_size=3),
    kind=TYPES,
    body=DOCUMENTS.map(lambda found: json.dumps(found).encode())
    | st.binary(max_size=60).map(lambda raw: PREFIX + raw)
    | st.binary(max_size=20),
)
@example(method="GET", place="/api/v1/pods/%0A", query={}, kind="", body=b"")
def test_no_request_ends_in_an_internal_error(
    url: str, method: str, place: str, query: dict[str, str], kind: str, body: bytes
) -> None:
    if method == "DELETE":
        # Others need what is there.
        query = {**query, "dryRun": "All"}
    text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    answer = ask(url, f"{place}?{text}", method, body, {"Content-Type": kind} if kind else {})
    assert answer.status < 500, (answer.status, answer.body)
    if answer.status >= 400 and method != "HEAD" and answer.body != b"404 page not found\n":
        found: dict[str, Any] = answer.document
        assert (found["kind"], found["status"], found["code"]) == ("Status", "Failure", answer.status)
        assert found["reason"] and found["message"]


@pytest.mark.row("KC15")
@pytest.mark.parametrize(
    ("below", "protocol"),
    [
        ("exec?command=true", "v5.channel.k8s.io"),
        ("attach", "v5.channel.k8s.io"),
        ("portforward", "SPDY/3.1+portforward.k8s.io"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"Connection": "upgrade"}, {"Connection": "upgrade", "Sec-WebSocket-Version": "13"}])
def test_half_a_handshake_is_a_bad_request(url: str, below: str, protocol: str, more: dict[str, str]) -> None:
    headers = {"Upgrade": "websocket", "Sec-WebSocket-Protocol": protocol, **more}
    answer = ask(url, f"/api/v1/namespaces/default/pods/nobody/{below}", headers=headers)
    assert (answer.status, answer.document["reason"]) == (400, "BadRequest")
