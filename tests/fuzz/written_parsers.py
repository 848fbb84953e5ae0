"""What else reads texts of others: bodies and patches at the gateway, paths and templates of `-o`, files.

Targets as in parsers.py, and what is asked of them is the same. A patch is made of a pod, as the gateway makes it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from rayched.api.errors import ManifestErrors
from rayched.api.kinds import POD
from rayched.api.manifest import read_object, read_text, write_object
from rayched.api.patches import PatchFault, json_patch, merge_patch
from rayched.api.strategic_patches import strategic_patch
from rayched.api.yaml_text import MAX_DEPTH, TextError, depth_exceeds, dump_all, load_all
from rayched.cli.manifests.kustomization import _with_texts as with_texts
from rayched.cli.manifests.kustomized import KustomizedObject, KustomizeFault, kustomized
from rayched.cli.output.go_templates import go_template
from rayched.cli.output.json_path import PathFault
from rayched.cli.output.templates import custom_columns, sorted_by, template
from rayched.configuration.configuration_file import ConfigurationErrors, load
from rayched.gateway import bodies
from rayched.gateway.protobuf_bodies import CONTENT_TYPE, PREFIX
from rayched.gateway.spdy_frames import SpdyFault, SpdyReader, SpdyWriter
from rayched.gateway.statuses import StatusFailure
from rayched.plugins.in_tree import IN_TREE
from tests.fuzz.parsers import ParserTarget, all_refused, refused, text_of

_POD: Final = """apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}, annotations: {note: "5"}}
spec:
  containers:
  - {name: main, image: "a:1", resources: {requests: {cpu: 100m, memory: 1Gi}}, ports: [{containerPort: 80}]}
  - {name: side, image: b, env: [{name: A, value: "1"}]}
  tolerations: [{key: a, operator: Exists}]
"""
_NODE: Final = """apiVersion: v1
kind: Node
metadata: {name: n}
spec: {taints: [{key: a, effect: NoSchedule}]}
status: {allocatable: {cpu: 4}}
"""
_OBJECTS: Final = [write_object(one.object) for one in read_text(f"{_POD}---\n{_NODE}", "the corpus")]
_LIST: Final = {"apiVersion": "v1", "kind": "List", "items": _OBJECTS}
OUTPUT_CHARACTERS_MAX: Final = 1 << 24


# ------------------------------------------------------------------------------------------------------------------ the gateway

_CONTENT_TYPES: Final = {b"j": bodies.JSON, b"y": bodies.YAML, b"p": CONTENT_TYPE}


def check_body(data: bytes) -> str:
    """A letter for the content type, and the body."""
    content_type = _CONTENT_TYPES.get(data[:1], "")
    try:
        found = bodies.read_document(data[1:], content_type)
    except StatusFailure as failure:
        assert failure.code in (400, 415)
        return refused(failure)
    assert not depth_exceeds(found, MAX_DEPTH)
    json.dumps(found, ensure_ascii=False).encode()
    return f"{content_type} {sorted(found)[:3]}"


def check_patch(data: bytes) -> str:
    """A letter for the kind of patch, and the patch."""
    try:
        patch = bodies.read_json(data[1:])
    except StatusFailure as failure:
        return refused(failure)
    before = json.dumps(_OBJECTS[0])
    try:
        after: Any = _patched(data[:1], patch)
    except (PatchFault, RecursionError) as fault:
        # The gateway says of what nests too deep that it does.
        return "deep" if isinstance(fault, RecursionError) else refused(fault)
    finally:
        assert json.dumps(_OBJECTS[0]) == before, "the patched document has changed"
    if not isinstance(after, dict) or depth_exceeds(after, MAX_DEPTH):
        return "no object"
    try:
        item = read_object(after).object
    except ManifestErrors as error:
        return all_refused(error.errors)
    assert read_object(write_object(item)).object == item
    return f"{data[:1]!r} {len(json.dumps(after)) // 100}"


def _patched(letter: bytes, patch: Any) -> Any:
    match letter:
        case b"j":
            return json_patch(_OBJECTS[0], patch)
        case b"m":
            return merge_patch(_OBJECTS[0], patch)
    return strategic_patch(_OBJECTS[0], patch, POD.name)


def check_frames(data: bytes) -> str:
    """The first byte says into how many parts they come."""
    reader = SpdyReader()
    parts = max(1, data[0] % 8) if data else 1
    size = max(1, len(data) // parts)
    found = 0
    try:
        for begin in range(1, len(data), size):
            found += len(reader.take(data[begin : begin + size]))
    except SpdyFault as fault:
        return refused(fault)
    return f"{found} frames"


# ------------------------------------------------------------------------------------------------------- what -o takes


def check_path(data: bytes) -> str:
    """Of `-o jsonpath`, and the same as a column and to sort by."""
    text = text_of(data)
    said = []
    for use in (lambda: template(text).text(_LIST), lambda: _columns(text), lambda: str(sorted_by(text, _OBJECTS))):
        try:
            made = use()
        except PathFault as fault:
            said.append(refused(fault))
        else:
            assert len(made) <= OUTPUT_CHARACTERS_MAX
            said.append(f"{bool(made)}")
    return " ".join(said)


def _columns(text: str) -> str:
    columns = custom_columns(text)
    assert all(len(columns.cells(one)) == len(columns.headings) for one in _OBJECTS)
    return "".join(columns.cells(_OBJECTS[0]))


def check_go_template(data: bytes) -> str:
    try:
        made = go_template(text_of(data)).text(_LIST)
    except PathFault as fault:
        return refused(fault)
    assert len(made) <= OUTPUT_CHARACTERS_MAX
    return f"{len(made) > 0}"


# ------------------------------------------------------------------------------------------------------------------------- files

_EMPTY: Final = tempfile.TemporaryDirectory(prefix="rayched-fuzz-")
"""What a kustomization may name lies in here: nothing."""


def check_kustomization(data: bytes) -> str:
    """All but resources, of which some are URLs: nothing is fetched here."""
    directory = Path(_EMPTY.name)
    file = directory / "kustomization.yaml"
    try:
        found = load_all(text_of(data), str(file))
    except TextError as error:
        return refused(error)
    if len(found) != 1 or not isinstance(found[0], dict):
        return "no object"
    try:
        plan = with_texts(found[0], directory, file)
        made = kustomized([KustomizedObject.of(one) for one in _OBJECTS], plan)
    except KustomizeFault as fault:
        return refused(str(fault).replace(str(directory), "DIR"))
    dump_all([one.document for one in made])
    return f"{len(made)} objects"


def check_configuration(data: bytes) -> str:
    try:
        loaded = load(text_of(data), "a file", IN_TREE)
    except ConfigurationErrors as errors:
        return all_refused(errors.errors)
    if loaded.warnings:
        all_refused(loaded.warnings)
    return f"{len(loaded.profiles)} profiles"


_CONFIGURATION: Final = b"""apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 100
profiles:
- schedulerName: default-scheduler
  plugins: {score: {enabled: [{name: NodeResourcesFit, weight: 10}], disabled: [{name: "*"}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}
"""
_KUSTOMIZATION: Final = b"""namePrefix: a-
namespace: shop
commonLabels: {team: a}
labels: [{pairs: {tier: web}, includeSelectors: true}]
images: [{name: a, newTag: "2"}]
replicas: [{name: web, count: 3}]
patches:
- target: {kind: Pod, name: w.*, labelSelector: app=web}
  patch: '[{"op": "add", "path": "/metadata/labels/b", "value": "c"}]'
patchesStrategicMerge:
- '{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {priority: 5}}'
"""
_DELETE_OPTIONS: Final = PREFIX + b"\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x02\x08\x05"
_SPDY: Final = SpdyWriter().opening(1, {"streamtype": "data", "port": "80"}) + SpdyWriter().data(1, b"hello", is_last=True)
_ESCAPES: Final = (b"\\u0041", b"\\ud800", b"1e999", b"null", b"[" * 40, b'{"a":' * 40, b"-0", b'""')

TARGETS: Final = (
    ParserTarget(
        "bodies",
        check_body,
        (b"j" + json.dumps(_OBJECTS[0]).encode(), b"y" + _POD.encode(), b"p" + _DELETE_OPTIONS, b"j"),
        (*_ESCAPES, PREFIX, b"\x0a\x02", b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x08\xff\xff\xff\xff\x0f"),
    ),
    ParserTarget(
        "patches",
        check_patch,
        (
            b'j[{"op":"replace","path":"/spec/containers/0/image","value":"c"},{"op":"copy","from":"/metadata","path":"/metadata/a"}]',
            b'j[{"op":"test","path":"/kind","value":"Pod"},{"op":"move","from":"/spec/tolerations","path":"/spec/t"}]',
            b'm{"metadata":{"labels":{"app":null,"b":"c"}}}',
            b's{"spec":{"containers":[{"name":"side","$patch":"delete"}],"$setElementOrder/containers":[{"name":"main"}]}}',
            b's{"metadata":{"$retainKeys":["name"],"$deleteFromPrimitiveList/finalizers":["a"]}}',
        ),
        (
            *_ESCAPES,
            b'"$patch":"replace"',
            b'"$patch":"merge"',
            b"$setElementOrder/",
            b"$retainKeys",
            b'"op":"add"',
            b"/-",
            b"~1",
        ),
    ),
    ParserTarget(
        "frames", check_frames, (b"\x01" + _SPDY, b"\x04" + _SPDY), (b"\x80\x03\x00\x01", b"\x80\x03\x00\x06", b"\xff\xff\xff")
    ),
    ParserTarget(
        "paths",
        check_path,
        (
            b"{.items[0].metadata.name}",
            b'{range .items[*]}{.metadata.name}{"\\t"}{end}',
            b'{.items[?(@.kind=="Pod")].spec.containers[0:2:1].image}',
            b".metadata.name",
            b"NAME:.metadata.name,CPU:.spec.containers[*].resources.requests.cpu",
            b"{..name}",
        ),
        (b"[*]", b"[?(@.", b")]", b"..", b"['", b"']", b"{range ", b"{end}", b"[-1:]", b"==", b"\\.", b'{"\\n"}', b"9" * 30),
    ),
    ParserTarget(
        "go-templates",
        check_go_template,
        (
            b'{{range $i, $e := .items}}{{if eq .kind "Pod"}}{{$i}} {{.metadata.name | printf "%-10s"}}{{else}}-{{end}}{{end}}',
            b'{{with index .items 0}}{{len .spec.containers}}{{"\\n"}}{{end}}',
            b'{{define "a"}}x{{end}}{{- /* c */ -}}{{not true}}',
        ),
        (
            b"{{",
            b"}}",
            b"{{end}}",
            b"{{range ",
            b"{{if ",
            b"{{else}}",
            b" | ",
            b"index ",
            b"slice ",
            b"printf ",
            b"%9999999d",
            b"$x := ",
        ),
    ),
    ParserTarget(
        "kustomizations",
        check_kustomization,
        (_KUSTOMIZATION,),
        (b": ", b"- ", b"{", b"}", b"[", b"null", b"*a", b"&a ", b".*", b"(", b"@sha256:"),
    ),
    ParserTarget(
        "configurations",
        check_configuration,
        (_CONFIGURATION,),
        (b": ", b"- ", b"[]", b"{}", b"null", b"-1", b"1e99", b"true", b"pluginConfig", b"*a", b"&a "),
    ),
)
