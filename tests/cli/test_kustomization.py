"""-k DIR: what a kustomization makes, and what is told where it makes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rayched.cli.manifests.kustomization import kustomization_text
from rayched.cli.manifests.kustomized import KustomizeFault
from tests.cli.cluster import Commands, run_here

WEB = """apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      priorityClassName: urgent
      initContainers: [{name: first, image: "registry.example:5000/web:1@sha256:aa"}]
      containers: [{name: main, image: "registry.example:5000/web:1", env: [{name: A, value: "1"}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""
CLASS = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\nvalue: 5\n"
SPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """web, its Service, and what they name."""
    directory = tmp_path / "base"
    directory.mkdir()
    (directory / "web.yaml").write_text(WEB)
    (directory / "class.yaml").write_text(CLASS)
    (directory / "kustomization.yaml").write_text("resources: [web.yaml, class.yaml]\n")
    return directory


def overlay(base: Path, text: str, **files: str) -> Path:
    directory = base.parent / "overlay"
    directory.mkdir(exist_ok=True)
    (directory / "kustomization.yaml").write_text(f"resources: [../base]\n{text}")
    for name, content in files.items():
        (directory / f"{name}.yaml").write_text(content)
    return directory


def built(directory: Path) -> dict[str, Any]:
    """By kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(kustomization_text(str(directory)))}


def test_what_a_base_has_comes_as_it_is_and_first_what_others_need(base: Path) -> None:
    web, service = yaml.safe_load_all(WEB)
    assert [*yaml.safe_load_all(kustomization_text(str(base)))] == [service, yaml.safe_load(CLASS), web]


def test_names_change_where_they_are_named_too_and_those_of_namespaces_do_not(base: Path) -> None:
    (base / "space.yaml").write_text(SPACE)
    (base / "kustomization.yaml").write_text("resources: [web.yaml, class.yaml, space.yaml]\n")
    found = built(overlay(base, "namePrefix: test-\nnameSuffix: -1\nnamespace: trial\n"))
    names = {kind: (one["metadata"]["name"], one["metadata"].get("namespace")) for kind, one in found.items()}
    assert names == {
        "StatefulSet": ("test-web-1", "trial"),
        "Service": ("test-web-1", "trial"),
        "PriorityClass": ("test-urgent-1", None),
        "Namespace": ("trial", None),
    }
    assert found["StatefulSet"]["spec"]["serviceName"] == "test-web-1"
    assert found["StatefulSet"]["spec"]["template"]["spec"]["priorityClassName"] == "test-urgent-1"


def test_labels_reach_selectors_where_they_are_to(base: Path) -> None:
    found = built(overlay(base, "commonLabels: {team: red}\nlabels: [{pairs: {tier: front}}]\ncommonAnnotations: {by: us}\n"))
    web, service = found["StatefulSet"], found["Service"]
    assert web["metadata"]["labels"] == {"team": "red", "tier": "front"}
    assert web["spec"]["selector"]["matchLabels"] == {"app": "web", "team": "red"}
    assert web["spec"]["template"]["metadata"] == {"labels": {"app": "web", "team": "red"}, "annotations": {"by": "us"}}
    assert service["spec"]["selector"] == {"app": "web", "team": "red"}
    assert found["PriorityClass"]["metadata"]["annotations"] == {"by": "us"}


def test_images_and_replicas(base: Path) -> None:
    text = "images: [{name: 'registry.example:5000/web', newName: mirror/web, newTag: '2'}]\nreplicas: [{name: web, count: 4}]\n"
    spec = built(overlay(base, f"namePrefix: x-\n{text}"))["StatefulSet"]["spec"]
    assert spec["replicas"] == 4
    pod = spec["template"]["spec"]
    assert (pod["containers"][0]["image"], pod["initContainers"][0]["image"]) == ("mirror/web:2", "mirror/web:2")
    kept = built(overlay(base, "images: [{name: 'registry.example:5000/web', newName: m}, {name: other, newTag: a}]\n"))
    pod = kept["StatefulSet"]["spec"]["template"]["spec"]
    assert (pod["containers"][0]["image"], pod["initContainers"][0]["image"]) == ("m:1", "m:1@sha256:aa")
    digest = built(overlay(base, "images: [{name: 'registry.example:5000/web', digest: 'sha256:bb'}]\n"))
    assert digest["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example:5000/web@sha256:bb"


def test_patches_merge_by_name_and_by_target(base: Path) -> None:
    patch = """apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec: {template: {spec: {containers: [{name: main, env: [{name: B, value: "2"}]}]}}}
"""
    port = "[{op: replace, path: /spec/ports/0/port, value: 81}]"
    by_target = f"patches: [{{path: p.yaml}}, {{target: {{kind: Serv.*, name: web}}, patch: '{port}'}}]\n"
    found = built(overlay(base, f"namePrefix: x-\n{by_target}", p=patch))
    variables = found["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {one["name"]: one["value"] for one in variables} == {"A": "1", "B": "2"}
    assert found["Service"]["spec"]["ports"] == [{"port": 81}]
    gone = "patchesStrategicMerge: [p.yaml]\npatchesJson6902: [{target: {kind: StatefulSet, name: web}, path: j.yaml}]\n"
    delete = "kind: Service\nmetadata: {name: web}\n$patch: delete\n"
    found = built(overlay(base, gone, p=delete, j="[{op: add, path: /spec/replicas, value: 9}]"))
    assert "Service" not in found and found["StatefulSet"]["spec"]["replicas"] == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resources: [../../x.yaml]\n", "takes files from its own directory and below"),
        ("resources: [nowhere.yaml]\n", "nowhere.yaml: No such file or directory"),
        ("resources: [../overlay]\n", "does one name itself?"),
        ("resources: web.yaml\n", "resources: want a list of files and directories"),
        ("resources: [../base, ../base]\n", "StatefulSet web: occurs twice"),
        ("a: [", "not YAML"),
        ("- a\n", "want one object"),
        ("resources: [../base]\nimages: [{newTag: a}]\n", "images: want a name in each"),
        (
            "resources: [../base]\nreplicas: [{name: db, count: 1}]\n",
            "replicas: db: nothing of this name has replicas; there are ",
        ),
        ("resources: [../base]\ncommonLabels: {a: 1}\n", "commonLabels: want texts by name"),
        ("resources: [../base]\nnamePrefix: [a]\n", "namePrefix: want a text"),
        ("resources: [../base]\npatches: [{}]\n", "patches: want either a patch or a path in each"),
        ("resources: [../base]\npatches: [{path: ../base/web.yaml}]\n", "takes files from its own directory and below"),
        ("resources: [../base]\npatches: [{patch: '[]'}]\n", "patches: a JSON patch needs a target"),
        ("resources: [../base]\npatches: [{patch: 'spec: {}'}]\n", "needs kind and metadata.name of what it changes"),
        (
            "resources: [../base]\npatches: [{patch: '[]', target: {kind: Pod}}]\n",
            "no object is Pod; there are StatefulSet web, ",
        ),
        ("resources: [../base]\npatches: [{patch: '[]', target: {name: '('}}]\n", "patches: target: "),
        ("resources: [../base]\npatches: [{patch: '[]', target: {nome: a}}]\n", "target: want an object with annotationSelector"),
        (
            "resources: [../base]\npatches: [{patch: '[{op: remove, path: /nothing}]', target: {kind: Service}}]\n",
            'patches: Service web: operation 0: there is no "nothing" in /nothing',
        ),
    ],
)
def test_what_cannot_be_built_is_told_with_its_file(base: Path, text: str, said: str) -> None:
    directory = overlay(base, "")
    (directory / "kustomization.yaml").write_text(text)
    with pytest.raises(KustomizeFault) as fault:
        kustomization_text(str(directory))
    assert said in str(fault.value) and str(base.parent) in str(fault.value)


def test_a_directory_without_one_and_none_at_all(base: Path, tmp_path: Path) -> None:
    (base / "kustomization.yaml").unlink()
    said = run_here(["apply", "-k", str(base)])
    names = "kustomization.yaml, kustomization.yml, Kustomization"
    assert (said.code, said.errors) == (1, [f"error: {base}: holds no kustomization ({names})"])
    said = run_here(["apply", "-k", str(tmp_path / "none")])
    assert "is no directory; -k names one with a kustomization.yaml" in said.errors[0]


def test_what_only_kustomize_knows_is_built_by_it_where_it_is_there(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = overlay(base, "configMapGenerator: [{name: a}]\n")
    programs = base.parent / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(KustomizeFault) as fault:
        kustomization_text(str(directory))
    assert "kustomization.yaml: configMapGenerator: not built here, and neither kustomize nor kubectl is on $PATH" in str(
        fault.value
    )
    kubectl = programs / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s: %s\\n" "$1" "$2"\n')
    kubectl.chmod(0o755)
    assert kustomization_text(str(directory)) == f"kustomize: {directory}\n"
    kubectl.write_text("#!/bin/sh\necho 'error: no such generator' >&2\nexit 1\n")
    with pytest.raises(KustomizeFault) as fault:
        kustomization_text(str(directory))
    assert str(fault.value) == f"{directory}: `kubectl kustomize` failed: no such generator"


@pytest.mark.cluster
def test_a_kustomization_is_compared_applied_and_deleted(rayched: Commands, base: Path, namespace: str, name: str) -> None:
    directory = str(overlay(base, f"namePrefix: {name}-\nnamespace: {namespace}\nreplicas: [{{name: web, count: 0}}]\n"))
    assert rayched("diff", "-k", directory).code == 1
    objects = [f"service/{name}-web", f"priorityclass.scheduling.k8s.io/{name}-urgent", f"statefulset.apps/{name}-web"]
    assert rayched.ok("apply", "-k", directory) == [f"{one} created" for one in objects]
    assert rayched.ok("apply", "-k", directory) == [f"{one} unchanged" for one in objects]
    assert rayched("create", "-k", directory).code == 1
    deleted = rayched.ok("delete", "-k", directory)
    assert len(deleted) == 3 and all(f'"{name}-' in line for line in deleted)
