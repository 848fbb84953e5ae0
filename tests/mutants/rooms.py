"""The rooms whose mutants are counted, and the tests that are to kill them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant, mutants

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Room:
    code: tuple[str, ...]
    """Files and folders, from the root of the repository."""
    tests: tuple[str, ...]
    marked: str = "not cluster and not slow and not planted"
    """Which tests take part, as pytest's -m has it."""
    ignored: tuple[str, ...] = ()
    """Files of tests that take too long."""

    @property
    def files(self) -> list[Path]:
        found = [
            path for name in self.code for path in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).glob("*.py")))
        ]
        return [path for path in found if path.name != "__init__.py"]

    @cached_property
    def mutants(self) -> list[Mutant]:
        return [mutant for path in self.files for mutant in mutants(str(path.relative_to(ROOT)), path.read_text())]


ROOMS: Final = {
    "plugins": Room(
        ("rayched/plugins",), ("tests/plugins", "tests/queue/test_hint_index.py", "tests/scheduler/test_preemption.py")
    ),
    "queue": Room(
        ("rayched/queue",),
        (
            "tests/queue",
            "tests/actors/test_queue_audit.py",
            "tests/actors/test_queue_metrics.py",
            "tests/actors/test_queue_sessions.py",
        ),
    ),
    "engine": Room(
        ("rayched/framework", "rayched/snapshot", "rayched/scheduler"), ("tests/framework", "tests/snapshot", "tests/scheduler")
    ),
    # The halves of these rooms that talk to etcd are shown by a real one.
    "elector": Room(("leader",), ("tests/leader",), "not slow and not planted", ignored=("tests/leader/test_hung_etcd.py",)),
    "store": Room(("rayched/store",), ("tests/store", "tests/actors/test_pods_by_bytes.py"), "not slow and not planted"),
    "admission": Room(
        (
            "rayched/api/admission.py",
            "rayched/api/defaulting.py",
            "rayched/api/validation",
            "rayched/server/admission.py",
            "rayched/server/applying.py",
            "rayched/server/changes.py",
            "rayched/server/creation.py",
            "rayched/server/edits.py",
            "rayched/server/write_gate.py",
            "rayched/server/write_limit.py",
        ),
        (
            "tests/api",
            "tests/server/test_alike_submissions.py",
            "tests/server/test_creation_in_a_namespace.py",
            "tests/server/test_last_applied.py",
            "tests/server/test_nodes_and_admin.py",
            "tests/server/test_object_lives.py",
            "tests/server/test_submission.py",
            "tests/server/test_write_gate.py",
            "tests/server/test_write_limit.py",
        ),
        "not slow and not planted",
    ),
}
