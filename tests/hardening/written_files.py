"""How the code makes files and directories: what others of the host could read or enter is found by its syntax.

`os.open` with O_CREAT says with which mode, and that gives others nothing; `chmod` gives them nothing either. What is meant for
others is in `allowed.toml` with the reason. `write_text` and its like go by the umask and are for what is no secret: in the rooms
that handle keys (`SECRET_ROOMS`) they are not used at all.
"""

from __future__ import annotations

import ast
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ALLOWED: Final = Path(__file__).with_name("allowed.toml")
SECRET_ROOMS: Final = ("rayched/pki/",)
_BY_UMASK: Final = ("write_text", "write_bytes", "touch")
_OTHERS: Final = 0o077


def read_allowed() -> dict[str, str]:
    """Reasons by `FILE: CALL`."""
    found: dict[str, str] = tomllib.loads(ALLOWED.read_text())["written"]
    return found


def in_source(name: str, source: str) -> Iterator[tuple[str, str]]:
    """What was found, as allowed.toml names it, and in words with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            fault = _fault(node, node.func, name)
            if fault:
                yield f"{name}: {ast.unparse(node.func)}", f"{name}:{node.lineno}: {ast.unparse(node.func)}: {fault}"


def _fault(call: ast.Call, function: ast.Attribute, name: str) -> str:
    whole = ast.unparse(function)
    if whole == "os.open" and any("O_CREAT" in ast.unparse(argument) for argument in call.args):
        return _of_mode(call.args[2] if len(call.args) > 2 else None, "makes a file")
    if function.attr in ("chmod", "fchmod") and call.args:
        return _of_mode(call.args[-1], "changes a mode")
    if whole == "os.umask":
        return "changes the umask of the process" if ast.unparse(call.args[0]) not in ("0o077", "63") else ""
    if name.startswith(SECRET_ROOMS) and (function.attr in _BY_UMASK):
        return "writes by the umask, in a room that handles keys"
    return ""


def _of_mode(mode: ast.expr | None, what: str) -> str:
    if mode is None:
        return f"{what}, and does not say with which mode"
    if isinstance(mode, ast.Constant) and isinstance(mode.value, int):
        others = mode.value & _OTHERS
        return f"{what} of mode {mode.value:04o}, which others can use" if others else ""
    return "" if ast.unparse(mode).endswith("_MODE") else f"{what} whose mode is {ast.unparse(mode)}, which cannot be seen here"


def faults(root: Path, rooms: tuple[str, ...], allowed: Mapping[str, str]) -> list[str]:
    """In the sources of these rooms; entries of `allowed` that are used no more are faults too."""
    found, used = [], set()
    for room in rooms:
        for path in sorted((root / room).rglob("*.py")):
            name = str(path.relative_to(root))
            for key, words in in_source(name, path.read_text()):
                if key in allowed:
                    used.add(key)
                else:
                    found.append(words)
    return found + [f"{ALLOWED.name}: {key}: there is no such call any more" for key in allowed if key not in used]


def modes(root: Path, names: list[str]) -> list[str]:
    """Files of the tree that others than their owner may write."""
    return [
        f"{name}: may be written by others than its owner (mode {mode:04o})"
        for name in names
        if not (root / name).is_symlink() and (mode := stat.S_IMODE((root / name).stat().st_mode)) & 0o022
    ]
