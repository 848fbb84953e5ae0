"""`make house`: what the tree consists of, in counts, and whether it keeps its rules. Exit code 1 where a rule is broken.

Rules, their limits in rules.toml: the length of files and functions, a class name has one meaning, no retired word comes back,
and the engine's cross-over constants, its protocols and the statements of Fit's rule do not become more.

A cross-over constant says from where on another way is faster. Which constants are such is in cross_overs.toml; one whose words
say so, and that stands in neither list there, breaks a rule, too.
"""

from __future__ import annotations

import sys

from rayched.cli import printing
from tests.house.counts import read_tree
from tests.house.rules import broken, read_rules


def main() -> int:
    rules = read_rules()
    counts = read_tree(rules)
    rooms = [*counts.lines.items(), ("all", sum(counts.lines.values()))]
    printing.figures("lines a room", [(room, f"{lines:,}") for room, lines in rooms])
    printing.figures("what there is", [(what, _limited(found, limit)) for what, found, limit in counts.figures(rules)])
    print("longest:", ", ".join(f"{name} ({lines})" for lines, name in [*counts.files[:3], *counts.functions[:3]]))
    print("class names with several meanings:", ", ".join(counts.classes) or "none")
    wrong = broken(counts, rules)
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


def _limited(found: int, limit: int) -> str:
    return f"{found:,}, at most {limit:,}"


if __name__ == "__main__":
    sys.exit(main())
