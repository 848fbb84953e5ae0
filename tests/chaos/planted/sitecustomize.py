"""Breaks rules of the production code in every Python process with this folder on PYTHONPATH, as the module with the rule loads.

Real replicas start processes of their own, and those start Ray's, so a rule has to be broken from outside: $CHAOS_BROKEN_RULES
names rules, separated by commas, in the form module:path. Nothing else is imported before its time.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

VARIABLE = "CHAOS_BROKEN_RULES"


class _Breaking(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module, and breaks its rules once it has run."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules: dict[str, list[str]] = {}
        for rule in rules:
            module, _, path = rule.partition(":")
            self._rules.setdefault(module, []).append(path)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        paths = self._rules.pop(name, None)
        if paths is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_break(module: ModuleType) -> None:
            run(module)
            for where in paths:
                *owners, rule = where.split(".")
                owner: object = module
                for part in owners:
                    owner = getattr(owner, part)
                if getattr(owner, rule) is not True:
                    raise ImportError(f"{name} has no unbroken rule {where}")
                setattr(owner, rule, False)

        spec.loader.exec_module = run_and_break  # type: ignore[method-assign]
        return spec


if _rules := [rule for rule in os.environ.get(VARIABLE, "").split(",") if rule]:
    sys.meta_path.insert(0, _Breaking(_rules))
