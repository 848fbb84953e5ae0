"""docs/metrics.md has every metric, with the type and the labels that a scrape shows, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.replica.metric_names import METRICS, NODE_METRICS, NODE_RESOURCE_METRICS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*)\| (.+) \|$", re.MULTILINE)


def test_the_page_on_metrics_has_all_that_a_scrape_shows() -> None:
    rows = ROW.findall(PAGE.read_text())
    documented = {name: (kind, {label.strip() for label in labels.split(",")} - {""}) for name, kind, labels, _ in rows}
    assert len(documented) == len(rows), "a metric is documented twice"
    everything = METRICS | NODE_METRICS | NODE_RESOURCE_METRICS
    assert documented == {name: (kind, labels) for name, (kind, labels, _) in everything.items()}
    assert all(meaning.endswith(".") for *_, meaning in rows)
