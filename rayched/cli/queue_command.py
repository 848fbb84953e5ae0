"""queue: the pods that wait for a node, in the order in which they will be tried, and what holds the others.

With -w the queue is asked again every second, whoever leads then. On a terminal the table is drawn anew; elsewhere, and as JSON
or YAML, only pods whose place, attempts or plugins changed are told, and those that left.

A pod whose scheduler is no profile's is pending and in no queue: it is told of beside the queue, on standard error, or under
`not_served` in a document. Finding these takes a list of pods, so with -w it is done every half minute.
"""

from __future__ import annotations

import enum
import itertools
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict

from rayched.api.yaml_text import dump_all
from rayched.cli.connection import connected
from rayched.cli.options import Server
from rayched.cli.printing import GrowingTable, clear_screen, counted, note, out, out_json, plain_table
from rayched.cli.schedulers import NotServed, waiting_for_others
from rayched.client.client import Client
from rayched.v1.services_pb2 import ListQueueResponse, PendingPod

POLL_SECONDS = 1.0
POLLS_A_LIST = 30
LIMIT = 500
GONE = "<gone>"
_NONE = "<none>"
_HEADINGS = ["POSITION", "NAMESPACE", "NAME", "QUEUE", "PRIORITY", "ATTEMPTS", "BACKOFF", "HELD BY", "WOULD WAKE IT"]


class QueueOutput(enum.StrEnum):
    yaml = "yaml"
    json = "json"


def queue(
    name: Annotated[str, typer.Argument(metavar="POD", hidden=True)] = "",
    server: Server = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Pods of one namespace; none: of all.", show_default=False)
    ] = "",
    output: Annotated[
        QueueOutput | None, typer.Option("--output", "-o", metavar="json|yaml", help="Format; none: a table.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, as pods move.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="So many pods at most.", min=1, max=2000)] = LIMIT,
) -> None:
    """Show pods that wait for a node.

    \b
      rayched queue                    in the order in which they will be tried
      rayched queue web-0 -n shop      one pod: what holds it, and what would wake it
      rayched queue -w                 live
      rayched queue -o json            with all that is known of each
    """
    with connected(server) as client:
        if watch:
            _watch(client, namespace, name, limit, output)
            return
        found = client.queue(namespace=namespace, name=name, limit=limit)
        elsewhere = waiting_for_others(client, namespace, name)
    if output is not None:
        (out_json if output is QueueOutput.json else out)(_document(found, elsewhere, output))
        return
    if found.pods:
        plain_table(_HEADINGS, [_row(pod) for pod in found.pods])
        _tell_of_more(found)
    for one in elsewhere:
        note(str(one))
    if not found.pods and not elsewhere:
        note("No pending pods found")


def _watch(client: Client, namespace: str, name: str, limit: int, output: QueueOutput | None) -> None:
    """Until interrupted."""
    known: dict[str, PendingPod] = {}
    table = GrowingTable(len(_HEADINGS))
    headings = [_HEADINGS]
    elsewhere: list[str] = []
    for poll in itertools.count():
        found = client.queue(namespace=namespace, name=name, limit=limit)
        told = elsewhere
        if poll % POLLS_A_LIST == 0:
            elsewhere = [str(one) for one in waiting_for_others(client, namespace, name)]
        if output is None and sys.stdout.isatty():
            clear_screen()
            out(_summary(found))
            plain_table(_HEADINGS, [_row(pod) for pod in found.pods])
            _tell_of_more(found)
            told = []
        else:
            # Where there are more than were told, who is missing may still be there.
            news = _news(known, found.pods, complete=found.total <= len(found.pods))
            if output is None:
                table.print([*headings, *(_row(pod) for pod in news)])
                headings = []
            else:
                for pod in news:
                    (out_json if output is QueueOutput.json else out)(_one(pod, output))
        for sentence in elsewhere:
            if sentence not in told:
                note(sentence)
        time.sleep(POLL_SECONDS)


def _news(known: dict[str, PendingPod], pods: Iterable[PendingPod], *, complete: bool) -> list[PendingPod]:
    """What differs from `known`, which is brought up to date."""
    news: list[PendingPod] = []
    there = {pod.uid: pod for pod in pods}
    for uid, pod in there.items():
        before = known.get(uid)
        if before is None or _state(before) != _state(pod):
            news.append(pod)
        known[uid] = pod
    if complete:
        for uid in [uid for uid in known if uid not in there]:
            gone = known.pop(uid)
            news.append(PendingPod(namespace=gone.namespace, name=gone.name, uid=uid, queue=GONE, attempts=gone.attempts))
    return news


def _state(pod: PendingPod) -> tuple[Any, ...]:
    """What is worth a line when it changes; positions and times change all the time."""
    return pod.queue, pod.attempts, pod.priority, tuple(pod.held_by), pod.nominated_node_name


def _row(pod: PendingPod) -> list[str]:
    return [
        str(pod.position or "-"),
        pod.namespace,
        pod.name,
        pod.queue,
        str(pod.priority),
        str(pod.attempts),
        f"{pod.backoff_left_seconds:.0f}s" if pod.backoff_left_seconds else "-",
        ",".join(pod.held_by) or _NONE,
        ",".join(pod.would_wake) or _NONE,
    ]


def _summary(found: ListQueueResponse) -> str:
    counts = found.counts
    return "   ".join(f"{place} {counts[place]}" for place in ("active", "backoff", "unschedulable", "gated", "in_flight"))


def _tell_of_more(found: ListQueueResponse) -> None:
    more = found.total - len(found.pods)
    if more > 0:
        note(f"and {counted(more, 'more pod')}; --limit shows up to 2000, --namespace or a name others")


def _document(found: ListQueueResponse, elsewhere: Sequence[NotServed], output: QueueOutput) -> str:
    counts = {place: found.counts[place] for place in sorted(found.counts)}
    not_served = [{"scheduler": one.scheduler, "pods": list(one.pods), "served": list(one.served)} for one in elsewhere]
    whole = {"counts": counts, "items": [_plain(pod) for pod in found.pods], "not_served": not_served, "total": found.total}
    return json.dumps(whole, indent=4, ensure_ascii=False) if output is QueueOutput.json else dump_all([whole])


def _one(pod: PendingPod, output: QueueOutput) -> str:
    return json.dumps(_plain(pod), ensure_ascii=False) if output is QueueOutput.json else "---\n" + dump_all([_plain(pod)])


def _plain(pod: PendingPod) -> dict[str, Any]:
    """The names are those of the message; all fields are there, so that a script need not ask."""
    plain: dict[str, Any] = MessageToDict(pod, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return plain
