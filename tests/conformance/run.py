"""Holds rayched against recorded cases of kube-scheduler: `python -m tests.conformance.run [DIR] [options]`.

Reads every *.jsonl and *.jsonl.gz below DIR (by default the cases kept here), runs them through the engine that schedules in
production, and prints how many cases of each topic agree, how far each plugin's answers do, and what differs first. `--shards 3`
takes every column from three workers that have nothing but their rows; `off`, the default, evaluates all of them in one place.
`--fix-upstream-bugs` turns fixUpstreamBugs on in every profile and compares to `expectedIfFixed` where a case has it.

What nobody here understands is named: kinds of cases, and fields that no comparison reads. Exit code 0 where all cases agree, 1
where one differs, is of an unknown kind or holds nothing to compare, or where there is none, 2 where a file is no file of cases;
the others are judged all the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.conformance.cases import DIRECTORY, Unreadable, files, read, with_fixes
from tests.conformance.comparisons import ASPECTS
from tests.conformance.coverage import unknown_fields
from tests.conformance.hint_comparisons import HINT
from tests.conformance.judgement import Judgement, Verdict, judge

FIRST_SHOWN: Final = 10
VALUE_SHOWN_MAX: Final = 600
"""Characters of a differing value."""
WIDTH_OF_A_PIPE: Final = 130


class Report:
    """Counts judgements."""

    def __init__(self, first_shown: int) -> None:
        self._first_shown = first_shown
        self._topics: dict[str, Counter[Verdict]] = defaultdict(Counter)
        self._plugins: dict[str, dict[str, Counter[bool]]] = defaultdict(lambda: defaultdict(Counter))
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._differing: list[Judgement] = []
        self.unreadable: list[str] = []
        """What is no file of cases, and where."""
        self._fields: Counter[tuple[str, str]] = Counter()

    def add(self, judged: Judgement) -> None:
        topic = judged.case.topic
        self._topics[topic][judged.verdict] += 1
        if judged.verdict is Verdict.NOT_RUN:
            self._reasons[topic, judged.reason] += 1
        elif judged.verdict is Verdict.DIFFERS:
            self._differing.append(judged)
        for name in unknown_fields(judged.case):
            self._fields[topic, name] += 1
        for one in judged.comparisons:
            if one.plugin:
                self._plugins[one.plugin][one.aspect][one.agrees] += 1

    def count(self, verdict: Verdict) -> int:
        return sum(counts[verdict] for counts in self._topics.values())

    @property
    def all_agree(self) -> bool:
        return self.count(Verdict.AGREES) > 0 and not self._differing and not self.count(Verdict.NOT_RUN)

    @property
    def summary(self) -> str:
        """Why not all agree."""
        counted = (
            (len(self._differing), "cases differ"),
            (self.count(Verdict.NOT_RUN), "cases could not be judged"),
            (int(not self.count(Verdict.AGREES) and not self._differing), "no case was run"),
        )
        return ", ".join(text if text.startswith("no ") else f"{count} {text}" for count, text in counted if count)

    def print(self, console: Console) -> None:
        console.print(self._topic_table())
        if self._plugins:
            console.print(self._plugin_table())
        for (topic, reason), count in sorted(self._reasons.items()):
            console.print(f"not run: {count} of {escape(topic)}: {escape(reason)}", highlight=False)
        for (topic, name), count in sorted(self._fields.items()):
            console.print(f"not compared: {name} of {count} {escape(topic)}: nobody here knows that field", highlight=False)
        for judged in self._differing[: self._first_shown]:
            difference = judged.first_difference
            assert difference is not None
            console.print(f"[bold]{escape(judged.case.id)}[/bold] ({escape(judged.case.topic)}): {escape(difference.what)}")
            console.print(f"  found    {_shown(difference.found)}", highlight=False)
            console.print(f"  recorded {_shown(difference.recorded)}", highlight=False)
        if len(self._differing) > self._first_shown:
            console.print(f"{len(self._differing) - self._first_shown} more cases differ")

    def _topic_table(self) -> Table:
        table = Table("topic", "cases", "agree", "differ", "not run", title="recorded cases of kube-scheduler 1.34.1")
        for column in table.columns[1:]:
            column.justify = "right"
        for topic, counts in sorted(self._topics.items()):
            last = topic == max(self._topics)
            table.add_row(topic, *_cells(counts), style="red" if counts[Verdict.DIFFERS] else None, end_section=last)
        table.add_row("all", *_cells(sum(self._topics.values(), Counter[Verdict]())), style="bold")
        return table

    def _plugin_table(self) -> Table:
        table = Table("plugin", *ASPECTS, HINT, title="answers of plugins that agree / that were compared")
        for column in table.columns[1:]:
            column.justify = "right"
        for plugin, aspects in sorted(self._plugins.items()):
            table.add_row(plugin, *(_agreeing(aspects.get(aspect)) for aspect in (*ASPECTS, HINT)))
        return table


def run(paths: Iterable[Path], n_shards: int, report: Report, *, fixed: bool = False) -> None:
    """A file that cannot be read, or not to its end, is noted, and the others go on."""
    for path in paths:
        try:
            for case in read(path):
                report.add(judge(with_fixes(case) if fixed else case, n_shards))
        except Unreadable as problem:
            report.unreadable.append(str(problem))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="conformance", description="hold rayched against recorded cases of kube-scheduler")
    parser.add_argument("directory", nargs="?", type=Path, default=DIRECTORY, help="where the recorded cases lie")
    parser.add_argument("--shards", type=_shard_count, default=0, metavar="N|off", help="workers that every column comes from")
    parser.add_argument("--fix-upstream-bugs", action="store_true", help="compare to what a scheduler without its bugs answers")
    parser.add_argument("--first", type=int, default=FIRST_SHOWN, metavar="N", help="differing cases that are shown")
    given = parser.parse_args(arguments)
    # A pipe has no width of its own.
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_A_PIPE)
    report, began = Report(given.first), time.monotonic()
    paths = files(given.directory)
    run(paths, given.shards, report, fixed=given.fix_upstream_bugs)
    report.print(console)
    workers = f"{given.shards} workers forced on" if given.shards else "workers off"
    bugs = ", upstream bugs fixed" if given.fix_upstream_bugs else ""
    console.print(
        f"{len(paths)} files below {given.directory}, {workers}{bugs}, {time.monotonic() - began:.1f} s", highlight=False
    )
    if not report.all_agree:
        console.print(report.summary, highlight=False)
    for problem in report.unreadable:
        print(problem, file=sys.stderr)
    return 2 if report.unreadable else 0 if report.all_agree else 1


def _shard_count(text: str) -> int:
    if text == "off":
        return 0
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: a number of workers from 1 up, or off")


def _cells(counts: Counter[Verdict]) -> tuple[str, ...]:
    return tuple(str(count) for count in (sum(counts.values()), *(counts[verdict] for verdict in Verdict)))


def _agreeing(counts: Counter[bool] | None) -> str:
    return "" if counts is None else f"{counts[True]}/{sum(counts.values())}"


def _shown(value: object) -> str:
    text = repr(value)
    return escape(text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]} ...")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
