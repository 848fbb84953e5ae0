"""The page's files: nothing that would run what others wrote, nothing from elsewhere, and all of them in the wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rayched.page.assets import INDEX, read_assets

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "rayched" / "page" / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())

FORBIDDEN_IN_SCRIPTS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|DOMParser|setHTML|srcdoc|\beval\b"
    r"|new Function|javascript:|setAttribute\(\s*[\"'](?:style|on)|document\.cookie|localStorage|\.src\s*=|import\(|https?://"
    r"|createElement\(\s*[\"']script",
    re.IGNORECASE,
)
FORBIDDEN_IN_MARKUP = re.compile(
    r"<style|\sstyle=|\son\w+=|<iframe|<base|<form|javascript:|https?://|<script(?![^>]*\ssrc=)", re.IGNORECASE
)
FORBIDDEN_IN_STYLES = re.compile(r"@import|url\(|expression\(|https?://", re.IGNORECASE)
BY_SUFFIX = {".js": FORBIDDEN_IN_SCRIPTS, ".html": FORBIDDEN_IN_MARKUP, ".css": FORBIDDEN_IN_STYLES}


def wrong_in(text: str, suffix: str) -> list[str]:
    return [found[0] for found in BY_SUFFIX[suffix].finditer(text)]


@pytest.mark.row("UI45")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(STATIC).as_posix())
def test_no_file_makes_markup_or_script_of_texts(file: Path) -> None:
    assert wrong_in(file.read_text(), file.suffix) == []


@pytest.mark.row("UI45")
@pytest.mark.parametrize(
    ("suffix", "planted"),
    [
        (".js", "cell.innerHTML = event.message;"),
        (".js", "cell.insertAdjacentHTML('beforeend', name)"),
        (".js", "eval(text)"),
        (".js", "new Function(text)()"),
        (".js", "element.setAttribute('onclick', text)"),
        (".js", "fetch('https://cdn.example/x.js')"),
        (".js", "document.cookie = id"),
        (".html", "<script>alert(1)</script>"),
        (".html", "<p style='color: red'>"),
        (".html", "<body onload=x()>"),
        (".css", "@import 'x.css';"),
        (".css", "background: url(//x)"),
    ],
)
def test_the_rule_finds_what_is_planted(suffix: str, planted: str) -> None:
    assert wrong_in(planted, suffix)


@pytest.mark.row("UI4")
def test_modules_name_each_other_and_nobody_else() -> None:
    for file in FILES:
        for name in re.findall(r"from \"([^\"]+)\"", file.read_text()) if file.suffix == ".js" else ():
            assert name.startswith("."), (file, name)
            assert (file.parent / name).resolve().is_relative_to(STATIC) and (file.parent / name).is_file(), (file, name)
    assets = read_assets()
    assert set(assets.files) == {file.relative_to(STATIC).as_posix() for file in FILES}
    named = re.findall(rb"(?:href|src)=\"([^\"]+)\"", assets.index.body)
    places = [name.decode().removeprefix(f"/ui/static/{assets.version}/") for name in named if not name.startswith(b"data:")]
    assert places and all(place in assets.files for place in places)
    assert b"{{" not in assets.files[INDEX].body


@pytest.mark.row("UI5")
@pytest.mark.slow
def test_the_wheel_has_all_of_them_and_building_it_runs_no_node(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for package in ("rayched", "leader", "examples"):
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(tree)]
    ended = subprocess.run(build, capture_output=True, text=True, timeout=280, check=False, env={"PATH": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("rayched/page/static/")}
        assert names == {file.relative_to(ROOT).as_posix() for file in FILES}
        for file in FILES:
            assert archive.read(file.relative_to(ROOT).as_posix()) == file.read_bytes()
