"""Tolerations that cover a taint of some node count, others do not; with too many taints all of them do."""

from __future__ import annotations

import pytest

from rayched.snapshot import present_taints
from rayched.snapshot.present_taints import PresentTaints
from rayched.v1.core_pb2 import Taint, Toleration

HOT = Taint(key="hot", value="yes", effect="NoSchedule")
COLD = Taint(key="cold", value="no", effect="NoExecute")


def counting(known: PresentTaints, *tolerations: Toleration, among: list[Taint] | None = None) -> list[str]:
    return [f"{one.key} {one.operator}" for one in known.counting(tolerations, among)]


OF_HOT, OF_COLD = Toleration(key="hot", operator="Exists"), Toleration(key="cold", operator="Exists")
OF_ALL, OF_CORDON = Toleration(operator="Exists"), Toleration(key="node.kubernetes.io/unschedulable", operator="Exists")
OF_OTHER_VALUE = Toleration(key="hot", operator="Equal", value="no")


def test_tolerations_count_that_cover_a_taint_that_any_node_has_or_had() -> None:
    known = PresentTaints()
    tolerations = OF_HOT, OF_COLD, OF_ALL, OF_CORDON, OF_OTHER_VALUE
    cordon = "node.kubernetes.io/unschedulable Exists"
    assert counting(known, *tolerations) == [" Exists", cordon], "a cordoned node is known from the start"
    before = known.revision
    known.add((HOT,))
    assert known.since(before) == [HOT] and known.revision > before
    assert counting(known, *tolerations) == ["hot Exists", " Exists", cordon]
    known.add((HOT, Taint(key="hot", value="no", effect="NoSchedule")))
    assert counting(known, *tolerations) == ["hot Exists", " Exists", cordon, "hot Equal"]
    assert counting(known, *tolerations, among=[HOT]) == ["hot Exists", " Exists"]
    assert counting(known, *tolerations, among=[]) == []


def test_a_taint_that_is_known_changes_nothing() -> None:
    known = PresentTaints()
    known.add((HOT, COLD))
    before = known.revision
    known.add((COLD, HOT))
    assert known.revision == before and known.since(before) == []


def test_with_too_many_taints_every_toleration_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(present_taints, "TAINTS_MAX", 2)
    known = PresentTaints()
    known.add((HOT,))
    assert counting(known, OF_COLD) == []
    known.add((COLD,))
    assert known.are_all and known.since(0) is None
    assert counting(known, OF_COLD, Toleration(key="nobody has", operator="Exists")) == ["cold Exists", "nobody has Exists"]
