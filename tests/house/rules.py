"""The rules of the tree, and what breaks them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.house.counts import Counts

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Rules:
    """As they stand in rules.toml and cross_overs.toml."""

    file_lines: int
    function_lines: int
    most: dict[str, int]
    """What is still above its limit, and the rest: by what is counted. They only fall."""
    shared: frozenset[str]
    """Class names that several modules have on purpose."""
    retired: dict[str, str]
    """Words that had another meaning in the field, or several, with what stands in their place."""
    fit: frozenset[str]
    """Functions that state Fit's rule."""
    cross_overs: frozenset[str]
    limits: frozenset[str]


def read_rules() -> Rules:
    rules = tomllib.loads((_HERE / "rules.toml").read_text(encoding="utf-8"))
    sorted_out = tomllib.loads((_HERE / "cross_overs.toml").read_text(encoding="utf-8"))
    return Rules(
        rules["lengths"]["file_lines"],
        rules["lengths"]["function_lines"],
        rules["most"],
        frozenset(rules["shared_class_names"]),
        rules["retired"],
        frozenset(rules["fit"]),
        frozenset(sorted_out["cross_overs"]),
        frozenset(sorted_out["limits"]),
    )


def broken(counts: Counts, rules: Rules) -> list[str]:
    """In words, one line each."""
    found = [f"{what}: {n}, at most {most} are allowed" for what, n, most in counts.figures(rules) if n > most]
    found += [
        f"{what}: {n}, while rules.toml allows {most}: take that down to {n}"
        for what, n, most in counts.figures(rules)
        if n < most
    ]
    found += [
        f"{counts.words[word]}: {word} is retired, say {say}" for word, say in rules.retired.items() if word in counts.words
    ]
    found += [f"{place}: sort it into cross_overs.toml, as a cross-over or as a limit" for place in counts.unsorted(rules)]
    gone = (rules.cross_overs | rules.limits) - counts.constants.keys()
    found += [f"cross_overs.toml: there is no {place}" for place in sorted(gone)]
    found += [f"rules.toml, fit: there is no {place}" for place in sorted(rules.fit - set(counts.fit))]
    return found
