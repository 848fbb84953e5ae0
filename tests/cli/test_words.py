"""What a command line names: objects, taints, labels. Each form that kubectl has, and a sentence for each that is none."""

from __future__ import annotations

import re

import pytest

from rayched.cli.foreign_commands import _ELSEWHERE, _OPTIONS
from rayched.cli.nodes.node_commands import taints
from rayched.cli.objects.label_commands import labels
from rayched.cli.references import named_and_changes, references
from rayched.cli.shell.command_words import all_commands
from rayched.v1.core_pb2 import Taint
from tests.cli.cluster import run_here


def refusal(capsys: pytest.CaptureFixture[str], what: object, *arguments: object, code: int = 2) -> str:
    """The one line that a refused command line ends with."""
    assert callable(what)
    with pytest.raises(SystemExit) as end:
        what(*arguments)
    assert end.value.code == code
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("pods", ["pods"]),
        ("po", ["pods"]),
        ("Pod", ["pods"]),
        ("pods,nodes", ["pods", "nodes"]),
        ("po,pods", ["pods"]),
        ("pods a b", ["pod/a", "pod/b"]),
        ("pod/a no/b", ["pod/a", "node/b"]),
        ("pods,services a", ["pod/a", "service/a"]),
        ("rs/a", ["replicaset.apps/a"]),
        ("priorityclasses.scheduling.k8s.io a", ["priorityclass.scheduling.k8s.io/a"]),
        ("all", ["pods", "replicationcontrollers", "services", "replicasets", "statefulsets", "jobs"]),
    ],
)
def test_objects_are_named_in_kubectls_forms(words: str, named: list[str]) -> None:
    assert [str(reference) for reference in references(words.split())] == named


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("deployments", 'there is no kind "deployments"; allowed are pods|po, '),
        ("pdos", 'did you mean "pods"?'),
        ("hello-0", "; a name alone is no object: pod hello-0"),
        ("hello.yaml", "; a file is named with -f hello.yaml"),
        ("pod/", "'pod/' is not TYPE/NAME"),
        ("/a", "'/a' is not TYPE/NAME"),
        ("pod/a/b", "'pod/a/b' is not TYPE/NAME"),
        ("pod/a node", "'node' is not TYPE/NAME; types with and without names cannot be mixed"),
        (",", "',' names no type of object"),
    ],
)
def test_other_forms_are_refused_with_what_is_allowed(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert said in refusal(capsys, references, words.split(), code=1)


ADD, REMOVE = "add", "remove"


@pytest.mark.row("K5.1")
@pytest.mark.parametrize(
    ("text", "verb", "taint"),
    [
        ("a=b:NoSchedule", ADD, ("a", "b", "NoSchedule")),
        ("a:NoExecute", ADD, ("a", "", "NoExecute")),
        ("a=:PreferNoSchedule", ADD, ("a", "", "PreferNoSchedule")),
        ("example.com/a-b=c-d:NoSchedule", ADD, ("example.com/a-b", "c-d", "NoSchedule")),
        ("a-", REMOVE, ("a", "", "")),
        ("a:NoSchedule-", REMOVE, ("a", "", "NoSchedule")),
        ("a=b:NoSchedule-", REMOVE, ("a", "b", "NoSchedule")),
        ("example.com/a-b-", REMOVE, ("example.com/a-b", "", "")),
    ],
)
def test_a_taint_is_key_value_effect_and_a_dash_removes_it(text: str, verb: str, taint: tuple[str, str, str]) -> None:
    key, value, effect = taint
    found = [Taint(key=key, value=value, effect=effect)]
    assert taints([text]) == ((found, []) if verb is ADD else ([], found))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("a", "'a' is no taint; want KEY[=VALUE]:EFFECT with NoSchedule, PreferNoSchedule, NoExecute"),
        ("a=b", "'a=b' is no taint"),
        ("a=b:Sometimes", "'a=b:Sometimes' is no taint"),
        ("a=b:", "'a=b:' is no taint"),
        ("a:Sometimes-", "'a:Sometimes-' is no taint"),
        ("=b:NoSchedule", "'=b:NoSchedule' is no taint"),
        ("a=b=c:NoSchedule", "'a=b=c:NoSchedule' is no taint"),
        ("-", "'-' is no taint"),
        ("a=b:NoSchedule a=c:NoSchedule", "a node has one taint of a key and effect"),
        ("", "name at least one taint"),
    ],
)
def test_what_is_no_taint_is_refused_with_what_one_looks_like(capsys: pytest.CaptureFixture[str], texts: str, said: str) -> None:
    assert said in refusal(capsys, taints, texts.split())


def test_labels_are_set_and_removed() -> None:
    assert labels(["a=b", "c-", "d=", "example.com/e=f"]) == ({"a": "b", "d": "", "example.com/e": "f"}, ["c"])


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("=b", "'=b' is neither KEY=VALUE nor KEY-"),
        ("-", "'-' is neither KEY=VALUE nor KEY-"),
        ("a:b", "'a:b' is neither KEY=VALUE nor KEY-"),
        ("a=b a-", "label a cannot be set and removed at once"),
        ("a=b a=c", "label a has another value on the same command line"),
        ("", "name at least one label"),
    ],
)
def test_what_is_no_label_is_refused(capsys: pytest.CaptureFixture[str], texts: str, said: str) -> None:
    assert said in refusal(capsys, labels, texts.split())


@pytest.mark.parametrize(
    ("words", "names", "changes"),
    [
        ("nodes a b x=y z-", ["node/a", "node/b"], ["x=y", "z-"]),
        ("node/a node/b example.com/x=y", ["node/a", "node/b"], ["example.com/x=y"]),
        ("pods x=y", ["pods"], ["x=y"]),
        ("pods a", ["pod/a"], []),
    ],
)
def test_names_come_before_the_changes(words: str, names: list[str], changes: list[str]) -> None:
    found, rest = named_and_changes(words.split())
    assert ([str(reference) for reference in found], rest) == (names, changes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("x=y pods a", "'x=y' comes before any object"),
        ("pods a x=y b", "'b' is neither KEY=VALUE nor KEY-; objects are named first"),
    ],
)
def test_objects_after_the_changes_are_refused(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert said in refusal(capsys, named_and_changes, words.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gett", "No such command 'gett'. Did you mean 'get'? see rayched --help"),
        (
            "get pods -o xml",
            "--output 'xml': want one of wide, yaml, json, name, jsonpath=..., custom-columns=..., go-template=...",
        ),
        ("get pods -o go-template", "--output go-template: has nothing behind an equals sign, as in -o go-template="),
        ("get pods -o go-template={{.a", "--output go-template: '{{.a' is not closed"),
        ("get pods -o jsonpath", "--output jsonpath: has nothing behind an equals sign, as in -o jsonpath="),
        ("get", "name what to show: TYPE, TYPE NAME, TYPE/NAME, or -f FILE"),
        ("get pods --nonsense", "No such option: --nonsense; see rayched get --help"),
        ("hollow-nodes 1 --zone 2", "No such option: --zone. Did you mean --zones? see rayched hollow-nodes --help"),
        ("get pods --labl a=b", "No such option: --labl; see rayched get --help"),
        ("apply hello.yaml", "(hello.yaml); files are named with -f: -f hello.yaml; see rayched apply --help"),
        ("apply a.yaml b.yaml", "(a.yaml b.yaml); files are named with -f: -f a.yaml; see rayched apply --help"),
        ("leader odd", "Got unexpected extra argument(s) (odd); see rayched leader --help"),
        ("get pods -o jsonpath={.status", """--output jsonpath: '{.status': a "}" is missing behind '{.status'"""),
        ("apply", "name manifests: either -f FILE, or -k DIR with a kustomization"),
        ("apply -f a -k b", "name manifests: either -f FILE, or -k DIR with a kustomization"),
        ("apply -f a --prune", "choose among it with -l, or name --all"),
        ("apply -f a --prune --all -l a=b", "choose among it with -l, or name --all"),
        ("apply -f a --all", "--all and --prune-allowlist say what --prune may delete"),
        ("apply -f a --prune --all --prune-allowlist Pod", "want GROUP/VERSION/KIND, as in core/v1/Pod"),
        ("apply -f a --prune --all --prune-allowlist apps/v1/Pod", "Pod is of v1; want GROUP"),
        ("apply -f a --prune --all --prune-allowlist core/v1/Secret", 'kind "Secret" is not known; allowed are Pod, '),
        ("apply -f a --server-side", "there is no option --server-side here: fields have no managers here; leave it out"),
        ("apply -f a --validate=false", "there is no option --validate here: manifests are always validated"),
        ("get --raw /api", "there is no option --raw here: replicas speak gRPC"),
        ("--as ada get pods", "there is no option --as here: nobody acts in another's name"),
        ("set image rs/web", "name at least one image: CONTAINER=IMAGE"),
        ("set image rs/web =nginx", "'=nginx': want CONTAINER=IMAGE"),
        ("set resources rs/web", "name what to set: --requests, --limits, or both"),
        ("set resources rs/web --requests cpu", "--requests 'cpu': want KEY=VALUE"),
        ("set env rs/web", "name variables, NAME=VALUE or NAME- to remove one, or --list alone"),
        ("set env rs/web =a", "'=a': want NAME=VALUE, or NAME- to remove it"),
        ("apply -f", "Option '-f' requires an argument"),
        ("hollow-nodes 0", "must be greater than or equal to 1; see rayched hollow-nodes --help"),
        ("hollow-nodes ten", "want a whole number; see rayched hollow-nodes --help"),
        ("sinfo", "there is no command 'sinfo' here: `rayched status` shows how full the cluster is"),
        ("get pods -v=much", "'much' is no level; want a number, as in -v=1"),
        ("up --replicas 10", "less than or equal to 9; see rayched up --help"),
        ("leader -o yaml", "json"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(words: str, said: str) -> None:
    result = run_here(words.split())
    assert (result.code, result.out) == (2, "")
    (line,) = result.errors
    assert line.startswith("error: ")
    assert said in line


COMMANDS = (
    "apply diff create replace get describe events logs exec port-forward top delete run scale wait cordon uncordon drain taint "
    "label annotate patch set edit hold release follow history status api-resources explain plan queue leader login whoami "
    "can-i node hollow-nodes up reset examples demo replica gateway kubeconfig ui access token pki etcd completion "
    "audit"
)


@pytest.mark.parametrize("command", COMMANDS.split())
def test_every_command_explains_itself_in_words_for_a_person(command: str) -> None:
    result = run_here([command, "--help"])
    assert result.code == 0
    assert result.lines[0].startswith(f"Usage: rayched {command}")
    # What a person sees is no type of Python's.
    assert not any(word in result.out for word in ("<str>", "<int", "list[", "<path>", "<float"))


@pytest.mark.parametrize("command", sorted(_ELSEWHERE))
def test_what_others_call_otherwise_is_pointed_to_what_is_there(command: str) -> None:
    assert command not in COMMANDS.split()
    result = run_here([command, "x"])
    (line,) = result.errors
    assert (result.code, result.out) == (2, "") and line.startswith(f"error: there is no command '{command}' here: ")
    assert set(re.findall(r"rayched ([a-z-]+)", line.partition("; see rayched --help")[0])) <= set(COMMANDS.split())


def test_the_kinds_are_listed_as_kubectl_lists_them() -> None:
    rows = [line.split() for line in run_here(["api-resources"]).lines]
    assert rows[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["pods", "po", "v1", "true", "Pod"] in rows and ["jobs", "batch/v1", "true", "Job"] in rows
    assert len(run_here(["api-resources", "--no-headers"]).lines) == len(rows) - 1
    without = [row for row in rows[1:] if row[-2] == "false"]
    assert [line.split() for line in run_here(["api-resources", "--namespaced=false", "--no-headers"]).lines] == without
    assert "podgroups.scheduling.k8s.io" in run_here(["api-resources", "-o", "name"]).lines


def test_without_a_command_all_of_them_are_listed_each_with_a_whole_sentence() -> None:
    result = run_here([])
    assert result.code == 0
    listed = result.out.partition("Commands:")[2].strip().splitlines()
    assert [line.split()[0] for line in listed] == COMMANDS.split()
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


@pytest.mark.parametrize("option", sorted(_OPTIONS))
def test_options_of_kubectl_that_are_not_there_are_answered_with_what_is(option: str) -> None:
    assert option not in {
        name for command in all_commands() if command.name == "get" for one in command.options for name in one.names
    }
    result = run_here(["get", "pods", f"{option}=x"])
    (line,) = result.errors
    assert (result.code, result.out) == (2, "") and line.startswith(f"error: there is no option {option} here: ")
    named = re.findall(r"`rayched ([a-z-]+)", line.partition("; see rayched")[0])
    assert set(named) <= set(COMMANDS.split())


def test_what_a_program_of_the_users_is_given_is_no_option_of_kubectls() -> None:
    assert "there is no option" not in run_here(["run", "x", "-s", "127.0.0.1:1", "--", "program", "--user"]).errors[0]
