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
    marked: str = "not cluster and not planted"
    """Which tests take part, as pytest's -m has it."""
    ignored: tuple[str, ...] = ()
    """Files of tests that take too long."""

    @property
    def files(self) -> list[Path]:
        found = [path for name in self.code for path in _python_files(ROOT / name)]
        return [path for path in found if path.name != "__init__.py"]

    @cached_property
    def mutants(self) -> list[Mutant]:
        return [mutant for path in self.files for mutant in mutants(str(path.relative_to(ROOT)), path.read_text())]


def _python_files(path: Path) -> list[Path]:
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


ROOMS: Final = {
    "plugins": Room(
        ("rayched/plugins",),
        (
            "tests/plugins",
            "tests/engine/test_grouped_scores.py",
            "tests/engine/test_plugin_facts.py",
            "tests/framework/test_lifecycle.py",
            "tests/queue/test_hint_index.py",
            "tests/scheduler/test_preemption.py",
        ),
    ),
    "queue": Room(
        ("rayched/queue",),
        (
            "tests/queue",
            "tests/transcripts",
            "tests/core/test_queue_audit.py",
            "tests/core/test_queue_metrics.py",
            "tests/core/test_queue_sessions.py",
        ),
        # The slow ones measure time.
        "not cluster and not slow and not planted",
    ),
    "engine": Room(
        ("rayched/engine", "rayched/framework", "rayched/snapshot", "rayched/scheduler"),
        (
            "tests/engine",
            "tests/framework",
            "tests/snapshot",
            "tests/scheduler",
            "tests/configuration/test_configuration_file.py",
            "tests/configuration/test_configuration_user_plugins.py",
            "tests/queue/test_hints.py",
        ),
    ),
    # The halves of these rooms that talk to etcd are shown by a real one.
    "elector": Room(
        ("leader",),
        ("tests/leader", "tests/transcripts"),
        "not slow and not planted",
        ignored=("tests/leader/test_hung_etcd.py",),
    ),
    "store": Room(
        ("rayched/store",),
        (
            "tests/store",
            "tests/core/test_events.py",
            "tests/core/test_fenced_writes.py",
            "tests/core/test_pods_alike.py",
            "tests/core/test_pods_by_bytes.py",
        ),
        "not slow and not planted",
    ),
    "admission": Room(
        (
            "rayched/api/admission.py",
            "rayched/api/defaulting.py",
            "rayched/api/validation",
            "rayched/server/admission/admission.py",
            "rayched/server/admission/applying.py",
            "rayched/server/watching/changes.py",
            "rayched/server/admission/creation.py",
            "rayched/server/admission/submissions.py",
            "rayched/server/admission/submission_records.py",
            "rayched/server/admission/edits.py",
            "rayched/server/admission/write_gate.py",
            "rayched/server/admission/write_limit.py",
            "rayched/server/admission/large_objects.py",
            "rayched/server/admission/attempt_delays.py",
        ),
        (
            "tests/api",
            "tests/server/test_admission_by_classes.py",
            "tests/server/test_alike_events.py",
            "tests/server/test_alike_submissions.py",
            "tests/server/test_applied_manifests.py",
            "tests/server/test_change_events.py",
            "tests/server/test_creations.py",
            "tests/server/test_creation_in_a_namespace.py",
            "tests/server/test_decoded_objects.py",
            "tests/server/test_edits.py",
            "tests/server/test_last_applied.py",
            "tests/server/test_limits_of_writes.py",
            "tests/server/test_nodes_and_admin.py",
            "tests/server/test_object_lives.py",
            "tests/server/test_reports.py",
            "tests/server/test_submission.py",
            "tests/server/test_watch_hub.py",
            "tests/server/test_write_gate.py",
            "tests/server/test_write_limit.py",
            "tests/server/test_large_objects.py",
            "tests/server/test_arrivals.py",
            "tests/server/test_attempt_delays.py",
        ),
        "not slow and not planted",
    ),
    "access": Room(
        ("rayched/access", "rayched/server/call_guard.py", "rayched/server/admission/object_judge.py"),
        ("tests/access",),
        ignored=("tests/access/test_planted_bugs_of_access.py",),
    ),
}
