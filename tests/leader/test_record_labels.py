"""Labels of the record: whoever writes it keeps those of others and restores its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leader import events as ev
from leader.record import LeaderRecord, RecordError
from tests.leader.model import Desk, a_config, a_record, held_by, leading


def labels_of(desk: Desk) -> dict[str, str]:
    assert desk.store.record is not None
    return dict(desk.store.record.record.labels)


def change_labels(desk: Desk, **labels: str) -> None:
    """Somebody else does, without being a candidate."""
    assert desk.store.record is not None
    desk.store.put(replace(desk.store.record.record, labels=tuple(labels.items())))
    desk.watch()


@pytest.mark.row("LE-36")
def test_a_renewal_keeps_labels_that_are_not_the_leaders() -> None:
    desk = leading()
    change_labels(desk, team="storage")
    desk.pass_time(2.5)
    assert desk.leads and desk.calls[-1] == "renew" and labels_of(desk) == {"team": "storage"}


@pytest.mark.row("LE-37")
def test_a_renewal_restores_the_own_label_and_keeps_the_foreign_one() -> None:
    desk = leading(config=a_config(labels=(("app", "rayched"),)))
    assert labels_of(desk) == {"app": "rayched"}
    change_labels(desk, app="other", team="storage")
    desk.pass_time(2.5)
    assert desk.leads and labels_of(desk) == {"app": "rayched", "team": "storage"}


def test_foreign_labels_outlive_a_release_and_a_takeover() -> None:
    desk = leading()
    change_labels(desk, team="storage")
    desk.do(ev.StopRequested())
    assert desk.store.record is not None and desk.store.record.record.holder == "" and labels_of(desk) == {"team": "storage"}
    other = Desk(desk.store, a_config(identity="bar"), instance="that").start()
    assert other.leads and labels_of(other) == {"team": "storage"}


def test_a_takeover_from_a_record_without_labels_sets_the_own() -> None:
    desk = Desk(held_by("bing"), a_config(labels=(("app", "rayched"),))).start().pass_time(10.5)
    assert desk.leads and labels_of(desk) == {"app": "rayched"}


def test_labels_that_are_no_texts_make_a_record_unreadable() -> None:
    with pytest.raises(RecordError, match="labels"):
        LeaderRecord.from_json(b'{"holder": "a", "labels": {"app": 1}}')
    assert LeaderRecord.from_json(a_record("a", labels=(("b", "2"), ("a", "1"))).to_json()).labels == (("a", "1"), ("b", "2"))
