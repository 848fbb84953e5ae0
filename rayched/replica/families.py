"""Metric families of several processes as one exposition needs them: each name once.

A process gives its metrics as prometheus-client's families, values that cross a process border; where two processes measure the
same thing, their samples differ in their labels.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric


def merged(*groups: Iterable[Metric]) -> list[Metric]:
    """One family of each name, with all its samples, in the order of the names' first appearance."""
    found: dict[str, Metric] = {}
    for group in groups:
        for family in group:
            if family.name not in found:
                found[family.name] = Metric(family.name, family.documentation, family.type, family.unit)
            found[family.name].samples.extend(family.samples)
    return list(found.values())
