"""Which revision is compacted to: by moments that lie in etcd, whoever wrote them and however its clock goes."""

from __future__ import annotations

import pytest

from rayched.controllers.compaction import Moment, compactable, moments_in, value_of, with_moment


def test_moments_lie_in_etcd_as_they_were() -> None:
    moments = [Moment(7, 100.5), Moment(9, 400.0)]
    assert moments_in(value_of(moments)) == moments
    assert moments_in(b"\xff\xff nothing of ours") == []


@pytest.mark.parametrize(
    ("moments", "now", "added"),
    [
        ([], 1000.0, [Moment(50, 1000.0)]),
        ([Moment(40, 800.0)], 1000.0, None),
        ([Moment(40, 700.0)], 1000.0, [Moment(40, 700.0), Moment(50, 1000.0)]),
        # A clock that was wrong, and an etcd that was restored.
        ([Moment(40, 9000.0)], 1000.0, [Moment(50, 1000.0)]),
        ([Moment(4000, 900.0)], 1000.0, [Moment(50, 1000.0)]),
    ],
)
def test_a_moment_is_added_every_five_minutes_and_what_cannot_be_true_goes(
    moments: list[Moment], now: float, added: list[Moment] | None
) -> None:
    assert with_moment(moments, 50, now) == added


def test_the_newest_moment_of_ten_minutes_is_compacted_to() -> None:
    moments = [Moment(10, 0.0), Moment(20, 300.0), Moment(30, 600.0)]
    assert [compactable(moments, 99, now) for now in (599.0, 600.0, 899.0, 900.0, 1200.0)] == [0, 10, 10, 20, 30]
    assert compactable(moments, 25, 1200.0) == 20


def test_moments_do_not_grow_without_end() -> None:
    moments: list[Moment] = []
    for turn in range(100):
        moments = with_moment(moments, turn, turn * 300.0) or moments
    assert len(moments) == 8
    assert compactable(moments, 99, 99 * 300.0) == 97
