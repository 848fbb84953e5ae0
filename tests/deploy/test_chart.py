"""The Helm chart, rendered by a small renderer of our own (charts.py) because Helm is not here: what its objects say, that its
commands are the real command's, and that names, ports, probes and policies agree."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rayched.api import kinds
from rayched.api.manifest import ManifestErrors, read_text
from rayched.configuration.configuration_file import Loaded
from rayched.replica.scheduler_settings import read_scheduler_settings
from rayched.replica.settings import split_address
from tests.deploy.charts import Chart, RenderError
from tests.deploy.commands import checked, parsed
from tests.docs.markdown import blocks, commands

ROOT = Path(__file__).parents[2]
CHART = Chart(ROOT / "deploy" / "helm" / "rayched")
SCHEMA = yaml.safe_load((CHART.folder / "values.schema.json").read_text())
ETCD = {
    "endpoints": [f"https://etcd-{number}.etcd:2379" for number in range(3)],
    "tlsSecret": "store",
    "serverName": "etcd",
}
OPEN_ETCD = {"endpoints": ["etcd-0.etcd:2379", "etcd-1.etcd:2379"], "insecure": True}
TLS = {"secret": "certificates"}
HOLLOW = {"enabled": True, "tlsSecret": "agent"}
CONFIGURATION = (ROOT / "examples" / "scheduler" / "profiles.yaml").read_text()
NAME = "test-rayched"


def rendered(**values: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return CHART.render(namespace="space", **{"etcd": ETCD, "tls": TLS} | values)


def replica(objects: dict[tuple[str, str], dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod's spec and its container."""
    spec = objects["StatefulSet", NAME]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def arguments(container: dict[str, Any], pod: str = f"{NAME}-0") -> list[str]:
    """With the variables that the kubelet puts in."""
    known = {"POD_NAME": pod, "POD_NAMESPACE": "space"}
    assert [variable["name"] for variable in container["env"]] == list(known)
    return [re.sub(r"\$\((\w+)\)", lambda match: known[match[1]], word) for word in container["args"]]


def test_without_an_etcd_nothing_is_installed_and_the_reason_is_said() -> None:
    with pytest.raises(RenderError, match=re.escape("etcd.endpoints: name the members of an etcd")):
        CHART.render(tls=TLS)


def test_without_certificates_nothing_is_installed_and_the_reason_is_said() -> None:
    with pytest.raises(RenderError, match=re.escape("tls.secret: name a Secret with the replicas' certificate")):
        CHART.render(etcd=ETCD)
    with pytest.raises(RenderError, match=re.escape("etcd.tlsSecret: name a Secret with a certificate for etcd, or say etcd")):
        rendered(etcd={**ETCD, "tlsSecret": ""})
    with pytest.raises(RenderError, match=re.escape("hollowNodes.tlsSecret: name a Secret with the agent's certificate")):
        rendered(hollowNodes={"enabled": True})


@pytest.mark.parametrize("etcd", [OPEN_ETCD, ETCD], ids=["open", "over TLS"])
def test_certificates_are_where_the_flags_name_them(etcd: dict[str, Any]) -> None:
    spec, container = replica(rendered(etcd=etcd))
    settings = checked(arguments(container))
    assert settings.tls is not None and settings.client_deny_list is not None
    named = [settings.tls.ca, settings.tls.certificate, settings.tls.key, settings.client_deny_list]
    secrets = {volume["name"]: volume["secret"] for volume in spec["volumes"] if "secret" in volume}
    places = {mount["mountPath"]: secrets.get(mount["name"]) for mount in container["volumeMounts"]}
    assert {places[str(path.parent)]["secretName"] for path in named} == {"certificates"}
    assert {path.name for path in named} == {"ca.crt", "tls.crt", "tls.key", "revoked"}
    if settings.etcd_tls is None:
        assert etcd is OPEN_ETCD and settings.insecure_etcd and "store" not in str(secrets)
        return
    assert settings.etcd_tls.server_name == "etcd"
    files = [Path(text) for text in (settings.etcd_tls.ca, settings.etcd_tls.certificate, settings.etcd_tls.key)]
    assert {places[str(path.parent)]["secretName"] for path in files} == {"store"}
    # What a key that is root's may be: read by its group, which is fsGroup.
    assert {secret["defaultMode"] for secret in secrets.values()} == {0o440}
    assert spec["securityContext"]["fsGroup"] == 7420


@pytest.mark.parametrize("ports", [{"api": 7420, "http": 7520}, {"api": 9000, "http": 9001}])
def test_replicas_have_flags_that_exist_names_that_resolve_and_ports_that_agree(ports: dict[str, int]) -> None:
    objects = rendered(ports=ports, electionProfile="kube", workers=0, extraArgs=["--seed=7", "--no-compact"])
    _, container = replica(objects)
    settings = checked(arguments(container))
    assert settings.seed == 7 and not settings.compact
    assert (settings.election_profile, settings.workers, settings.fair_namespaces) == ("kube", 0, True)
    assert list(settings.etcd_endpoints) == ETCD["endpoints"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == ports
    assert split_address("--listen", settings.listen)[1] == ports["api"]
    assert settings.http_place is not None and settings.http_place[1] == ports["http"]
    headless = objects["Service", objects["StatefulSet", NAME]["spec"]["serviceName"]]
    assert settings.advertise_address == f"{NAME}-0.{headless['metadata']['name']}.space.svc:{ports['api']}"


def test_probes_ask_paths_that_a_replica_has_on_the_port_of_health() -> None:
    _, container = replica(rendered())
    paths = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert {container[name]["httpGet"]["port"] for name in paths} == {"http"}
    # Beyond loopback the endpoint speaks TLS alone.
    assert {container[name]["httpGet"]["scheme"] for name in paths} == {"HTTPS"}


def test_no_two_replicas_share_a_host_and_one_at_most_is_taken_away_at_a_time() -> None:
    objects = rendered()
    labels = objects["StatefulSet", NAME]["spec"]["template"]["metadata"]["labels"]
    spec, _ = replica(objects)
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    budget = objects["PodDisruptionBudget", NAME]["spec"]
    assert budget["maxUnavailable"] == 1
    selectors = [
        term["labelSelector"]["matchLabels"],
        budget["selector"]["matchLabels"],
        objects["StatefulSet", NAME]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy", NAME]["spec"]["podSelector"]["matchLabels"],
        *(constraint["labelSelector"]["matchLabels"] for constraint in spec["topologySpreadConstraints"]),
        *(objects["Service", name]["spec"]["selector"] for name in (NAME, f"{NAME}-replicas")),
    ]
    assert all(selector == labels for selector in selectors)


def test_services_lead_to_the_ports_of_the_container_and_replicas_are_found_before_they_are_ready() -> None:
    objects = rendered()
    names = {port["name"] for port in replica(objects)[1]["ports"]}
    for name in (NAME, f"{NAME}-replicas"):
        assert {port["targetPort"] for port in objects["Service", name]["spec"]["ports"]} <= names
    assert objects["Service", f"{NAME}-replicas"]["spec"]["publishNotReadyAddresses"] is True
    assert objects["Service", f"{NAME}-replicas"]["spec"]["clusterIP"] == "None"


def test_the_ports_are_closed_to_all_but_replicas_named_clients_and_monitoring() -> None:
    policy = rendered(networkPolicy={"clients": [], "monitoring": []})["NetworkPolicy", NAME]["spec"]
    own = {"app.kubernetes.io/name": "rayched", "app.kubernetes.io/instance": "test"}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": own}}], "ports": [{"port": 7420}]}]
    api, http = rendered()["NetworkPolicy", NAME]["spec"]["ingress"]
    assert api["from"][1:] == CHART.defaults["networkPolicy"]["clients"]
    assert (http["from"], http["ports"]) == (CHART.defaults["networkPolicy"]["monitoring"], [{"port": 7520}])
    assert all(rule.get("from") for rule in (api, http)), "an empty list of peers lets everybody in"
    replicas, etcd, names = policy["egress"]
    assert replicas["ports"] == [{"port": 7420}] and etcd["ports"] == [{"port": 2379}]
    assert {port["port"] for port in names["ports"]} == {53}


def test_no_container_runs_as_root_gains_rights_or_writes_into_its_image() -> None:
    objects = rendered(hollowNodes=HOLLOW)
    for kind, name in (("StatefulSet", NAME), ("Deployment", f"{NAME}-hollow-nodes")):
        spec = objects[kind, name]["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] == 7420
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert container["image"] == "rayched:0.1.0"


def test_a_configuration_is_mounted_where_the_flag_names_it_and_changes_the_pods(tmp_path: Path) -> None:
    objects = rendered(schedulerConfiguration=CONFIGURATION)
    _, container = replica(objects)
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "configuration"]
    ((file, text),) = objects["ConfigMap", NAME]["data"].items()
    path = checked(arguments(container)).scheduler_configuration
    assert path == Path(mount["mountPath"]) / file
    (tmp_path / file).write_text(text)
    loaded: Loaded = read_scheduler_settings(tmp_path / file).loaded
    assert sorted(loaded.profiles) == sorted(read_scheduler_settings(ROOT / "examples/scheduler/profiles.yaml").loaded.profiles)

    def annotations(found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, str]:
        return dict(found["StatefulSet", NAME]["spec"]["template"]["metadata"]["annotations"])

    assert annotations(objects) != annotations(rendered())
    assert ("ConfigMap", NAME) not in rendered()
    assert checked(arguments(replica(rendered())[1])).scheduler_configuration is None


def test_hollow_nodes_are_there_on_request_and_ask_the_service() -> None:
    assert ("Deployment", f"{NAME}-hollow-nodes") not in rendered()
    (container,) = rendered(hollowNodes={**HOLLOW, "count": 7})["Deployment", f"{NAME}-hollow-nodes"]["spec"]["template"]["spec"][
        "containers"
    ]
    given = parsed(container["args"])
    assert (given["count"], given["server"], given["context"]) == (7, f"{NAME}:7420", "/etc/rayched/tls/context.yaml")


def test_the_notes_name_a_service_that_exists_and_commands_that_the_command_has() -> None:
    notes = CHART.texts(etcd=ETCD, tls=TLS, hollowNodes=HOLLOW)["NOTES.txt"]
    (service,) = re.findall(r"service/(\S+)", notes)
    assert ("Service", service) in rendered()
    commands = [shlex.split(line)[1:] for line in notes.splitlines() if line.strip().startswith("rayched ")]
    assert commands
    for words in commands:
        parsed(words)


def test_the_values_fit_their_schema_and_every_one_of_them_has_a_place_in_it() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(CHART.defaults, SCHEMA)
    assert set(SCHEMA["properties"]) - {"global"} == set(CHART.defaults)


@pytest.mark.parametrize(
    "values",
    [
        {"replcas": 5},
        {"replicas": 0},
        {"etcd": {"endpoints": ["etcd"], "root": "/rayched"}},
        {"etcd": {"endpoints": [], "root": "/rayched/"}},
        {"tls": {}},
        {"electionProfile": "slow"},
        {"workers": 65},
        {"networkPolicy": {**CHART.defaults["networkPolicy"], "etcd": []}},
        {"podAnnotations": {"scrape": True}},
    ],
    ids=lambda values: next(iter(values)),
)
def test_values_that_make_no_sense_are_refused_before_anything_is_installed(values: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(CHART.defaults | values, SCHEMA)


def test_the_chart_speaks_of_the_version_of_the_package() -> None:
    package = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert package is not None
    assert (CHART.metadata["version"], CHART.metadata["appVersion"]) == (package[1], package[1])
    assert f"RAYCHED_IMAGE:-rayched:{package[1]}" in (ROOT / "deploy" / "compose" / "compose.yaml").read_text()


def test_the_objects_have_no_field_that_kubernetes_does_not_have() -> None:
    """By rayched's own reader, for the kinds that it knows; the pods of the others as pods."""
    objects = rendered(hollowNodes=HOLLOW, schedulerConfiguration=CONFIGURATION, tolerations=[{"operator": "Exists"}])
    readable = [found for (kind, _), found in objects.items() if kind in {known.name for known in kinds.KINDS}]
    assert {found["kind"] for found in readable} == {"StatefulSet", "Service", "PodDisruptionBudget"}
    for kind in ("StatefulSet", "Deployment"):
        (owner,) = [found for (its, _), found in objects.items() if its == kind]
        template = owner["spec"]["template"]
        readable.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]})
    for found in readable:
        read_text(yaml.safe_dump(found), found["kind"])
    wrong = yaml.safe_dump(readable[-1]).replace("automountServiceAccountToken", "autoMountServiceAccountToken")
    with pytest.raises(ManifestErrors):
        read_text(wrong, "Pod")


def test_values_that_the_page_sets_are_values_of_the_chart() -> None:
    page = ROOT / "deploy" / "README.md"
    (words,) = [words for block in blocks(page, "sh") for words in commands(block) if words[0] == "helm"]
    given = [words[at + 1].partition("=")[0].split(".") for at, word in enumerate(words) if word == "--set"]
    assert ["etcd", "endpoints"] in given
    for path in given:
        found: Any = CHART.defaults
        for name in path:
            assert name in found, ".".join(path)
            found = found[name]


def test_the_order_of_kube_scheduler_alone_can_be_had() -> None:
    _, container = replica(rendered(fairNamespaces=False))
    assert not checked(arguments(container)).fair_namespaces
