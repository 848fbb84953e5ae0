"""What the wheel has beside the packages: `leader` as `rayched.leader`, and the examples (docs/adr/0053).

In the repository `leader` is a package on its own. In site-packages nobody owns a name as common as that, so the wheel has it
below `rayched`, and the imports of all files say so there. Everything else about the package stands in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PACKAGE = "leader"
INSTALLED = f"rayched.{PACKAGE}"
EXAMPLES = "examples"
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info")


def with_installed_names(source: str, name: str) -> str:
    """The source with imports of `leader` by its name in the wheel. Lines stay where they are.

    Raises ValueError where `import leader...` is more than an import for its effects: the name `leader` would be bound no more.
    """
    tree = ast.parse(source, name)
    lines = source.splitlines(keepends=True)
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(level=0, module=str(module)) if module.split(".")[0] == PACKAGE:
                lines[node.lineno - 1] = re.sub(rf"\bfrom {PACKAGE}\b", f"from {INSTALLED}", lines[node.lineno - 1], count=1)
            case ast.Import(names=names) if any(one.name.split(".")[0] == PACKAGE for one in names):
                if len(names) != 1 or names[0].asname or any(_is_name(one) for one in ast.walk(tree)):
                    raise ValueError(f"{name}, line {node.lineno}: want `from {PACKAGE}... import ...`")
                lines[node.lineno - 1] = re.sub(rf"\bimport {PACKAGE}\b", f"import {INSTALLED}", lines[node.lineno - 1], count=1)
    return "".join(lines)


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == PACKAGE and isinstance(node.ctx, ast.Load)


class BuildPackage(build_py):
    """As usual, and then what the module says; but not for an editable installation."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        # What an earlier build has left would come into the wheel.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        target = Path(self.build_lib) / "rayched"
        shutil.copytree(ROOT / PACKAGE, target / PACKAGE, ignore=IGNORED)
        if (ROOT / EXAMPLES).exists():  # a container is built without them
            shutil.copytree(ROOT / EXAMPLES, target / EXAMPLES, ignore=IGNORED)
        for file in target.rglob("*.py"):
            source = file.read_text(encoding="utf-8")
            if PACKAGE in source and (changed := with_installed_names(source, str(file))) != source:
                file.write_text(changed, encoding="utf-8")


setup(cmdclass={"build_py": BuildPackage})
