"""Which context counts, and what is wrong with one."""

from __future__ import annotations

import pwd
import stat
from pathlib import Path

import pytest

from rayched.client import contexts
from rayched.client.contexts import ClientContext, ContextError, choose, write_context
from rayched.client.endpoints import DEFAULT_ENDPOINTS
from rayched.pki.tls_files import TlsFiles

A, B = ("10.0.0.1:7420", "10.0.0.2:7420"), ("10.0.0.2:7420", "10.0.0.3:7420")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("RAYCHED_SERVER", raising=False)
    monkeypatch.delenv("RAYCHED_CONTEXT", raising=False)
    return tmp_path


def written(name: str, servers: tuple[str, ...], *, current: bool = False) -> ClientContext:
    found = ClientContext(name, servers, TlsFiles.within(Path("/pki") / name))
    write_context(found, make_current=current)
    return found


def test_without_a_context_nothing_is_shown() -> None:
    assert choose() == contexts.ChosenServers(DEFAULT_ENDPOINTS)
    assert choose("10.0.0.1:7420") == contexts.ChosenServers(("10.0.0.1:7420",))


def test_who_has_no_home_has_no_context_and_is_told_where_one_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert choose("10.0.0.1:7420") == contexts.ChosenServers(("10.0.0.1:7420",))
    assert choose() == contexts.ChosenServers(DEFAULT_ENDPOINTS)
    with pytest.raises(ContextError, match="this user has no home; set XDG_CONFIG_HOME"):
        written("a", A)


def test_what_is_written_is_read_back_and_for_its_owner_alone(home: Path) -> None:
    a = written("a", A, current=True)
    assert contexts.read_context("a") == a
    assert (contexts.current_context(), contexts.context_names()) == ("a", ["a"])
    path = home / "rayched" / "contexts" / "a.yaml"
    assert path.exists()
    assert {stat.S_IMODE(one.stat().st_mode) for one in (path, home / "rayched" / "current")} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_current_one_counts_where_nothing_is_named() -> None:
    written("a", A)
    assert choose().context == ""
    b = written("b", B, current=True)
    assert choose() == contexts.ChosenServers(B, b.files, "b")


def test_a_name_counts_before_the_current_one_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = written("a", A), written("b", B, current=True)
    assert choose(context="a").files == a.files
    monkeypatch.setenv("RAYCHED_CONTEXT", "a")
    assert choose() == contexts.ChosenServers(A, a.files, "a")
    assert choose(context="b").files == b.files
    assert choose("10.9.9.9:1", context="a") == contexts.ChosenServers(("10.9.9.9:1",), a.files, "a")


def test_servers_pick_the_context_that_lists_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = written("a", A), written("b", B, current=True)
    assert choose("10.0.0.1:7420").files == a.files
    assert choose("10.0.0.2:7420").files == b.files, "the current one first"
    assert choose("10.0.0.1:7420,10.0.0.2:7420").context == "a"
    assert choose(["10.0.0.8:7420", "10.0.0.9:7420"]).files is None
    monkeypatch.setenv("RAYCHED_SERVER", "10.0.0.1:7420")
    assert choose() == contexts.ChosenServers(("10.0.0.1:7420",), a.files, "a")


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        ("10.0.0.2:7420,10.0.0.9:7420", r"context 'b' lists 10\.0\.0\.2:7420, but not 10\.0\.0\.9:7420: name the context"),
        ("10.0.0.1:7420,10.0.0.3:7420", r"context 'b' lists 10\.0\.0\.3:7420, but not 10\.0\.0\.1:7420: name the context"),
        ("10.0.0.9:7420,10.0.0.1:7420", r"context 'a' lists 10\.0\.0\.1:7420, but not 10\.0\.0\.9:7420: name the context"),
    ],
)
def test_servers_of_which_a_context_lists_some_alone_leave_nothing_to_guess(servers: str, told: str) -> None:
    written("a", A), written("b", B, current=True)
    with pytest.raises(ContextError, match=told):
        choose(servers)
    assert choose(servers, context="a").context == "a"
    assert choose(servers, context="none").files is None


def test_whoever_says_that_there_is_no_tls_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    written("a", A, current=True)
    monkeypatch.setenv("RAYCHED_CONTEXT", "a")
    assert choose("10.0.0.1:7420", insecure=True) == contexts.ChosenServers(("10.0.0.1:7420",))
    assert choose(insecure=True) == contexts.ChosenServers(DEFAULT_ENDPOINTS)
    assert choose("10.0.0.1:7420", context="none") == contexts.ChosenServers(("10.0.0.1:7420",))
    monkeypatch.setenv("RAYCHED_CONTEXT", "none")
    assert choose() == contexts.ChosenServers(DEFAULT_ENDPOINTS)
    with pytest.raises(ContextError, match="so no context has that name"):
        written("none", A)


def test_a_context_that_is_removed_is_current_no_longer() -> None:
    written("a", A), written("b", B, current=True)
    contexts.remove_context("a")
    assert (contexts.context_names(), contexts.current_context()) == (["b"], "b")
    contexts.remove_context("b")
    contexts.remove_context("b")
    assert (contexts.context_names(), contexts.current_context()) == ([], "")
    assert choose().files is None


@pytest.mark.parametrize("name", ["../a", "a/b", "", ".", "-a", "a" * 64, "ä", "a\n", ".hidden"])
def test_a_name_that_leads_elsewhere_is_none(name: str) -> None:
    with pytest.raises(ContextError, match="want a name of letters, digits"):
        written(name, A)
    with pytest.raises(ContextError, match="want a name of letters, digits"):
        contexts.remove_context(name)


def test_a_context_is_named_by_the_path_of_its_file_too(tmp_path: Path) -> None:
    """As agents are told theirs, which nobody else shall find."""
    path, files = tmp_path / "elsewhere.yaml", TlsFiles.within(tmp_path / "tls")
    contexts.write_context_file(path, A, files)
    assert choose("10.0.0.1:7420", context=str(path)) == contexts.ChosenServers(("10.0.0.1:7420",), files, str(path))
    assert choose(context=str(path)).endpoints == A
    assert (choose("10.0.0.1:7420").files, contexts.context_names()) == (None, [])
    with pytest.raises(ContextError, match=r"none\.yaml': there is no such file"):
        choose(context=str(tmp_path / "none.yaml"))
    path.chmod(0o644)
    with pytest.raises(ContextError, match=rf"has mode 0644, .*chmod 600 {path}"):
        choose(context=str(path))


def test_a_context_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(ContextError, match=r"context 'c': there is no .*contexts/c\.yaml; known are: none yet"):
        choose(context="c")
    written("a", A), written("b", B)
    with pytest.raises(ContextError, match="known are: a, b"):
        choose(context="c")


FAULTS = {
    "not YAML": ("servers: [", "is no YAML"),
    "a list": ("- a", "has list; want the fields servers, ca, cert, key"),
    "nothing": ("", "has NoneType; want the fields"),
    "a field too few": ("servers: [a:1]\nca: a\ncert: b\n", "has servers, ca, cert; want the fields"),
    "a field too many": ("servers: [a:1]\nca: a\ncert: b\nkey: c\ntoken: d\n", "has servers, ca, cert, key, token; want"),
    "no servers": ("servers: []\nca: a\ncert: b\nkey: c\n", "servers: want a list of host:port"),
    "one server as text": ("servers: a:1\nca: a\ncert: b\nkey: c\n", "servers: want a list of host:port"),
    "a server without port": ("servers: [a]\nca: a\ncert: b\nkey: c\n", "server 'a': want host:port"),
    "a file that is no text": ("servers: ['a:1']\nca: 1\ncert: b\nkey: c\n", "ca: want the path of a file"),
    "an object": ("!!python/object/apply:os.system ['true']", "is no YAML"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_file_that_is_no_context_is_told_by_its_fault(home: Path, case: str) -> None:
    written("a", A)
    path = home / "rayched" / "contexts" / "a.yaml"
    text, message = FAULTS[case]
    path.write_text(text)
    with pytest.raises(ValueError, match=r".+") as raised:
        choose(context="a")
    assert message in str(raised.value)
    path.chmod(0o644)
    with pytest.raises(ContextError, match=rf"has mode 0644, .*chmod 600 {path}"):
        choose(context="a")


def test_paths_in_a_context_are_beside_it_where_they_are_not_absolute(home: Path) -> None:
    written("a", A)
    place = home / "rayched" / "contexts"
    (place / "a.yaml").write_text("servers: ['a:1']\nca: ca.crt\ncert: ../tls.crt\nkey: /keys/tls.key\n")
    assert contexts.read_context("a").files == TlsFiles(place / "ca.crt", place / "../tls.crt", Path("/keys/tls.key"))
