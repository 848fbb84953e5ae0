"""queue: the pods that wait for a node, in the order in which they will be tried, and what holds the others.

With -w the queue is asked again every second, whoever leads then. On a terminal the table is drawn anew; elsewhere, and as JSON
or YAML, only pods whose place, attempts or plugins changed are told, and those that left.

A pod group is one line, with how many of its members wait. One that is held back is in no queue: it is told of beside it, on
standard error, or under `held_groups` in a document; not with -w, nor where pods are chosen by state or label.

Of one pod that was named and is in no queue it is told where it is; one that is not there is an error, but for -w.

A pod whose scheduler is no profile's is pending and in no queue: it is told of like that, under `not_served`. Finding these takes
a list of pods, so with -w it is done every half minute.
"""

from __future__ import annotations

import enum
import itertools
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from rayched.api import kinds
from rayched.api.columns import age
from rayched.api.moments import moment_text
from rayched.cli.connection import connected
from rayched.cli.options import Selector, Server
from rayched.cli.output.output_formats import OutputForm, OutputFormat, OutputOption, order, output_format
from rayched.cli.printing import GrowingTable, clear_screen, counted, note, out, out_json, plain_table, wrong
from rayched.cli.scheduling.held_groups import ENTRY_PREFIX, HeldGroup, held_groups
from rayched.cli.scheduling.not_pending import nothing_pending
from rayched.cli.scheduling.schedulers import NotServed, waiting_for_others
from rayched.cli.scheduling.wake_words import in_words
from rayched.client.client import Client
from rayched.v1.services_pb2 import ListQueueResponse, PendingPod
from rayched.v1.workloads_pb2 import Job

POLL_SECONDS = 1.0
POLLS_A_LIST = 30
LIMIT = 500
GONE = "<gone>"
_NONE = "<none>"
_HEADINGS = ["NAMESPACE", "NAME", "QUEUE", "PRIORITY", "ATTEMPTS", "HELD BY"]
"""Within 80 columns; the order of the rows is that of the queue."""
_START_HEADING = "STARTS BY"
_UNKNOWN = "<unknown>"
_WIDE_HEADINGS = ["POSITION", "BACKOFF", "SINCE", "RETRIED IN", "NOMINATED NODE", "RETRIED WHEN"]


class QueueFilter(enum.StrEnum):
    """Where a pod is in the queue."""

    active = "active"
    backoff = "backoff"
    error_backoff = "error_backoff"
    unschedulable = "unschedulable"
    gated = "gated"
    in_flight = "in_flight"


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """Which pods are shown, and how."""

    namespace: str
    name: str
    limit: int
    states: frozenset[str]
    selector: str
    sort_by: str
    form: OutputFormat
    starts: Mapping[str, str] | None = None
    """When pods would start, by namespace/name; None: nobody asked."""

    @property
    def headings(self) -> list[str]:
        headings = [*_HEADINGS, *_WIDE_HEADINGS] if self.form.form is OutputForm.wide else _HEADINGS
        return headings if self.starts is None else [*headings, _START_HEADING]

    def row(self, pod: PendingPod) -> list[str]:
        row = _row(pod, wide=self.form.form is OutputForm.wide)
        return row if self.starts is None else [*row, self.starts.get(f"{pod.namespace}/{pod.name}", _UNKNOWN)]

    def asked(self, client: Client) -> ListQueueResponse:
        """The answer, of which what is not wanted is left out."""
        found = client.queue(namespace=self.namespace, name=self.name, limit=self.limit)
        pods = [pod for pod in found.pods if not self.states or pod.queue in self.states]
        if self.selector:
            named = client.list(kinds.POD, namespace=self.namespace, label_selector=self.selector)
            uids = {pod.metadata.uid for pod in named}
            pods = [pod for pod in pods if pod.uid in uids]
        if self.sort_by and pods:
            pods = [pods[place] for place in order([_plain(pod) for pod in pods], self.sort_by)]
        left_out = len(found.pods) - len(pods)
        kept = ListQueueResponse(pods=pods, total=found.total - left_out)
        for place, count in found.counts.items():
            kept.counts[place] = count
        return kept

    def elsewhere(self, client: Client) -> list[NotServed]:
        """Those of the pods that no queue holds, which is no state of the queue."""
        return [] if self.states else waiting_for_others(client, self.namespace, self.name, self.selector)


def queue(
    name: Annotated[str, typer.Argument(metavar="POD", hidden=True)] = "",
    server: Server = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Namespace of the pods; none: all namespaces.", show_default=False
        ),
    ] = "",
    selector: Selector = "",
    states: Annotated[
        list[QueueFilter] | None,
        typer.Option(
            "--state", "-t", metavar="STATE", help="Show only active, backoff, unschedulable, gated, ... May be repeated."
        ),
    ] = None,
    sort_by: Annotated[
        str, typer.Option("--sort-by", metavar="JSONPATH", help="Sort by a field, as in .since_seconds.", show_default=False)
    ] = "",
    output: OutputOption = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep watching, and print changes.")] = False,
    start: Annotated[
        bool, typer.Option("--start", help="Show when each would start at the latest, where that is known.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="Show at most N pods.", min=1, max=2000)] = LIMIT,
) -> None:
    """Show pods that wait for a node.

    \b
      rayched queue                   in the order in which they will be tried
      rayched queue web-0 -n shop     one pod
      rayched queue -o wide           and after which changes they are tried again
      rayched queue -t gated -l app=web --sort-by .priority
      rayched queue -o custom-columns=NAME:.name,ATTEMPTS:.attempts
      rayched queue -w                live
      rayched queue --start           and by when each has a node

    A start is known where pods that run have an end: their activeDeadlineSeconds or their job's, or a deletion. They may end
    before; who comes in between with a higher priority is not foreseen.
    """
    form = output_format(output)
    if form.form is OutputForm.name and watch:
        wrong("--output name cannot be combined with --watch")
    if start and (watch or not form.is_table):
        wrong("--start cannot be combined with --watch, nor with an output other than a table or wide")
    choice = QueueChoice(namespace, name, limit, frozenset(one.value for one in states or ()), selector, sort_by, form)
    with connected(server) as client:
        if watch:
            _watch(client, choice)
            return
        found = choice.asked(client)
        elsewhere = choice.elsewhere(client)
        held = [] if choice.states or selector else held_groups(client, namespace, name, found)
        nothing = [] if found.pods or elsewhere or held else nothing_pending(client, namespace, name)
        if start:
            choice = replace(choice, starts=_starts(client, time.time()))
    if form.form is OutputForm.name:
        _print_names(found.pods)
        return
    if not form.is_table:
        form.print_documents([_plain(pod) for pod in found.pods], _document(found, elsewhere, held))
        return
    if found.pods:
        plain_table(choice.headings, [choice.row(pod) for pod in found.pods])
        _tell_of_more(found)
    for one in (*held, *elsewhere, *nothing):
        note(str(one))


def _print_names(pods: Iterable[PendingPod]) -> None:
    for pod in pods:
        out(pod.name.replace(ENTRY_PREFIX, "podgroup/") if pod.members else f"pod/{pod.name}")


def _starts(client: Client, now: float) -> dict[str, str]:
    """By namespace/name, in words."""
    # It brings numpy: only who asks for it waits for that.
    from rayched.cli.scheduling.plan_inputs import from_cluster, profiles_of
    from rayched.core.groups.planning import planner_of
    from rayched.whatif.cluster import Cluster
    from rayched.whatif.starts import estimated_starts

    begin = from_cluster(client)
    cluster = Cluster(begin.objects, profiles_of(begin, None), begin.basis)
    jobs = [item for item in begin.objects if isinstance(item, Job)]
    return {one.pod: _when(one.seconds, now) for one in estimated_starts(planner_of(cluster), jobs, now)}


def _when(seconds: float, now: float) -> str:
    if seconds <= now:
        return "now"
    return f"{moment_text(seconds)} (in {age(Timestamp(seconds=int(now)), seconds)})"


def _watch(client: Client, choice: QueueChoice) -> None:
    """Until interrupted."""
    known: dict[str, PendingPod] = {}
    table = GrowingTable(len(choice.headings))
    headings = [choice.headings]
    elsewhere: list[str] = []
    is_table = choice.form.is_table
    for poll in itertools.count():
        found = choice.asked(client)
        told = elsewhere
        if poll % POLLS_A_LIST == 0:
            elsewhere = [str(one) for one in choice.elsewhere(client)]
        if is_table and sys.stdout.isatty():
            clear_screen()
            out(_summary(found))
            plain_table(choice.headings, [choice.row(pod) for pod in found.pods])
            _tell_of_more(found)
            told = []
        else:
            # Where there are more than were told, who is missing may still be there.
            news = _news(known, found.pods, complete=found.total <= len(found.pods))
            if is_table:
                table.print([*headings, *(choice.row(pod) for pod in news)])
                headings = []
            else:
                for pod in news:
                    _print_one(_plain(pod), choice.form)
        for sentence in elsewhere:
            if sentence not in told:
                note(sentence)
        time.sleep(POLL_SECONDS)


def _print_one(plain: dict[str, Any], form: OutputFormat) -> None:
    if form.form is OutputForm.json:
        out_json(json.dumps(plain, ensure_ascii=False))
        return
    if form.form is OutputForm.yaml:
        out("---")
    form.print_documents([plain], plain, show_headings=False)


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


def _row(pod: PendingPod, *, wide: bool = False) -> list[str]:
    row = [
        pod.namespace,
        f"{pod.name} ({counted(pod.members, 'member')})" if pod.members else pod.name,
        pod.queue,
        str(pod.priority),
        str(pod.attempts),
        ", ".join(pod.held_by) or _NONE,
    ]
    if wide:
        backoff = f"{pod.backoff_left_seconds:.0f}s" if pod.backoff_left_seconds else "-"
        tried = f"{pod.tried_in_seconds:.0f}s" if pod.HasField("tried_in_seconds") else "-"
        row += [str(pod.position or "-"), backoff, f"{pod.since_seconds:.0f}s", tried, pod.nominated_node_name or _NONE]
        row.append(in_words(pod.would_wake) or _NONE)
    return row


def _summary(found: ListQueueResponse) -> str:
    counts = found.counts
    return "   ".join(f"{place} {counts[place]}" for place in ("active", "backoff", "unschedulable", "gated", "in_flight"))


def _tell_of_more(found: ListQueueResponse) -> None:
    more = found.total - len(found.pods)
    if more > 0:
        note(f"and {counted(more, 'more pod')}; --limit shows up to 2000, --namespace or a name others")


def _document(found: ListQueueResponse, elsewhere: Sequence[NotServed], held: Sequence[HeldGroup]) -> dict[str, Any]:
    counts = {place: found.counts[place] for place in sorted(found.counts)}
    not_served = [{"scheduler": one.scheduler, "pods": list(one.pods), "served": list(one.served)} for one in elsewhere]
    document = {"counts": counts, "items": [_plain(pod) for pod in found.pods], "held_groups": [one._asdict() for one in held]}
    return {**document, "not_served": not_served, "total": found.total}


def _plain(pod: PendingPod) -> dict[str, Any]:
    """The names are those of the message; all fields are there, so that a script need not ask."""
    plain: dict[str, Any] = MessageToDict(pod, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return plain
