"""Metric families of several processes as one exposition needs them: each name once.

A process gives its metrics as prometheus-client's families, values that cross a process border; where two processes measure
parts of the same thing under the same labels, their values are added.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.samples import Sample


def merged(*groups: Iterable[Metric]) -> list[Metric]:
    """One family of each name, with all its samples, in the order of the names' first appearance."""
    found: dict[str, Metric] = {}
    for group in groups:
        for family in group:
            if family.name not in found:
                found[family.name] = Metric(family.name, family.documentation, family.type, family.unit)
            found[family.name].samples.extend(family.samples)
    for family in found.values():
        family.samples = _added(family.samples)
    return list(found.values())


def _added(samples: list[Sample]) -> list[Sample]:
    """One of each name with these labels, in their order."""
    by_labels: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        key = sample.name, tuple(sorted(sample.labels.items()))
        known = by_labels.get(key)
        by_labels[key] = sample if known is None else known._replace(value=known.value + sample.value)
    return list(by_labels.values())
