"""What the pages tell people to type exists: commands and flags, targets of make, files; links lead somewhere.

Commands of rayched are parsed here by the real command, not run; tests/cli/test_quickstart.py and test_tour.py run them. What
stands outside of the blocks that are read is found by its look.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.commands import COMMANDS, WrongCommand, checked, flags, parsed
from tests.docs import command_page
from tests.docs.markdown import PAGES, ROOT, blocks, commands, commands_in_prose, examples_of_help, prose

SHELL = ("sh", "console", "")
LINES = [
    pytest.param(block.page, words, id=f"{block.page.relative_to(ROOT)}: {' '.join(words)}"[:120])
    for page in PAGES
    for block in blocks(page, *SHELL)
    for words in commands(block)
    if words[0].rpartition("/")[2] in ("rayched", "make")
]
OWN_FILE = re.compile(r"(?:examples|deploy|docs|benchmarks|tests|leader|rayched|protos)/[\w./-]+")


def test_there_are_commands_in_the_pages() -> None:
    assert len(LINES) > 45


@pytest.mark.parametrize(("page", "words"), LINES)
def test_a_command_in_a_page_is_one_that_the_command_takes(page: Path, words: list[str]) -> None:
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in words[1:] if "=" not in word} <= targets
        flags_of_program = {word.split()[0] for text in words[1:] for word in re.findall(r"--[a-z].*", text)}
        assert all(f'"{flag}"' in program_of(words[1]) for flag in flags_of_program)
    else:
        parsed([word for word in words[1:] if word != "&"])
        if words[1] == "replica":
            assert checked(words[1:])


def program_of(target: str) -> str:
    """The source of the module that a target of make runs."""
    rule = re.search(rf"^{target}:.*\n\t.* -m ([\w.]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None, target
    return source_of(rule[1])


def source_of(module: str) -> str:
    return (ROOT / f"{module.replace('.', '/')}.py").read_text()


def test_modules_that_the_text_says_to_run_are_there_with_their_flags() -> None:
    named = [line for page in PAGES for line in re.findall(r"`python3? -m ([^`]+)`", prose(page))]
    assert len(named) >= 2
    for module, *words in map(str.split, named):
        assert all(f'"{word}"' in source_of(module) for word in words if word.startswith("--")), module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_in_commands_are_there(page: Path) -> None:
    for block in blocks(page, *SHELL):
        for words in commands(block):
            for word in words:
                assert not OWN_FILE.fullmatch(word) or (ROOT / word).exists(), f"{page.name}: {word} is not there"


NAMED = [
    pytest.param(words[1:], id=f"{page.relative_to(ROOT)}: {' '.join(words)}")
    for page in PAGES
    for words in commands_in_prose(page)
    if words[0] == "rayched" and words[1] != "COMMAND"
]


@pytest.mark.parametrize("words", NAMED)
def test_a_command_that_the_text_names_is_one_that_there_is(words: list[str]) -> None:
    """Alone it stands for the command, and may lack what the command wants."""
    if len(words) == 1:
        assert words[0] in (*COMMANDS, "--version")
    elif words[1:] != list(getattr(COMMANDS[words[0]], "commands", {}).keys() & words[1:2]):
        parsed(words)


def test_targets_of_make_that_the_text_names_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {words[1] for page in PAGES for words in commands_in_prose(page) if words[0] == "make"}
    assert len(named) >= 5 and named <= targets


def test_the_list_of_targets_is_80_columns_wide_at_most() -> None:
    listed = subprocess.run(
        ["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(listed) > 40 and max(map(len, listed)) <= 80


@pytest.mark.parametrize(
    "words", [words[1:] for block in blocks(command_page.PAGE, "text") for words in examples_of_help(block)], ids=" ".join
)
def test_an_example_in_a_help_text_is_a_command_that_is_taken(words: list[str]) -> None:
    parsed(words)


def test_examples_of_help_are_found() -> None:
    assert sum(1 for block in blocks(command_page.PAGE, "text") for _ in examples_of_help(block)) >= 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_stands_where_no_test_reads_it(page: Path) -> None:
    """Indented blocks are not read, nor are blocks of a language that nobody knows."""
    assert not re.findall(
        r"^(?: {4,}|\t)(?:\$ )?(?:\S*/)?(?:rayched|make|docker|helm|kubectl|etcdctl|pip|python3?) .*$", prose(page), re.MULTILINE
    )
    languages = set(re.findall(r"^ *```(\w+)$", page.read_text(), re.MULTILINE))
    assert languages <= {*SHELL, "python", "yaml", "toml", "text"}


@pytest.mark.parametrize("line", ["get pods --colour", "gett pods", "apply -f", "replica --workers 65", "taint"])
def test_a_command_that_would_be_refused_is_noticed(line: str) -> None:
    with pytest.raises(WrongCommand):
        parsed(line.split())


def test_a_replica_that_would_not_start_is_noticed() -> None:
    with pytest.raises(WrongCommand, match="there are no certificates"):
        checked(["replica"])
    assert checked(["replica", "--insecure-loopback"]).insecure_loopback


OF_OTHER_PROGRAMS = ("chaos.md", "gateway.md", "kubectl.md", "performance.md")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in OF_OTHER_PROGRAMS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_flags_named_in_the_text_are_flags_of_some_command(page: Path) -> None:
    known = {flag for command in COMMANDS for flag in flags(command)} | OTHERS
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`rayched[^`]*?(--[a-z][a-z-]+)|`(--[a-z][a-z-]+)", prose))
    assert {flag for pair in named for flag in pair if flag} <= known


OTHERS = {
    "--auto-compaction-mode",
    "--client-cert-auth",
    "--corpus",
    "--help",
    "--max-txn-ops",
    "--no-binary",
    "--only-binary",
    "--quota-backend-bytes",
    "--snapshot-count",
    "--version",
    "--volumes",
}
"""Of all commands, of rayched itself, etcd and docker."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        file, _, heading = target.partition("#")
        found = (page.parent / file) if file else page
        assert found.exists(), f"{page.name} links to {target}"
        if heading:
            anchors = {
                re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in found.read_text().splitlines()
                if line.startswith("#")
            }
            assert heading in anchors, f"{page.name} links to {target}"


def test_the_page_on_the_command_is_what_its_help_says() -> None:
    assert command_page.PAGE.read_text() == command_page.page(), "run make docs"
