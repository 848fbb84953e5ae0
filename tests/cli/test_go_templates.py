"""-o go-template, as kubectl has it."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.cli.output.go_templates import go_template
from rayched.cli.output.json_path import PathFault
from tests.cli.cluster import Commands

PODS: dict[str, Any] = {
    "kind": "List",
    "items": [
        {"metadata": {"name": "web-0", "labels": {"tier": "b", "app": "web"}}, "spec": {"priority": 5}, "ok": True},
        {
            "metadata": {"name": "db"},
            "spec": {"priority": 1000000, "share": 1.5, "ports": [80, 443]},
            "none": None,
            "secret": "aGk=",
        },
    ],
}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("{{.kind}}", "List"),
        ("a{{/* {{ no }} */}}b", "ab"),
        ('{{range .items}}{{.metadata.name}}{{"\\n"}}{{end}}', "web-0\ndb\n"),
        ("{{range .items}}{{.metadata.name}};{{end}} of {{len .items}}", "web-0;db; of 2"),
        ("x  {{- range .items -}}  [{{.spec.priority}}]  {{- end -}}  y", "x[5][1000000]y"),
        ("{{range $n, $pod := .items}}{{$n}}={{$pod.metadata.name}} {{end}}", "0=web-0 1=db "),
        ("{{range $key, $value := (index .items 0).metadata.labels}}{{$key}}={{$value}},{{end}}", "app=web,tier=b,"),
        ("{{range .none}}x{{else}}nothing{{end}}", "nothing"),
        ("{{with (index .items 1)}}{{.metadata.name}} in {{$.kind}}{{end}}", "db in List"),
        ("{{with .nothing}}x{{else}}{{.kind}}{{end}}", "List"),
        ('{{range .items}}{{if eq .metadata.name "db"}}yes{{else if .ok}}ok {{else}}no{{end}}{{end}}', "ok yes"),
        ("{{$n := 1}}{{range .items}}{{$n = .spec.priority}}{{$m := 2}}{{end}}{{$n}}", "1000000"),
        ("{{$n := 1}}{{range .items}}{{$n := .spec.priority}}{{end}}{{$n}}", "1"),
        ("{{range .items}}{{if .none}}{{else}}{{.metadata.name}}{{break}}{{end}}{{end}}", "web-0"),
        ("{{range .items}}{{if .ok}}{{continue}}{{end}}{{.metadata.name}}{{end}}", "db"),
        ("{{.metadata.name}} {{(index .items 1).none}}", "<no value> <no value>"),
        ("{{(index .items 0).metadata.labels}} {{(index .items 1).spec.ports}}", "map[app:web tier:b] [80 443]"),
        ("{{(index .items 1).spec.share}} {{(index .items 0).ok}}", "1.5 true"),
        ('{{index (index .items 0) "metadata" "labels" "app"}}', "web"),
        ("{{(index .items 1).secret | base64decode}}", "hi"),
        ('{{len .items | printf "%03d %s|" 7}}', "007 %!s(int=2)|"),
        ('{{printf "%-6s|%4d|%v|%q|%.1f|%%|%t" "ab" 7 .kind "a\\"b" 1.25 true}}', 'ab    |   7|List|"a\\"b"|1.2|%|true'),
        ('{{printf "%s"}}{{printf "a" 1}}', "%!s(MISSING)a%!(EXTRA 1)"),
        ("{{print 1 2 `a` true}}{{println `x` 3}}", "1 2atruex 3\n"),
        ('{{and .kind ""}}{{or "" .kind}}{{not .kind}}', "Listfalse"),
        ('{{if and (gt (len .items) 1) (le 1 1.5) (ne .kind "a")}}more{{end}}', "more"),
        ('{{eq .kind "a" "List"}} {{lt "a" "b"}} {{eq .nothing nil}}', "true true true"),
        ('{{exists .items 0 "metadata"}} {{exists .items 0 "none"}} {{exists .items 9}}', "true false false"),
        ('{{slice .kind 1 3}} {{`{{"}}`}}', 'is {{"}}'),
    ],
)
def test_a_template_prints_what_kubectl_prints(text: str, printed: str) -> None:
    assert go_template(text).text(PODS) == printed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{.a", "'{{.a' is not closed"),
        ("{{range .items}}x", "a {{range}} has no {{end}}"),
        ("x{{end}}", "{{end}} stands where nothing is open"),
        ("{{if .a}}{{else}}{{else}}{{end}}", "{{else}} stands where it means nothing"),
        ("{{range .a}}{{else if .b}}{{end}}", "{{else if .b}} is not read here"),
        ("{{break}}", "{{break}} stands outside of range"),
        ("{{$x}}", "undefined variable $x"),
        ("{{range .a}}{{$x := 1}}{{end}}{{$x}}", "undefined variable $x"),
        ("{{$x = 1}}", "undefined variable $x"),
        ("{{upper .a}}", "function 'upper' is not known; known are and, base64decode, "),
        ("{{.a .b}}", "want one value, or a function with its arguments"),
        ("{{len (.a}}", "a parenthesis is not closed"),
        ("{{print len .a}}", "'len' stands among arguments"),
        ("{{define `x`}}{{end}}", "{{define `x`}} is not read here"),
        ("{{}}", "{{}} is not read here"),
        ("{{.a-b}}", "'-b' is not read here"),
        ("{{len " + "(" * 40 + ".a" + ")" * 40 + "}}", "lies too deep"),
        ("{{if .a}}" * 40 + "{{end}}" * 40, "more than 32 blocks lie in each other"),
    ],
)
def test_a_template_that_is_none_is_told(text: str, said: str) -> None:
    with pytest.raises(PathFault) as fault:
        go_template(text)
    assert said in str(fault.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{index .items 9}}", "index: 9 is out of range, there are 2"),
        ("{{.kind.name}}", "there is no field name in List"),
        ("{{len 3}}", "len: 3 has no length"),
        ("{{range .kind}}{{end}}", "range: List is no list and no map"),
        ('{{eq 1 "a"}}', "eq: 1 and a are of different types"),
        ('{{lt 1 "a"}}', "lt: 1 and a have no order"),
        ("{{ne 1}}", "ne: cannot be called with 1"),
        ("{{and}}", "and: want at least one argument"),
        ("{{len .items | base64decode}}", "base64decode: 2 is no base64"),
        ("{{slice .kind 3 1}}", "slice: List has no such part"),
        ("{{printf 1}}", "printf: want a format first"),
    ],
)
def test_what_cannot_be_worked_out_is_told(text: str, said: str) -> None:
    with pytest.raises(PathFault) as fault:
        go_template(text).text(PODS)
    assert said in str(fault.value)


@pytest.mark.cluster
def test_objects_go_through_a_template_and_files_hold_one(rayched: Commands, web: str, tmp_path: Any) -> None:
    file = tmp_path / "names.template"
    file.write_text("{{range .items}}{{.metadata.name}} {{end}}\n")
    assert rayched.ok("get", "pods", "-n", web, "-o", f"go-template-file={file}") == ["db web-0 web-1 "]
    assert rayched.ok("get", "pod", "db", "-n", web, "-o=go-template={{.metadata.labels.tier}}{{`\n`}}") == ["back"]
    refused = rayched("get", "pod", "db", "-n", web, "-o=go-template={{len .kind.x}}")
    assert (refused.code, refused.errors) == (1, ["error: --output go-template: there is no field x in Pod"])
