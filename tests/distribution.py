"""How tests spread over processes: `pytest -n auto` runs one more at a time than there are processors, as most tests wait.

The unit is a file, so that what a file sets up is set up once; the folders of `TOGETHER` are units too. Units that take long come
first, so that no process is still at one when the others have ended. Whatever runs beside a test is of another unit: a test may
count and kill the processes that it started itself, and no others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ROOT: Final = Path(__file__).parents[1]
TOGETHER: Final = ("tests/cli",)
"""The files of a folder use one cluster."""
LONG: Final = (
    "tests/cli",
    "tests/deploy/test_wheel.py",
    "tests/replica/test_actors_are_replaced.py",
    "tests/chaos/test_watch_streams.py",
    "tests/leader/test_hung_etcd.py",
    "tests/controllers/test_node_controller.py",
    "tests/replica/test_handover.py",
    "tests/replica/test_drain.py",
    "tests/replica/test_lost_nodes.py",
    "tests/replica/test_no_process_is_left.py",
    "tests/replica/test_workers_decide_the_same.py",
    "tests/replica/test_backup_and_restore.py",
    "tests/simulation/test_planted_bugs_are_caught.py",
    "tests/simulation/test_simulation.py",
    "tests/deploy/test_monitoring.py",
    "tests/actors/test_with_ray.py",
)
"""Units of ten seconds and more, the longest first."""


def unit_of(node_id: str) -> str:
    """The unit of a test: the name of its file or folder, from the root of the repository."""
    file = node_id.split("::", 1)[0]
    return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


def pytest_configure(config: pytest.Config) -> None:
    if missing := [unit for unit in (*TOGETHER, *LONG) if not (ROOT / unit).exists()]:
        raise pytest.UsageError(f"{__name__}: there is no {', '.join(missing)}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {unit: rank for rank, unit in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(unit_of(item.nodeid), len(ranks)))


def pytest_xdist_auto_num_workers() -> int:
    return (os.cpu_count() or 1) + 1


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _Units(config, log)


class _Units(LoadScopeScheduling):
    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # The order is that of the tests, not that of how many there are in a unit.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
