"""What a request says: its path, its query, the form it accepts, and where it may come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rayched.api.errors import FieldError
from rayched.api.hosts import is_loopback
from rayched.api.manifest import ManifestErrors
from rayched.client.contexts import NO_CONTEXT, write_context_file
from rayched.gateway import paths, queries
from rayched.gateway.calls import _without
from rayched.gateway.gateway import GatewayError, settings_of
from rayched.gateway.port_channels import ports_of
from rayched.gateway.served import find
from rayched.gateway.statuses import StatusFailure, StatusSubject, of_manifest
from rayched.pki.tls_files import TlsFiles
from tests.pki.made import TRUST_DOMAIN, a_pair, an_authority


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ("pods", "", "", "")),
        ("/api/v1/namespaces/a/pods", ("pods", "a", "", "")),
        ("/api/v1/namespaces/a/pods/web", ("pods", "a", "web", "")),
        ("/api/v1/namespaces/a/pods/web/eviction", ("pods", "a", "web", "eviction")),
        ("/api/v1/namespaces/a/pods/web/binding", ("pods", "a", "web", "binding")),
        ("/api/v1/namespaces/a/bindings", ("pods", "a", "", "binding")),
        ("/api/v1/namespaces/a", ("namespaces", "", "a", "")),
        ("/api/v1/namespaces", ("namespaces", "", "", "")),
        ("/api/v1/nodes/n", ("nodes", "", "n", "")),
        ("/apis/apps/v1/namespaces/a/replicasets/r/scale", ("replicasets", "a", "r", "scale")),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", ("priorityclasses", "", "", "")),
    ],
)
def test_a_path_names_what_it_names_in_kubernetes(path: str, expected: tuple[str, ...]) -> None:
    found = paths.parse(path)
    assert found is not None
    assert (found.resource.kind.plural, found.namespace, found.name, found.subresource) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1",
        "/api/v1/secrets",
        "/api/v2/pods",
        "/apis/apps/v1/pods",
        "/api/v1/pods/web",
        "/api/v1/namespaces/a/nodes",
        "/api/v1/namespaces/a/pods/web/proxy",
        "/api/v1/namespaces/a/pods/web/log/more",
        "/api/v1/namespaces//pods",
        "/apis/apps/v1",
    ],
)
def test_what_is_not_served_is_no_path(path: str) -> None:
    assert paths.parse(path) is None


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("accept", "table", "metadata_only"),
    [
        (TABLE, True, False),
        ("application/json", False, False),
        ("", False, False),
        ("application/vnd.kubernetes.protobuf,application/json", False, False),
        ("application/json, " + TABLE, False, False),
        (PARTIAL, False, True),
        ("application/json;as=Table;v=v7;g=meta.k8s.io,*/*", False, False),
    ],
)
def test_the_first_form_that_is_served_is_taken(accept: str, table: bool, metadata_only: bool) -> None:
    assert queries.accepted_form(accept) == queries.AcceptedForm(table, metadata_only)


def test_discovery_in_one_document_is_given_in_its_second_version_only() -> None:
    wanted = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList,application/json"
    assert queries.accepts_aggregated(wanted.format("v2"))
    assert not queries.accepts_aggregated(wanted.format("v2beta1"))
    assert not queries.accepts_aggregated("application/json")


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_true_has_the_words_that_it_has_in_go(text: str) -> None:
    assert queries.list_query({"watch": text}).watch


@pytest.mark.parametrize(
    "query",
    [
        {"watch": "yes"},
        {"limit": "-1"},
        {"limit": "1.5"},
        {"timeoutSeconds": "x"},
        {"resourceVersionMatch": "Perhaps"},
    ],
)
def test_a_parameter_that_is_none_is_named(query: dict[str, str]) -> None:
    with pytest.raises(StatusFailure, match=next(iter(query))) as failure:
        queries.list_query(query)
    assert failure.value.code == 400


def test_a_dry_run_is_all_or_none() -> None:
    assert queries.dry_run("All")
    assert queries.dry_run(["All"])
    assert not queries.dry_run(None)
    assert not queries.dry_run([])
    with pytest.raises(StatusFailure, match="'Some', want All"):
        queries.dry_run("Some")


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("spec.a", {"spec": {"b": [{"c": 1}, {"c": 2}], 'x.y"z': 1}}),
        ("spec.b[1].c", {"spec": {"a": 1, "b": [{"c": 1}, {}], 'x.y"z': 1}}),
        ('spec["x.y\\"z"]', {"spec": {"a": 1, "b": [{"c": 1}, {"c": 2}]}}),
        ("spec.b[7].c", None),
        ("nowhere.a", None),
    ],
)
def test_a_field_is_taken_out_by_the_path_of_its_error(path: str, after: Any) -> None:
    document = {"spec": {"a": 1, "b": [{"c": 1}, {"c": 2}], 'x.y"z': 1}}
    assert _without(document, path) == (document if after is None else after)


@pytest.mark.row("KC15")
def test_fields_that_nobody_knows_are_a_bad_request_and_others_are_causes() -> None:
    resource = find("v1", "pods")
    assert resource is not None
    subject = StatusSubject(resource, "web")
    wrong = FieldError("spec.containers[0].name", "is required")
    unknown = FieldError("spec.colour", "PodSpec has no such field", unknown=True)
    strict = of_manifest(ManifestErrors([wrong, unknown]), subject)
    assert (strict.code, strict.reason) == (400, "BadRequest")
    assert 'unknown field "spec.colour"' in strict.message
    found = of_manifest(ManifestErrors([wrong]), subject).document()
    assert found["message"] == 'Pod "web" is invalid: spec.containers[0].name: is required'
    assert found["details"] == {
        "name": "web",
        "kind": "Pod",
        "causes": [{"reason": "FieldValueInvalid", "message": "is required", "field": "spec.containers[0].name"}],
    }


@pytest.mark.row("KC18")
@pytest.mark.parametrize("listen", ["0.0.0.0:7620", "192.0.2.7:80", "[::]:80", "example.com:80"])
def test_an_address_that_others_reach_is_refused(listen: str) -> None:
    with pytest.raises(GatewayError, match="want an address on loopback"):
        settings_of(listen, None)


def test_a_gateway_without_certificates_is_for_replicas_without_certificates(tmp_path: Path) -> None:
    a_pair(an_authority(), [f"spiffe://{TRUST_DOMAIN}/user/admin"]).write(tmp_path)
    write_context_file(tmp_path / "context.yaml", ["127.0.0.1:7420"], TlsFiles.within(tmp_path))
    with pytest.raises(GatewayError, match="every user of this host would ask with that of context"):
        settings_of("127.0.0.1:0", None, str(tmp_path / "context.yaml"))
    found = settings_of("0.0.0.0:7620", None, str(tmp_path / "context.yaml"), TlsFiles.within(tmp_path))
    assert (found.host, found.endpoints) == ("0.0.0.0", ("127.0.0.1:7420",))


def test_an_address_that_is_none_is_refused() -> None:
    for listen in ("", "7620", "localhost:", "localhost:x", "localhost:70000"):
        with pytest.raises(GatewayError, match="want HOST:PORT"):
            settings_of(listen, None)
    assert settings_of("[::1]:0", None, NO_CONTEXT).host == "::1"
    assert is_loopback("127.8.9.1") and not is_loopback("127.0.0.1.example.com")


def test_ports_are_named_once_each_with_commas_or_without() -> None:
    assert ports_of([]) == []
    assert ports_of(["80"]) == [80]
    assert ports_of(["80,8080", "65535"]) == [80, 8080, 65_535]
    for wrong in ("", "0", "65536", "80,80", "x", "+1", "80,", "9" * 5_000):
        with pytest.raises(StatusFailure, match="ports: found") as failure:
            ports_of([wrong])
        assert failure.value.code == 400
