"""Which changes are made to a source, and which never."""

from __future__ import annotations

import pytest

from tests.mutants.operators import mutants
from tests.mutants.rooms import ROOMS, ROOT

HEAD = "def f(a, b, c):\n    "


def becomes(line: str, head: str = HEAD) -> set[str]:
    return {mutant.change[1] for mutant in mutants("x.py", f"{head}{line}\n") if mutant.line == head.count("\n") + 1}


@pytest.mark.parametrize(
    ("line", "others"),
    [
        ("return a < b", {"return (a <= b)", "return (a >= b)"}),
        ("return len(a) >= EVENTS_MAX", {"return (len(a) < EVENTS_MAX)"}),
        (
            "return 0 < len(a) < EVENTS_MAX",
            {
                *(f"return ({one} len(a) < EVENTS_MAX)" for one in ("0 <=", "0 >=")),
                "return 1 < len(a) < EVENTS_MAX",
                "return (0 < len(a) >= EVENTS_MAX)",
            },
        ),
        ("return a > limits.LABELS_MAX", {"return (a >= limits.LABELS_MAX)", "return (a <= limits.LABELS_MAX)"}),
        ("return zip(a, b, strict=True)", set()),
        ("return a is None", {"return (a is not None)"}),
        ("return a and b", {"return (a or b)", "return a", "return b"}),
        ("return not a", {"return a"}),
        ("return a + 1", {"return (a - 1)", "return a + 2"}),
        ("return True", {"return False"}),
        ("return min(a)", {"return (max(a))"}),
        ("return a if b else c", {"return a", "return c"}),
        ("return [x for x in a if x]", {"return ([x for x in a])"}),
        ("a.b = c", {"pass"}),
        ("a += b", {"a -= b", "pass"}),
        ("a += 1", {"a -= 1", "a += 2", "pass"}),
        ("self._revision += 1", {"self._revision -= 1", "pass"}),
        ("self._position = -1", {"self._position = 1", "pass"}),
        ("self._position = -2", {"self._position = 2", "self._position = -3", "pass"}),
        ("self._best = -1", {"self._best = 1", "self._best = -2", "pass"}),
        ("versions += 1", {"versions -= 1", "versions += 2", "pass"}),
        ("self.version += a < b", {"self.version -= a < b", "self.version += (a <= b)", "self.version += (a >= b)", "pass"}),
        ("a(b)", {"pass"}),
        ("raise ValueError(1)", {"pass"}),
        ("return", {"pass"}),
        ("if a: b()", {"if True: b()", "if False: b()", "if a: pass"}),
    ],
)
def test_each_kind_of_statement_has_its_changes(line: str, others: set[str]) -> None:
    assert becomes(line) == others


@pytest.mark.parametrize(
    "line",
    [
        "assert a < 1",
        'return f"{a + 1}"',
        "log.warning('%d', a + 1)",
        "self._log.debug(a)",
        "a: Final = b",
        "return 'text'",
        "import b",
    ],
)
def test_texts_assertions_and_logs_are_left_alone(line: str) -> None:
    assert becomes(line) == set()


@pytest.mark.parametrize(
    "line",
    [
        "LIMIT: Final = 4 * 1024",
        "def f(a: Literal[1] | None) -> int | None: ...",
        "class A(Enum): B = 1",
        "@dataclass(slots=True)\nclass A: ...",
    ],
)
def test_limits_annotations_and_decorators_are_left_alone(line: str) -> None:
    assert mutants("x.py", f"{line}\n") == []


def test_a_change_stays_where_it_is_in_a_line_of_wide_characters() -> None:
    assert becomes('return "ä" + (a == b)') == {'return "ä" + ((a != b))', 'return ("ä" - (a == b))'.replace('"', "'")}


@pytest.mark.parametrize("room", ROOMS)
def test_the_mutants_of_each_room_are_valid_and_differ(room: str) -> None:
    found = ROOMS[room].mutants
    for mutant in found[:: len(found) // 100]:
        compile(mutant.text, mutant.file, "exec", dont_inherit=True)
        assert mutant.text != mutant.source.decode()
    assert len({(mutant.file, mutant.begin, mutant.end, mutant.replacement) for mutant in found}) == len(found)


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_room_names_is_there_and_is_named_once(room: str) -> None:
    for names in (ROOMS[room].code, ROOMS[room].tests, ROOMS[room].ignored):
        assert sorted(set(names)) == sorted(names)
        assert all((ROOT / name).exists() for name in names)
