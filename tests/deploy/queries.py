"""What a PromQL expression asks for: names of metrics, and the labels that it selects by. A sieve, not a parser."""

from __future__ import annotations

import re

WORDS = {
    "abs",
    "absent",
    "and",
    "avg",
    "by",
    "changes",
    "count",
    "histogram_quantile",
    "ignoring",
    "increase",
    "label_values",
    "max",
    "min",
    "min_over_time",
    "on",
    "or",
    "rate",
    "sum",
    "unless",
    "without",
}
"""PromQL's own, and Grafana's, as far as they are used."""
_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
_GROUPED = re.compile(r"\b(by|without|on|ignoring)\s*\(([^)]*)\)")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')


def metrics(expression: str) -> set[str]:
    """All names in it that are metrics."""
    text = re.sub(r"label_values\((\w+), \w+\)", r"\1", expression)
    text = _GROUPED.sub("", re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", text))
    return set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", text)) - WORDS


def selected(expression: str) -> list[tuple[str, str, str]]:
    """Metric, label, value of each matcher."""
    return [
        (name, label, value) for name, matchers in _SELECTOR.findall(expression) for label, value in _MATCHER.findall(matchers)
    ]


def grouped(expression: str) -> set[str]:
    """The labels that it groups by."""
    return {label.strip() for _, labels in _GROUPED.findall(expression) for label in labels.split(",")}
