"""`make groups`: what pod groups promise, in figures, and exit code 1 where one is missed.

| play | what runs | what is demanded |
|---|---|---|
| rivals | two gangs that each need 60 % of the room; members come mixed | one is whole, never both in part; both end whole |
| crowd | 100 gangs of 10 on room for 50; members come mixed | exactly 50 start, none in part |
| speed | gangs of 10, and one of 1,000, against single pods (`group_speed`) | 0.7 of their rate |
| kills | real replicas, whose leader is killed between plan, bindings and end (`group_kills`) | none in part; whole within 3 s |

The first two run the real cores of scheduler and queue in this process, over a model of the store, and so does `speed` where no
other depth is named. An auditor reads each history.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable
from typing import Final

from tests.chaos import group_kills, group_speed
from tests.chaos.demands import Demand, Demands, table
from tests.core.grouped import a_group, a_member, audited, bound_of, change_pod, put_group
from tests.core.leading import a_replica, put_pod
from tests.core.replica import Replica

RIVAL_MEMBERS: Final = 6
RIVAL_NODES: Final = 10
CROWD: Final = 100
CROWD_MEMBERS: Final = 10
_STEPS_MAX: Final = 4


def play_rivals(given: argparse.Namespace, demands: Demands) -> None:
    """Each round has a cluster of its own, and an order of its own in which members come."""
    in_part = stuck = 0
    found: list[str] = []
    for number in range(given.rounds):
        draw = random.Random(f"{given.seed}/{number}")
        replica = a_replica(*(f"n{place}" for place in range(RIVAL_NODES)))
        for name in ("a", "b"):
            put_group(replica.store, a_group(name, RIVAL_MEMBERS))
        _come_mixed(replica, draw, {"a": RIVAL_MEMBERS, "b": RIVAL_MEMBERS}, cpu="3")
        starts = [len(bound_of(replica, name)) for name in ("a", "b")]
        in_part += sorted(starts) != [0, RIVAL_MEMBERS]
        first, second = ("a", "b") if starts[0] else ("b", "a")
        for member in bound_of(replica, first):
            change_pod(replica.store, member, phase="Succeeded")
        replica.clock.now += 30.0
        replica.settle()
        stuck += len(bound_of(replica, second)) != RIVAL_MEMBERS
        findings = audited(replica.store).findings
        found += [f"round {number}: {words}" for words in findings.first.values()]
    demands.judge(f"rounds of {given.rounds} in which not exactly one gang was whole", "none", in_part, not in_part)
    demands.judge("rounds in which the other one did not start after it", "none", stuck, not stuck)
    demands.none("what the auditor found", found)


def play_crowd(given: argparse.Namespace, demands: Demands) -> None:
    wrong: list[str] = []
    found: list[str] = []
    for number in range(given.crowds):
        draw = random.Random(f"{given.seed}/crowd/{number}")
        replica = a_replica(*(f"n{place}" for place in range(CROWD * CROWD_MEMBERS // 8)))
        for group in range(CROWD):
            put_group(replica.store, a_group(f"g{group:02}", CROWD_MEMBERS))
        _come_mixed(replica, draw, {f"g{group:02}": CROWD_MEMBERS for group in range(CROWD)}, cpu="1")
        sizes = [len(bound_of(replica, f"g{group:02}")) for group in range(CROWD)]
        if sorted(sizes) != [0] * (CROWD // 2) + [CROWD_MEMBERS] * (CROWD // 2):
            wrong.append(f"crowd {number}: {sum(size == CROWD_MEMBERS for size in sizes)} whole, {sum(sizes)} members bound")
        found += [f"crowd {number}: {words}" for words in audited(replica.store).findings.first.values()]
    demands.none(f"crowds of {given.crowds} in which not exactly {CROWD // 2} gangs were whole", wrong)
    demands.none("what the auditor found", found)


def _come_mixed(replica: Replica, draw: random.Random, sizes: dict[str, int], cpu: str) -> None:
    """Members come in any order, and the leader does something in between."""
    members = [(group, number) for group, size in sizes.items() for number in range(size)]
    draw.shuffle(members)
    for group, number in members:
        put_pod(replica.store, a_member(f"{group}-{number}", group, cpu=cpu))
        for _ in range(draw.randrange(_STEPS_MAX)):
            replica.watch()
            replica.answer()
            replica.exchanged()
            replica.turn()
            replica.core.decide()
            replica.exchange()
            replica.arrive()
    replica.settle()


PLAYS: Final[dict[str, Callable[[argparse.Namespace, Demands], None]]] = {
    "rivals": play_rivals,
    "crowd": play_crowd,
    "speed": group_speed.play_speed,
    "kills": group_kills.play_kills,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.groups", description="What pod groups promise.")
    parser.add_argument("--only", action="append", choices=PLAYS, help="this play; may be repeated")
    parser.add_argument("--rounds", type=int, default=1_000, help="of two rivals")
    parser.add_argument("--crowds", type=int, default=3, help="of 100 gangs each")
    parser.add_argument("--depth", action="append", choices=group_speed.DEPTHS, help="of speed; may be repeated (default core)")
    parser.add_argument("--speed-nodes", type=int, default=group_speed.NODES)
    parser.add_argument("--speed-groups", type=int, default=group_speed.GROUPS)
    parser.add_argument("--speed-rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=16, help="of leaders, in turn at each moment")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    found: list[Demand] = []
    for name in given.only or PLAYS:
        demands = Demands(name, lambda line: print(line, flush=True))
        PLAYS[name](given, demands)
        found += demands.found
    table(found)
    print(f"load of the machine in the last minutes: {', '.join(f'{one:.1f}' for one in os.getloadavg())}, {os.cpu_count()} CPUs")
    missed = [one for one in found if not one.met]
    for one in missed:
        print(f"error: {one.play}: {one.what}: {one.shown}, demanded is {one.demanded}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
