"""The commit in rayched_build_info: known or said to be unknown, never guessed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rayched.replica import source_commit
from rayched.replica.source_commit import UNKNOWN, VARIABLE, of_checkout, of_installation

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    return subprocess.run(["git", *identity, *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def test_a_checkout_is_asked_and_says_whether_its_files_were_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one\n")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    git(tmp_path, "tag", "v1")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert of_checkout(tmp_path) == head
    (tmp_path / "file").write_text("two\n")
    assert of_checkout(tmp_path) == f"{head}-dirty"


def test_a_directory_inside_of_somebody_elses_checkout_is_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "one")
    inside = tmp_path / "site-packages"
    inside.mkdir()
    assert of_checkout(inside) == ""


def test_a_checkout_without_a_commit_or_a_git_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "--quiet")
    assert of_checkout(tmp_path) == ""
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "one")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert of_checkout(tmp_path) == ""


def test_what_pip_noted_is_read() -> None:
    from_git = {"url": "https://example.org/rayched.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}
    assert of_installation(json.dumps(from_git)) == COMMIT
    assert of_installation(json.dumps({"url": "file:///somewhere", "dir_info": {"editable": True}})) == ""
    assert of_installation("") == ""


def test_the_variable_is_asked_last_and_then_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, COMMIT)
    monkeypatch.setattr(source_commit, "of_checkout", lambda root: "of the checkout")
    assert source_commit.source_commit() == "of the checkout"
    monkeypatch.setattr(source_commit, "of_checkout", lambda root: "")
    monkeypatch.setattr(source_commit, "of_installation", lambda text: "of pip")
    assert source_commit.source_commit() == "of pip"
    monkeypatch.setattr(source_commit, "of_installation", lambda text: "")
    assert source_commit.source_commit() == COMMIT
    monkeypatch.delenv(VARIABLE)
    assert source_commit.source_commit() == UNKNOWN
