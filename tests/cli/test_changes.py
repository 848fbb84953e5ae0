"""create, annotate, patch, edit and dry runs, against a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from rayched.api import kinds
from tests.cli.cluster import Commands, a_pod_text, run_here

pytestmark = pytest.mark.cluster

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {generateName: count-}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: main, image: "web:1"}]}}}
"""


def test_a_template_with_a_generated_name_is_created_again_and_again(rayched: Commands, namespace: str) -> None:
    names = {rayched.ok("create", "-f", "-", "-n", namespace, stdin=JOB)[0] for _ in range(2)}
    assert len(names) == 2 and all(one.startswith("job.batch/count-") and one.endswith(" created") for one in names)
    found = rayched.ok("create", "-f", "-", "-n", namespace, "-o", "jsonpath={.metadata.name}", stdin=JOB)
    assert found[0] in {job.metadata.name for job in rayched.client.list(kinds.JOB, namespace=namespace)}


def test_what_is_there_already_is_not_created(rayched: Commands, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(a_pod_text("one", namespace=namespace))
    assert rayched.ok("create", "-f", str(file)) == ["pod/one created"]
    rayched.running("one", namespace)
    with rayched.nothing_changes():
        again = rayched("create", "-f", str(file))
    (line,) = again.errors
    assert again.code == 1 and line.startswith(f"error: {file}: Pod {namespace}/one")
    assert line.endswith("; `rayched apply` changes what is there")


def test_a_namespace_and_a_priority_class_are_made_by_name(rayched: Commands, name: str) -> None:
    assert rayched.ok("create", "namespace", name, "--dry-run=client") == [f"namespace/{name} created (dry run)"]
    assert rayched.ok("create", "ns", name, "--dry-run=server") == [f"namespace/{name} created (server dry run)"]
    assert rayched.ok("create", "ns", name) == [f"namespace/{name} created"]
    assert rayched.ok("create", "priorityclass", name, "--value=7") == [f"priorityclass.scheduling.k8s.io/{name} created"]
    assert rayched.ok("get", "pc", name, "-o", "jsonpath={.value}") == ["7"]
    rayched.ok("delete", f"namespace/{name}", f"pc/{name}")


@pytest.mark.parametrize(
    "words", ["create", "create pod web", "create namespace a b", "create priorityclass a", "create ns a -f b"]
)
def test_what_cannot_be_created_so_is_told(words: str) -> None:
    result = run_here(words.split())
    assert result.code == 2 and "name what to create" in result.errors[0]


def test_annotations_are_set_replaced_and_removed(rayched: Commands, web: str) -> None:
    assert rayched.ok("annotate", "pod", "web-0", "-n", web, "note=first", "more=x") == ["pod/web-0 annotated"]
    refused = rayched("annotate", "pod", "web-0", "-n", web, "note=second")
    assert (refused.code, refused.errors) == (
        1,
        [
            f'error: Pod {web}/web-0: annotation "note": has value "first" already, and overwrite is not set; '
            "--overwrite replaces it"
        ],
    )
    rayched.ok("annotate", "pods", "-l", "app=web", "-n", web, "note=second", "more-", "--overwrite")
    for pod in ("web-0", "web-1"):
        annotations = rayched.pod(pod, web).metadata.annotations
        assert annotations["note"] == "second" and "more" not in annotations


def test_what_is_set_is_listed(rayched: Commands, web: str) -> None:
    with rayched.nothing_changes():
        assert rayched.ok("label", "pod", "web-0", "-n", web, "--list") == ["app=web"]
        lines = rayched.ok("label", "pods", "-l", "app=web", "-n", web, "--list")
        assert lines == [line for name in ("web-0", "web-1") for line in (f"Listing labels for pod/{name}:", " app=web")]
    assert rayched.ok("annotate", "pod", "web-0", "-n", web, "note=x") == ["pod/web-0 annotated"]
    assert "note=x" in rayched.ok("annotate", "pod", "web-0", "-n", web, "--list")


def test_dry_runs_change_nothing(rayched: Commands, web: str, cordoned: str) -> None:
    rayched.ok("taint", "nodes", cordoned, "other=x:NoSchedule")
    with rayched.nothing_changes():
        for where, suffix in (("client", " (dry run)"), ("server", " (server dry run)")):
            dry = f"--dry-run={where}"
            assert rayched.ok("annotate", "pod", "web-0", "a=b", "-n", web, dry) == [f"pod/web-0 annotated{suffix}"]
            assert rayched.ok("label", "pod", "web-0", "a=b", "-n", web, dry) == [f"pod/web-0 labeled{suffix}"]
            assert rayched.ok("label", "pod", "web-0", "a-", "-n", web, dry) == [f"pod/web-0 not labeled{suffix}"]
            assert rayched.ok("cordon", cordoned, dry) == [f"node/{cordoned} cordoned{suffix}"]
            assert rayched.ok("taint", "nodes", cordoned, "a=b:NoSchedule", dry) == [f"node/{cordoned} tainted{suffix}"]
            assert rayched.ok("taint", "nodes", cordoned, "other-", dry) == [f"node/{cordoned} untainted{suffix}"]
            assert rayched("taint", "nodes", cordoned, "other=y:NoSchedule", dry).code == 1
            assert rayched("taint", "nodes", cordoned, "none-such-", dry).code == 1
            patched = rayched.ok("patch", "pod", "web-0", "-n", web, "-p", '{"metadata":{"labels":{"a":"b"}}}', dry)
            assert patched == [f"pod/web-0 patched{suffix}"]
            text = a_pod_text("new", namespace=web)
            assert rayched.ok("apply", "-f", "-", dry, stdin=text) == [f"pod/new created{suffix}"]
        deleted = rayched.ok("delete", "pod", "web-0", "-n", web, "--dry-run=client")
        assert deleted == [f'pod "web-0" deleted from {web} namespace (dry run)']
        assert rayched("delete", "pod", "none-such", "-n", web, "--dry-run=client").code == 1
    assert rayched("delete", "pod", "web-0", "-n", web, "--dry-run=server").code == 2
    bad = rayched("apply", "-f", "-", "--dry-run=client", stdin=a_pod_text("Web_0", namespace=web))
    assert bad.code == 1 and "metadata.name: " in bad.errors[0]


def test_what_is_only_judged_here_needs_no_cluster() -> None:
    template = "{spec: {restartPolicy: Never, containers: [{name: c}]}}"
    job = f"{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: {{template: {template}}}}}"
    assert run_here(["create", "-f", "-", "--dry-run=client"], stdin=job).lines == ["job.batch/j created (dry run)"]
    pod = run_here(["run", "web", "--requests", "cpu=1", "--dry-run=client", "-o", "yaml", "--", "sh", "-c", "true"])
    assert pod.code == 0 and yaml.safe_load(pod.out)["spec"]["containers"] == [
        {"name": "web", "command": ["sh", "-c", "true"], "resources": {"requests": {"cpu": "1"}}}
    ]
    several = run_here(["run", "web", "--count", "3", "--dry-run=client", "-o", "name", "--", "true"])
    assert several.lines == ["job.batch/web"]
    refused = run_here(["run", "Web", "--dry-run=client", "--", "true"])
    assert refused.code == 1 and "metadata.name: " in refused.errors[0]
    assert run_here(["run", "web", "-o", "yaml", "--", "true"]).code == 2


def test_labels_and_annotations_of_what_manifests_name(rayched: Commands, namespace: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text("\n---\n".join(a_pod_text(f"{name}-{part}", namespace=namespace) for part in "ab"))
    rayched.ok("create", "-f", str(file))
    both = [f"pod/{name}-a", f"pod/{name}-b"]
    assert rayched.ok("label", "-f", str(file), "tier=db") == [f"{one} labeled" for one in both]
    assert rayched.ok("annotate", "-f", str(file), "note=x") == [f"{one} annotated" for one in both]
    listed = rayched.ok("label", "-f", str(file), "--list")
    assert listed == [line for one in both for line in (f"Listing labels for {one}:", " tier=db")]
    assert rayched("label", "-f", str(file), "-l", "tier=db", "a=b").errors == [
        "error: -f cannot be combined with a selector or --all"
    ]
    assert rayched("label", "-f", str(file), "pod", name, "a=b").code == rayched("label").code == 2
    assert rayched("delete", "-f", str(file), "--cascade=orphan").code == 2
    assert len(rayched.ok("delete", "-f", str(file), "--cascade=background", "--grace-period=0")) == 2


def test_patches_of_all_three_types(rayched: Commands, web: str) -> None:
    def labels() -> dict[str, str]:
        return dict(rayched.pod("web-0", web).metadata.labels)

    def patch(*words: str) -> list[str]:
        return rayched.ok("patch", "pod/web-0", "-n", web, *words)

    assert patch("-p", '{"metadata": {"labels": {"a": "1"}}}') == ["pod/web-0 patched"]
    assert patch("-p", "metadata: {labels: {a: '1'}}") == ["pod/web-0 patched (no change)"]
    assert labels() == {"app": "web", "a": "1"}
    patch("--type=merge", "-p", '{"metadata": {"labels": {"app": null}}}')
    assert labels() == {"a": "1"}
    patch("--type=json", "-p", '[{"op": "add", "path": "/metadata/labels/app", "value": "web"}]')
    assert labels() == {"app": "web", "a": "1"}
    for words, said in {
        ("--type=json", "-p", '[{"op": "remove", "path": "/metadata/none"}]'): 'pod/web-0: operation 0: there is no "none"',
        ("-p", '{"spec": {"containers": [{"name": "main", "image": 5}]}}'): "must be a string, not the number 5",
        ("-p", '{"spec": {"nodeName": "elsewhere"}}'): "spec.nodeName: ",
        ("-p", '{"metadata": {"resourceVersion": "1"}}'): "is not the present",
    }.items():
        with rayched.nothing_changes():
            result = rayched("patch", "pod/web-0", "-n", web, *words)
        assert result.code == 1 and said in result.errors[0], result.errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["patch", "pod/a"], "name what changes: --patch, or --patch-file"),
        (["patch", "pod/a", "-p", "x"], "a patch is one object or list"),
        (["patch", "pod/a", "-p", "{"], "--patch, line "),
        (["patch", "pod/a", "--patch-file", "none-such"], "--patch-file none-such: No such file or directory"),
        (["edit", "pods"], "name one object: TYPE NAME or TYPE/NAME"),
    ],
)
def test_patches_and_edits_that_are_none_are_told(words: list[str], said: str) -> None:
    result = run_here(words)
    assert result.code == 2 and said in result.errors[0]


def an_editor(tmp_path: Path, *steps: tuple[str, str]) -> str:
    """A program that replaces text in the file, another one each time it is called, and then nothing."""
    program, state = tmp_path / "editor.py", tmp_path / "calls"
    program.write_text(
        f"import json, pathlib, sys\nstate = pathlib.Path({str(state)!r})\n"
        "number = len(state.read_text()) if state.exists() else 0\nstate.write_text('x' * (number + 1))\n"
        f"steps = json.loads({json.dumps(json.dumps(steps))})\nfile = pathlib.Path(sys.argv[1])\n"
        "if number < len(steps):\n    file.write_text(file.read_text().replace(*steps[number]))\n"
    )
    return f"{sys.executable} {program}"


def edited(rayched: Commands, editor: str, *words: str) -> tuple[int, list[str], list[str]]:
    result = run_here(["edit", *words], None, {"RAYCHED_SERVER": rayched.server, "RAYCHED_EDITOR": editor})
    return result.code, result.lines, result.errors


def test_an_object_is_changed_in_an_editor(rayched: Commands, web: str, tmp_path: Path) -> None:
    editor = an_editor(tmp_path, ("app: web", "app: db"))
    assert edited(rayched, editor, "pod", "web-0", "-n", web) == (0, ["pod/web-0 edited"], [])
    assert rayched.pod("web-0", web).metadata.labels["app"] == "db"
    # The program changes nothing from now on.
    assert edited(rayched, editor, "pod", "web-0", "-n", web) == (0, [], ["Edit cancelled, no changes made."])


def test_what_is_refused_is_opened_again_with_the_reason(rayched: Commands, web: str, tmp_path: Path) -> None:
    editor = an_editor(tmp_path, ("app: web", "app: 5"), ("app: 5", "app: 'six seven'"), ("six seven", "six"))
    assert edited(rayched, editor, "pod", "web-0", "-n", web) == (0, ["pod/web-0 edited"], [])
    assert rayched.pod("web-0", web).metadata.labels["app"] == "six"


def test_what_is_refused_and_left_so_is_kept_in_a_file(rayched: Commands, web: str, tmp_path: Path) -> None:
    with rayched.nothing_changes():
        code, _, (line,) = edited(rayched, an_editor(tmp_path, ("app: web", "app: 5")), "pod/web-0", "-n", web)
    assert code == 1 and "must be a string, not the number 5" in line
    kept = Path(line.rpartition(" ")[2])
    assert "app: 5" in kept.read_text()
    kept.unlink()


def test_an_editor_that_is_not_there_is_told(rayched: Commands, web: str) -> None:
    code, _, (line,) = edited(rayched, "none-such-editor", "pod/web-0", "-n", web)
    assert (code, line) == (1, "error: there is no editor 'none-such-editor'; name one in EDITOR")


def test_get_sorts_leaves_out_and_fills_templates(rayched: Commands, web: str) -> None:
    assert rayched.ok("get", "pod", "none-such", "-n", web, "--ignore-not-found") == []
    assert rayched("get", "pod", "none-such", "-n", web).code == 1
    names = rayched.ok("get", "pods", "-n", web, "--sort-by", "{.metadata.name}", "-o", "name")
    assert names == ["pod/db", "pod/web-0", "pod/web-1"]
    rows = rayched.ok("get", "pods", "-n", web, "-o=custom-columns=A:.metadata.name,B:.spec.none", "--sort-by=.metadata.name")
    assert [row.split() for row in rows] == [["A", "B"], ["db", "<none>"], ["web-0", "<none>"], ["web-1", "<none>"]]
    text = rayched("get", "pods", "-n", web, "-l", "app=web", "-o", 'jsonpath={range .items[*]}{.metadata.name}{";"}{end}').out
    assert sorted(text.split(";")) == ["", "web-0", "web-1"]
    assert rayched("get", "pod", "web-0", "-n", web, "-o", "jsonpath={.metadata.name}").out == "web-0"
    found = rayched.ok("get", "-f", "-", "-o", "name", stdin=a_pod_text("db", namespace=web))
    assert found == ["pod/db"]
    assert rayched("get", "pods", "-n", web, "--sort-by", ".none").code == 2


def test_delete_takes_fields_and_all_namespaces(rayched: Commands, web: str) -> None:
    gone = rayched.ok("delete", "pods", "-n", web, "--field-selector", "status.phase=Pending", "--now")
    assert gone == [f'pod "db" deleted from {web} namespace']
    assert rayched("delete", "pods", "-A").code == 2


def test_a_diff_shows_what_apply_would_change_and_changes_nothing(rayched: Commands, namespace: str) -> None:
    def manifest(label: str) -> str:
        return a_pod_text("one", namespace=namespace, labels=f"{{app: {label}}}")

    def shown(text: str) -> tuple[int, list[str]]:
        with rayched.nothing_changes():
            found = rayched("diff", "-f", "-", stdin=text)
        assert found.errors == []
        return found.code, found.lines

    code, lines = shown(manifest("web"))
    assert code == 1 and lines[:2] == ["--- /dev/null", "+++ applied/pod/one"]
    assert "+    app: web" in lines and not [line for line in lines[2:] if line.startswith("-")]
    rayched.ok("apply", "-f", "-", stdin=manifest("web"))
    rayched.running("one", namespace)
    assert shown(manifest("web")) == (0, [])
    code, lines = shown(manifest("api"))
    assert code == 1 and lines[0] == "--- live/pod/one"
    assert [line for line in lines[2:] if line[0] in "+-"] == ["-    app: web", "+    app: api"]
    failed = rayched("diff", "-f", "-", stdin=manifest("web").replace("cpu: 100m", "cpu: x"))
    assert failed.code == 2 and failed.errors
    assert len([line for line in rayched("diff", "-f", "-", "-n", namespace, stdin=JOB).lines if line == "+kind: Job"]) == 1


def test_replace_keeps_nothing_that_the_manifest_does_not_say(rayched: Commands, namespace: str) -> None:
    text = a_pod_text("one", namespace=namespace, labels="{app: web}")
    missing = rayched("replace", "-f", "-", stdin=text)
    assert missing.code == 1 and missing.errors[0].endswith("; `rayched create -f` makes what is not there")
    rayched.ok("create", "-f", "-", stdin=text)
    before = rayched.running("one", namespace)
    rayched.ok("label", "pod", "one", "-n", namespace, "by=hand")
    found = json.loads("\n".join(rayched.ok("get", "pod", "one", "-n", namespace, "-o", "json")))
    found["metadata"]["labels"] = {"app": "api"}
    replaced = json.dumps(found)
    with rayched.nothing_changes():
        assert rayched.ok("replace", "-f", "-", "--dry-run=server", stdin=replaced) == ["pod/one replaced (server dry run)"]
        assert rayched.ok("replace", "-f", "-", "--dry-run=client", stdin=replaced) == ["pod/one replaced (dry run)"]
    assert rayched.ok("replace", "-f", "-", stdin=replaced) == ["pod/one replaced"]
    after = rayched.pod("one", namespace)
    assert dict(after.metadata.labels) == {"app": "api"}
    assert (after.metadata.uid, after.spec.node_name) == (before.metadata.uid, before.spec.node_name)
    late = rayched("replace", "-f", "-", stdin=replaced)
    assert late.code == 1, "somebody has changed it since: metadata.resourceVersion"
    other = text.replace("cpu: 100m", "cpu: 200m")
    assert rayched("replace", "-f", "-", stdin=other).code == 1
    assert rayched.pod("one", namespace).metadata.uid == before.metadata.uid
    assert rayched.ok("replace", "--force", "-f", "-", stdin=other) == ["pod/one replaced"]
    anew = rayched.running("one", namespace)
    assert anew.metadata.uid != before.metadata.uid
    assert anew.spec.containers[0].resources.requests["cpu"].string == "200m"
