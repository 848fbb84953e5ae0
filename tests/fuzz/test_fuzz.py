"""`make fuzz`: equal seeds give equal calls, each demand can be missed, and a small run meets all of them."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from pathlib import Path

import grpc
import pytest

from leader.channel import open_channel
from rayched.gateway import open_api
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.io.client import StoreClient
from tests.fuzz.callers import ROLES
from tests.fuzz.calls import FuzzedCall, FuzzedCalls
from tests.fuzz.gateway import with_names
from tests.fuzz.history import EtcdHistory
from tests.fuzz.judging import GROWTH_BYTES_MAX, FuzzOutcome, FuzzReport, answers, fault_of, unasked
from tests.fuzz.run import fuzz, fuzz_all
from tests.fuzz.session import FuzzSession
from tests.fuzz.values import NODES

Code = grpc.StatusCode
CALL = FuzzedCall(7, "viewer", "/rayched.v1.Submission/Get", (b"",))


def some(seed: int, count: int) -> list[FuzzedCall]:
    return list(itertools.islice(FuzzedCalls(seed), count))


def test_equal_seeds_give_equal_calls_and_others_others() -> None:
    assert some(3, 300) == some(3, 300) != some(4, 300)


def test_every_method_is_called_by_every_role_with_bytes_that_are_messages_and_bytes_that_are_none() -> None:
    calls = some(1, 6_000)
    seen = Counter(call.path for call in calls)
    assert set(FuzzedCalls(1).paths) <= set(seen)
    assert {call.role for call in calls} == {role.name for role in ROLES}
    assert any(not call.is_known for call in calls) and any(call.is_compressed for call in calls)
    assert any(call.metadata for call in calls) and any(len(call.messages) > 1 for call in calls)
    assert any(len(message) > 1_300_000 for call in some(2, 6_000) for message in call.messages)


@pytest.mark.parametrize(
    ("code", "is_wrong"),
    [
        (Code.INTERNAL, True),
        (Code.UNKNOWN, True),
        (Code.DATA_LOSS, True),
        (Code.UNIMPLEMENTED, True),
        (Code.UNAVAILABLE, True),
        (Code.DEADLINE_EXCEEDED, True),
        (Code.PERMISSION_DENIED, False),
        (Code.INVALID_ARGUMENT, False),
        (Code.RESOURCE_EXHAUSTED, False),
        (Code.OK, False),
    ],
)
def test_a_code_that_nobody_should_get_is_a_fault(code: grpc.StatusCode, is_wrong: bool) -> None:
    report = FuzzReport()
    report.add(FuzzOutcome(CALL, code, "why"))
    assert bool(report.faults.get("codes")) is is_wrong
    assert any(line.startswith("MISSED") for line in report.table()) is is_wrong


def test_what_is_no_method_is_unimplemented_and_nothing_else() -> None:
    unknown = FuzzedCall(1, "admin", "/rayched.v1.Submission/Nothing", (b"",))
    assert fault_of(FuzzOutcome(unknown, Code.UNIMPLEMENTED)) == ""
    assert "is no method" in fault_of(FuzzOutcome(unknown, Code.OK))
    assert fault_of(FuzzOutcome(FuzzedCall(1, "admin", CALL.path, (b"",), is_compressed=True), Code.UNIMPLEMENTED)) == ""
    stream = FuzzedCall(1, "admin", "/rayched.v1.Watch/Watch", (b"",), streams_out=True)
    assert fault_of(FuzzOutcome(stream, Code.UNAVAILABLE)) == "" and fault_of(FuzzOutcome(stream, None)) == ""


def test_that_a_node_has_no_agent_who_could_say_is_an_answer_of_that_method_alone() -> None:
    asked = FuzzedCall(1, "admin", "/rayched.v1.Usage/GetUsage", (b"",))
    told = "Node a: the agent of node a has no stream to this replica"
    assert fault_of(FuzzOutcome(asked, Code.UNAVAILABLE, told)) == ""
    for call, code, details in (
        (CALL, Code.UNAVAILABLE, told),
        (asked, Code.UNAVAILABLE, "Socket closed"),
        (asked, Code.DEADLINE_EXCEEDED, told),
    ):
        assert "had no answer" in fault_of(FuzzOutcome(call, code, details))


def test_what_is_always_written_is_nobodys_doing() -> None:
    keys = ["/rayched/leader/record", "/rayched/heartbeats/node-1", "/rayched/cluster/pods/a/b", "/rayched/events/a/b"]
    assert unasked(keys) == ["/rayched/cluster/pods/a/b"]


def test_memory_that_grows_after_the_first_half_is_a_fault() -> None:
    for growth, is_wrong in ((0, False), (GROWTH_BYTES_MAX // 2, False), (2 * GROWTH_BYTES_MAX, True)):
        report = FuzzReport(resident=[100, 300 << 20, 310 << 20, 300 << 20, (300 << 20) + growth, (300 << 20) + growth])
        report.judge_memory()
        assert bool(report.faults.get("memory")) is is_wrong


class WritingSession(FuzzSession):
    """In place of a replica that writes although it refuses."""

    def __init__(self, history: EtcdHistory, key: str) -> None:
        self._history, self._key = history, key
        self.report = FuzzReport()
        self.writes = StoreClient(open_channel(history.endpoints))

    def send(self, call: FuzzedCall) -> FuzzOutcome:
        self.writes.put(self._key.encode(), b"")
        return FuzzOutcome(call, Code.PERMISSION_DENIED)


@pytest.mark.cluster
@pytest.mark.parametrize(("name", "is_wrong"), [("cluster/pods/a/b", True), ("leader/record", False)])
def test_a_refused_call_that_writes_is_a_fault(etcd: EtcdServer, etcd_root: str, name: str, is_wrong: bool) -> None:
    with EtcdHistory([etcd.endpoint], etcd_root) as history:
        session = WritingSession(history, f"{etcd_root}/{name}")
        before = history.revision()
        assert session.send(CALL).is_refused
        session._look(CALL, before)
        assert history.written(before, before + 1) == [f"{etcd_root}/{name}"]
    assert session.report.faults.get("revision", []) == (
        [f"{CALL.path} of viewer, number 7: refused, and wrote {etcd_root}/{name}"] if is_wrong else []
    )


@pytest.mark.cluster
@pytest.mark.long
def test_a_small_run_meets_all_demands(tmp_path: Path) -> None:
    report = fuzz(tmp_path, 400, 5)
    assert report.faults == {}, "\n".join(report.table())
    assert report.requests == 400 and report.checked > 100
    refused = {role: report.roles[role, "refused"] for role in (one.name for one in ROLES)}
    assert all(refused.values()) and report.roles["admin", "answered"] > 10


@pytest.mark.cluster
@pytest.mark.long
def test_sessions_share_the_requests_and_have_seeds_of_their_own(tmp_path: Path) -> None:
    reports = fuzz_all(tmp_path, 301, 5, 2)
    assert {seed: report.requests for seed, report in reports.items()} == {5: 151, 6: 150}
    assert all(report.faults == {} for report in reports.values())
    assert reports[5].codes != reports[6].codes


def test_answers_of_sessions_are_added_up() -> None:
    reports = [FuzzReport(), FuzzReport()]
    for report in reports:
        report.add(FuzzOutcome(CALL, Code.OK))
    assert answers(reports)[1].split() == [CALL.path, "2"] and answers(reports)[-1] == "viewer: 2 answered, 0 refused, 0 open"


def test_documents_for_requests_by_openapi_have_names_that_are_there_and_no_stream_without_an_end() -> None:
    served = open_api.document("api/v1")
    assert served is not None
    found = with_names(copy.deepcopy(served))
    asked = [
        one["name"]
        for item in found["paths"].values()
        for each in item.values()
        if isinstance(each, dict)
        for one in each["parameters"]
    ]
    assert {"limit", "tailLines", "command"} <= set(asked) and not {"watch", "follow"} & set(asked)
    name = found["paths"]["/api/v1/nodes/{name}"]["parameters"][0]["schema"]
    assert set(NODES) <= set(name["anyOf"][0]["enum"]) and name["anyOf"][-1] == {"type": "string"}
