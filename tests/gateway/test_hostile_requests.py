"""Whatever is sent, the answer is one of Kubernetes', and never an internal error."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rayched.gateway import bodies
from rayched.gateway.protobuf_bodies import CONTENT_TYPE, PREFIX
from tests.cli.cluster import Commands, a_pod_text, started
from tests.gateway.requests import WatchLines, ask

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
    [
        *("target", "preconditions", "dryRun", "gracePeriodSeconds", "deleteOptions", "propagationPolicy", "$patch", "items"),
        *("resourceAttributes", "verb", "resource", "subresource"),
    ]
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
        "/api/v1/namespaces/default/pods/nobody/status",
        "/api/v1/nodes/nobody/status",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/rayched",
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


PODS, NOBODY = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/nobody"
LONG_NUMBER, LARGEST, TOO_LARGE = "9" * 5_000, 2**63 - 1, 2**63
JSON, MERGE = "application/json", bodies.MERGE_PATCH
DEEP = b'{"a":' * 900 + b"1" + b"}" * 900


@pytest.mark.row("KC15")
@pytest.mark.parametrize(
    ("method", "place", "kind", "body", "code"),
    [
        ("GET", f"/api/v1/pods?limit={LONG_NUMBER}", "", b"", 400),
        ("GET", f"/api/v1/pods?resourceVersion={LONG_NUMBER}&resourceVersionMatch=Exact", "", b"", 400),
        ("GET", f"/api/v1/pods?watch=1&resourceVersion={LONG_NUMBER}", "", b"", 400),
        ("GET", f"/api/v1/pods?limit={LARGEST}&continue=x", "", b"", 400),
        ("GET", f"{NOBODY}/log?sinceTime=0001-01-01T00:00:00%2B14:00", "", b"", 400),
        ("GET", f"{NOBODY}/log?sinceTime=9999-12-31T23:59:59-14:00", "", b"", 400),
        ("GET", f"{NOBODY}/log?sinceSeconds={LARGEST}&tailLines={LARGEST}&limitBytes={LARGEST}", "", b"", 404),
        ("GET", f"{NOBODY}/portforward?ports={LONG_NUMBER}", "", b"", 400),
        ("GET", f"{NOBODY}/portforward?ports={','.join(map(str, range(1, 18)))}", "", b"", 400),
        ("DELETE", NOBODY, JSON, f'{{"gracePeriodSeconds": {TOO_LARGE}}}'.encode(), 400),
        ("DELETE", f"{PODS}?fieldSelector=%00", JSON, b"", 400),
        ("POST", f"{NOBODY}/eviction", JSON, f'{{"deleteOptions": {{"gracePeriodSeconds": {TOO_LARGE}}}}}'.encode(), 400),
        ("POST", f"{NOBODY}/eviction", bodies.YAML, b'deleteOptions: {preconditions: {uid: "\\ud800"}}', 400),
        ("POST", PODS, JSON, b'{"metadata": {"name": "\\ud800"}}', 400),
        ("POST", PODS, JSON, b'{"metadata": {"name": "\xed\xa0\x80"}}', 400),
        ("POST", PODS, JSON, b'{"metadata": {"\\udcff": 1, "\\udcff": 2}}', 400),
        ("POST", PODS, bodies.YAML, b'metadata: {name: "\\ud800"}', 400),
        ("POST", PODS, bodies.YAML, b"metadata: {name: \xff}", 400),
        ("POST", PODS, JSON, DEEP, 400),
        ("POST", PODS, JSON, b"[" * 100_000, 400),
        ("POST", PODS, bodies.YAML, b"a: &a {b: 1}\nc: &c {d: *a, e: *c}", 400),
        ("POST", PODS, JSON, f'{{"metadata": {{"name": {LONG_NUMBER}}}}}'.encode(), 400),
        ("POST", PODS, JSON, b'{"metadata": {"name": NaN}, "spec": Infinity}', 422),
        ("POST", PODS, JSON, b'{"metadata": {"name": "x"}, "spec": {"priority": 1e400}}', 422),
        ("PATCH", NOBODY, MERGE, DEEP, 400),
        ("PATCH", NOBODY, "application/json-patch+json; charset=\xff", b"[]", 404),
        ("PUT", f"{NOBODY}?fieldValidation={'x' * 5_000}", JSON, b"{}", 400),
    ],
)
def test_what_is_too_large_too_deep_or_no_text_is_refused(
    url: str, method: str, place: str, kind: str, body: bytes, code: int
) -> None:
    answer = ask(url, place, method, body, {"Content-Type": kind} if kind else {})
    assert (answer.status, answer.document["code"]) == (code, code), answer.body


@pytest.mark.row("KC15")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_body_that_is_not_compressed_as_it_says_is_a_bad_request(url: str, coding: str) -> None:
    answer = ask(url, PODS, "POST", b"\x00 no such thing", {"Content-Type": JSON, "Content-Encoding": coding})
    assert (answer.status, answer.document["reason"]) == (400, "BadRequest")
    assert "the body cannot be read" in answer.document["message"]


@pytest.mark.row("KC15")
def test_bytes_that_are_not_text_are_refused_wherever_they_stand(url: str) -> None:
    token: Any = {"Authorization": b"Bearer \xff"}
    for below in ("exec?command=true", "portforward"):
        refused = ask(url, f"{NOBODY}/{below}", headers=token)
        assert (refused.status, refused.document["message"]) == (400, "Authorization: the token is not UTF-8 text")
    place = urlsplit(url)
    assert place.hostname is not None and place.port is not None
    for line in (
        b"GET /api/v1/namespaces/\xff/pods",
        b"GET /api/v1/pods?labelSelector=\xff",
        b"GET /\xff",
        b"PATCH /api/v1/nodes/\xff",
    ):
        with socket.create_connection((place.hostname, place.port), 30.0) as one:
            one.sendall(line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: \xff\r\n\r\n")
            answered = one.makefile("rb").readline()
        assert answered.startswith(b"HTTP/1.") and answered.split()[1] == b"400", (line, answered)
    for place_of_bytes in ("/api/v1/namespaces/%FF/pods", "/api/v1/pods?labelSelector=%FF", "/api/v1/nodes/%ED%A0%80"):
        assert ask(url, place_of_bytes).status < 500, place_of_bytes


@pytest.mark.row("KC15")
def test_patches_that_grow_without_end_are_refused(rayched: Commands, url: str, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    wrap = [
        {"op": "add", "path": "/b", "value": {}},
        {"op": "move", "from": "/a", "path": "/b/a"},
        {"op": "move", "from": "/b", "path": "/a"},
    ]
    for operations, code in (
        ([{"op": "add", "path": "/a", "value": {}}, *wrap * 3_000], 400),
        ([{"op": "add", "path": "/a", "value": []}, *[{"op": "copy", "from": "/a", "path": "/a/-"}] * 60], 422),
        ([{"op": "test", "path": "/kind", "value": "Pod"}] * 10_001, 422),
        ([{"op": "remove", "path": f"/spec/containers/{LONG_NUMBER}"}], 422),
    ):
        headers = {"Content-Type": bodies.JSON_PATCH}
        answer = ask(url, f"/api/v1/namespaces/{namespace}/pods/web", "PATCH", operations, headers)
        assert answer.status == code, answer.body[:300]


@pytest.mark.row("KC15")
def test_a_label_may_be_called_as_a_field_of_selectors_is(url: str, namespace: str) -> None:
    container = {"name": "main", "image": "registry.example/web:1"}
    labels = {"matchLabels": "a", "matchExpressions": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    controller = {"metadata": {"name": "odd"}, "spec": {"replicas": 0, "selector": labels, "template": template}}
    place = f"/api/v1/namespaces/{namespace}/replicationcontrollers"
    assert ask(url, place, "POST", controller).status == 201
    found = ask(url, f"{place}/odd/scale")
    assert (found.status, found.document["status"]["selector"]) == (200, "matchExpressions=b,matchLabels=a")


@pytest.mark.row("KC15")
@pytest.mark.parametrize(
    "query",
    [
        f"resourceVersion={LARGEST}",
        "resourceVersion=1",
        "labelSelector=%00",
        "fieldSelector=in%20(",
        "labelSelector=%FF",
        "sendInitialEvents=1&allowWatchBookmarks=1&resourceVersionMatch=NotOlderThan",
    ],
)
def test_a_watch_that_cannot_be_ends_with_a_failure_of_the_clients(url: str, query: str) -> None:
    with WatchLines(url, f"/api/v1/pods?watch=1&timeoutSeconds=1&{query}") as lines:
        assert lines.status == 200
        failures = [line["object"] for line in lines if line["type"] == "ERROR"]
    assert all(400 <= one["code"] < 500 for one in failures), failures


@pytest.mark.row("KC15")
def test_a_watch_may_be_to_last_for_ever(rayched: Commands, url: str, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    with WatchLines(url, f"/api/v1/namespaces/{namespace}/pods?watch=1&timeoutSeconds={LARGEST}") as lines:
        assert lines.take(1)[0]["object"]["metadata"]["name"] == "web"


@pytest.mark.row("KC15")
def test_long_texts_are_refused_in_words_wherever_they_stand(url: str) -> None:
    long = quote("ü" * 1_200)
    for place in (
        f"{PODS}/{long}",
        f"/api/v1/namespaces/{long}/pods",
        f"{PODS}?labelSelector={long}",
        f"{PODS}?fieldSelector=spec.nodeName%3D{long}",
        f"{PODS}?continue={long}",
        f"{NOBODY}/log?container={long}",
        f"/apis/metrics.k8s.io/v1beta1/nodes/{long}",
        f"/openapi/v3/{long}",
    ):
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            answer = ask(url, place, method, b"{}", {"Content-Type": bodies.MERGE_PATCH if method == "PATCH" else JSON})
            assert answer.status < 500, (method, place[:60], answer.body[:300])


@pytest.mark.parametrize(
    "line",
    [
        b"GET /api HTTP/1.1\r\nHost: a\r\nX-Null: \x00\r\n",
        b"GET /api?" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: a\r\n",
        b"GET /api HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n",
        b"\x1b[2J is no request\r\n",
    ],
    ids=["a header with a null", "a long line", "a length that is no number", "no request"],
)
def test_bytes_that_are_no_http_are_refused_and_leave_no_line_in_the_log(rayched: Commands, tmp_path: Path, line: bytes) -> None:
    errors = tmp_path / "errors"
    with started("gateway", "--listen", "127.0.0.1:0", "--server", rayched.server, errors=errors) as running:
        place = urlsplit(running.line_with("is served at").rpartition(" ")[2])
        before = errors.read_text()
        for _ in range(3):
            with socket.create_connection((place.hostname or "", place.port or 0), 10.0) as connection:
                connection.sendall(line + b"\r\n")
                assert connection.recv(4_096).startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
        # What is asked afterwards is logged after it.
        assert ask(f"http://{place.netloc}", "/version").status == 200
        assert errors.read_text() == before
