"""How tests spread over processes: `pytest -n auto` runs two more than there are processors, as most tests wait.

The unit is a file, so that what a file sets up is set up once; the folders of `TOGETHER` are units too. Units that take long come
first, so that no process is still at one when the others have ended. Whatever runs beside a test is of another unit: a test may
count and kill the processes that it started itself, and no others.

Where there are several, one process takes the files that only compute, at low priority: it has the processors while the tests of
the others wait, and is in nobody's way else. What is left of these files when the others have done theirs is shared.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT: Final = Path(__file__).parents[1]
TOGETHER: Final = ("tests/cli", "tests/gateway", "tests/replica/one_cluster")
"""The files of a folder use one cluster. Those that `LONG` names have another, and are units of their own."""
COMPUTING: Final = frozenset(
    f"tests/{room}"
    for room in (
        *("access", "api", "audit", "configuration", "conformance", "core", "docs", "engine", "framework", "plugins", "queue"),
        *("scheduler", "snapshot", "transcripts"),
    )
)
"""Folders whose files start no process and wait for nothing, but those with the marker `cluster`."""
_NICE: Final = 5
_PENDING_MIN: Final = 2
_IS_NICE: Final = pytest.StashKey[bool]()
LONG: Final = (
    "tests/cli",
    "tests/gateway",
    "tests/replica/test_bad_starts.py",
    "tests/nodes/test_node_pressure.py",
    "tests/nodes/test_logs.py",
    "tests/nodes/test_cut_off.py",
    "tests/replica/test_certificates.py",
    "tests/replica/test_handover.py",
    "tests/replica/test_takeover.py",
    "tests/nodes/test_ray_guard.py",
    "tests/replica/test_actors_are_replaced.py",
    "tests/replica/test_no_process_is_left.py",
    "tests/replica/test_lost_etcd.py",
    "tests/replica/one_cluster",
    "tests/page/test_page_served.py",
    "tests/actors/test_with_ray.py",
    "tests/controllers/test_space_keeper.py",
    "tests/gateway/test_sixty_commands.py",
    "tests/page/test_over_failover.py",
    "tests/nodes/test_ray_connection.py",
    "tests/deploy/test_compose_runs.py",
    "tests/plugins/test_topology_against_naive.py",
    "tests/simulation/test_simulation.py",
    "tests/replica/test_drain.py",
    "tests/replica/test_audit_log.py",
    "tests/replica/test_observability.py",
    "tests/replica/test_gateway_beside_a_replica.py",
    "tests/replica/test_workloads.py",
    "tests/replica/test_lost_nodes.py",
    "tests/replica/test_backup_and_restore.py",
    "tests/leader/test_hung_etcd.py",
    "tests/deploy/test_wheel.py",
    "tests/nodes/test_node_keeps_its_word.py",
    "tests/nodes/test_node_restarts.py",
    "tests/plugins/test_any_rows.py",
    "tests/plugins/test_hints.py",
    "tests/hardening/test_hardening.py",
    "tests/replica/test_room_for_events.py",
    "tests/replica/test_tokens.py",
    "tests/testing/test_template.py",
    "tests/chaos/test_watch_streams.py",
    "tests/controllers/test_node_controller.py",
    "tests/deploy/test_monitoring.py",
)
"""Units of fifteen seconds and more beside others, the longest first."""


def unit_of(node_id: str) -> str:
    """The unit of a test: the name of its file or folder, from the root of the repository."""
    file = node_id.split("::", 1)[0]
    if file in LONG:
        return file
    return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


@functools.cache
def computes(unit: str) -> bool:
    """Whether its tests only compute."""
    return unit.rpartition("/")[0] in COMPUTING and "mark.cluster" not in (ROOT / unit).read_text(encoding="utf-8")


def next_unit(waiting: Iterable[str], *, computing: bool) -> str | None:
    """The first unit for a process. One that computes takes nothing else; the others come to that last. None: it is done."""
    units = list(waiting)
    found = next((unit for unit in units if computes(unit) is computing), None)
    return found if found is not None or computing or not units else units[0]


def computing_process(count: int) -> str:
    """The name of the process that computes, of so many; empty: none does."""
    return f"gw{count - 1}" if count > 1 else ""


def pytest_configure(config: pytest.Config) -> None:
    if missing := [unit for unit in (*TOGETHER, *LONG) if not (ROOT / unit).exists()]:
        raise pytest.UsageError(f"{__name__}: there is no {', '.join(missing)}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {unit: rank for rank, unit in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(unit_of(item.nodeid), len(ranks)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    here: dict[str, Any] = getattr(item.config, "workerinput", {})
    if not here or here["workerid"] != computing_process(here["workercount"]) or item.config.stash.get(_IS_NICE, False):
        return
    if computes(unit_of(item.nodeid)):
        item.config.stash[_IS_NICE] = True
        os.nice(_NICE)


def pytest_xdist_auto_num_workers() -> int:
    return (os.cpu_count() or 1) + 2


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _Units(config, log)


class _Units(LoadScopeScheduling):
    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # The order is that of the tests, not that of how many there are in a unit.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """As the base has it, for a process that has died: its test is not run again, where it would die of it again."""
        crashed = None
        for tests in self.assigned_work[node].values():
            crashed = next((test for test, is_done in tests.items() if not is_done), None)
            if crashed is not None:
                tests[crashed] = True
                break
        # A unit without a test left would be given to a process that then waits for ever to hear of the next one.
        self.assigned_work[node] = {unit: tests for unit, tests in self.assigned_work[node].items() if not all(tests.values())}
        super().remove_node(node)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        # Until it has two tests: a process runs one only when it knows of another, or that there is none.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= _PENDING_MIN:
            if self._next_unit(node) is None:
                node.shutdown()
            else:
                self._assign_work_unit(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        # Where all that was chosen does not compute, the process that would is one like the others.
        unit = self._next_unit(node) or next(iter(self.workqueue))
        self.workqueue.move_to_end(unit, last=False)
        # One that has just died takes nothing: it has the unit until its death is told, and then others get it.
        with contextlib.suppress(OSError):
            super()._assign_work_unit(node)

    def _next_unit(self, node: WorkerController) -> str | None:
        return next_unit(self.workqueue, computing=node.gateway.id == computing_process(self.numnodes))
