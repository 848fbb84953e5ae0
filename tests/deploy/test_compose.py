"""The compose file: what can be known of it without an engine. Its commands are parsed by the real command; ports, names and
probes agree; what no service names is on no network with the API, and the host has it on loopback alone. That its settings and
its certificates fit together is shown in test_compose_runs.py."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rayched.access.bindings import RoleBinding
from rayched.access.identity import Identity, IdentityKind
from rayched.access.policy import AccessRole
from rayched.client.endpoints import DEFAULT_ENDPOINTS
from rayched.nodes.shapes import NodeShape, hollow_nodes
from rayched.replica.settings import ReplicaSettings, split_address
from tests.deploy.commands import checked, parsed

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "compose" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ETCDS = ["etcd-1", "etcd-2", "etcd-3"]
REPLICAS = ["replica-1", "replica-2", "replica-3"]

KEYS = {
    "build",
    "cap_add",
    "cap_drop",
    "command",
    "depends_on",
    "entrypoint",
    "environment",
    "healthcheck",
    "image",
    "network_mode",
    "networks",
    "ports",
    "profiles",
    "read_only",
    "restart",
    "security_opt",
    "shm_size",
    "stop_grace_period",
    "tmpfs",
    "user",
    "volumes",
}
"""Of the compose specification, those that are used."""


def settings(name: str) -> ReplicaSettings:
    return checked(SERVICES[name]["command"])


def test_there_are_three_etcd_members_three_replicas_their_certificates_and_more_on_request() -> None:
    asked = {"admin": ["admin"], "hollow-binding": ["hollow"], "hollow-nodes": ["hollow"]}
    assert sorted(SERVICES) == sorted([*ETCDS, *REPLICAS, "certificates", *asked])
    assert {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service} == asked
    for name, service in SERVICES.items():
        assert set(service) <= KEYS, name
        assert set(service.get("networks", [])) <= set(COMPOSE["networks"]), name
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        volumes = {volume.split(":")[0] for volume in service.get("volumes", [])}
        assert volumes - {"./certificates.sh"} <= set(COMPOSE["volumes"]), name


def test_who_ends_is_waited_for_by_somebody_who_stays() -> None:
    """`up --wait` takes a service that ended for a failure unless another one waits for its end."""
    for name in ("certificates", "hollow-binding"):
        awaited = [service.get("depends_on", {}).get(name, {}).get("condition") for service in SERVICES.values()]
        assert "service_completed_successfully" in awaited, name
    for name in (*ETCDS, *REPLICAS):
        assert SERVICES[name]["depends_on"]["certificates"] == {"condition": "service_completed_successfully"}


@pytest.mark.parametrize("name", REPLICAS)
def test_a_replica_has_flags_that_exist_names_that_resolve_and_ports_that_agree(name: str) -> None:
    replica, service = settings(name), SERVICES[name]
    assert replica.tls is not None and replica.client_deny_list is not None
    assert replica.etcd_tls is not None and replica.etcd_tls.certificate
    assert replica.advertise_address == f"{name}:{split_address('--listen', replica.listen)[1]}"
    assert list(replica.etcd_endpoints) == [f"https://{etcd}:2379" for etcd in ETCDS]
    assert replica.http_place is not None
    ports = {split_address("--listen", replica.listen)[1], replica.http_place[1]}
    assert {int(port.rpartition(":")[2]) for port in service["ports"]} == ports


@pytest.mark.parametrize("name", REPLICAS)
def test_the_health_check_of_a_replica_is_a_program_that_asks_its_readyz(name: str) -> None:
    kind, interpreter, option, program = SERVICES[name]["healthcheck"]["test"]
    assert (kind, interpreter, option) == ("CMD", "python", "-c")
    texts = [
        node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    place = settings(name).http_place
    assert place is not None
    tls = settings(name).tls
    assert tls is not None
    assert sorted(texts) == [str(tls.ca), f"https://127.0.0.1:{place[1]}/readyz"]


def test_clients_on_the_host_find_the_replicas_without_being_told() -> None:
    published = [port.rpartition(":")[0] for name in REPLICAS for port in SERVICES[name]["ports"] if port.endswith(":7420")]
    assert tuple(published) == DEFAULT_ENDPOINTS


def test_every_published_port_is_on_loopback_and_taken_once() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.rpartition(":")[0] for port in published}) == len(published)


def test_etcd_is_out_of_reach_of_all_but_the_replicas() -> None:
    assert COMPOSE["networks"]["store"]["internal"] is True
    assert {name for name, service in SERVICES.items() if "store" in service.get("networks", [])} == {*ETCDS, *REPLICAS}
    for name in ETCDS:
        assert SERVICES[name]["networks"] == ["store"] and "ports" not in SERVICES[name], name


@pytest.mark.parametrize("name", ETCDS)
def test_an_etcd_member_is_called_as_its_peers_call_it_and_takes_large_transactions(name: str) -> None:
    environment = SERVICES[name]["environment"]
    assert all(isinstance(value, str) for value in environment.values())
    assert environment["ETCD_NAME"] == name
    members = dict(member.split("=", 1) for member in environment["ETCD_INITIAL_CLUSTER"].split(","))
    assert sorted(members) == ETCDS
    assert environment["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == members[name]
    assert environment["ETCD_ADVERTISE_CLIENT_URLS"] == f"https://{name}:2379"
    for word in ("ETCD", "ETCD_PEER"):
        assert environment[f"{word}_CLIENT_CERT_AUTH"] == "true"
    urls = [value for key, value in environment.items() if key.endswith("_URLS") and "METRICS" not in key]
    assert len(urls) == 4 and all(url.startswith("https://") for url in urls)
    assert int(environment["ETCD_MAX_TXN_OPS"]) >= 1100
    assert SERVICES[name]["volumes"] == [f"{name}:{environment['ETCD_DATA_DIR']}", f"{name}-tls:/tls:ro"]


def test_hollow_nodes_ask_the_replicas_where_they_are() -> None:
    service = SERVICES["hollow-nodes"]
    given = parsed(service["command"])
    assert given["context"] == "/tls/nodes/context.yaml"
    script = (FILE.parent / "certificates.sh").read_text()
    servers = re.search(r"SERVERS:-(replica[^}]*)", script)
    assert servers is not None and servers[1].split(",") == [settings(name).advertise_address for name in REPLICAS]
    assert service["networks"] == ["api"]
    names = hollow_nodes(given["count"], 3, NodeShape({}, {}))
    bound = parsed(SERVICES["hollow-binding"]["command"])
    subject = Identity("rayched-0a1b2c3d", IdentityKind.NODES, "hollow")
    binding = RoleBinding(subject, AccessRole.NODE, nodes=tuple(bound["node"]))
    assert bound["subject"] == "nodes/hollow" and all(binding.has_node(node.metadata.name) for node in names)


def test_no_container_of_ours_gains_rights_or_writes_into_its_image() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("read_only") is True or name in ETCDS, name
        assert not {"privileged", "pid"} & set(service), name
        assert name == "certificates" or not {"user", "network_mode", "cap_add"} & set(service), name


def test_who_issues_certificates_is_root_with_two_capabilities_and_no_network() -> None:
    service = SERVICES["certificates"]
    assert (service["user"], service["cap_add"], service["network_mode"]) == ("0:0", ["CHOWN", "DAC_OVERRIDE"], "none")


def test_the_image_is_built_from_the_container_file() -> None:
    build = SERVICES["replica-1"]["build"]
    context = (FILE.parent / build["context"]).resolve()
    assert context == ROOT
    container_file = (context / build["dockerfile"]).read_text()
    assert all(f"ARG {name}=" in container_file for name in build["args"])


def test_images_of_others_are_of_one_version() -> None:
    """Which a tag of fewer numbers, or `latest`, is not."""
    container_file = (ROOT / "deploy" / "container" / "Containerfile").read_text()
    named = {service["image"] for service in SERVICES.values()} | set(re.findall(r"^ARG \w+_IMAGE=(\S+)$", container_file, re.M))
    assert len(named) == 3
    for image in named:
        assert re.search(r":v?\d+\.\d+\.\d+[\w.-]*\}?$", image), image
