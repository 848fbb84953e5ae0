"""What goes wrong, drawn from the seed: each fault begins somewhere in the troubled time and ends by itself.

Pauses are the best finders of bugs and have the most weight. Which faults a world knows is drawn first, so that some worlds
have few of them and many times the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from leader import events as ev
from leader.etcd_shim import rpc
from tests.simulation.replica import KEYS, Replica
from tests.simulation.safety import Safety
from tests.simulation.world import SECOND, Weather, World

_THEMES: Final = (
    {"pause of a replica", "pause before a write"},
    {"pause before a write", "resignation", "pause of a scheduler"},
    {"kill of etcd"},
    {"kill of etcd", "storm"},
    {"stalled streams", "lost answers"},
    {"stalled streams", "kill of a scheduler"},
    {"compaction", "cut"},
    {"kill of a replica", "kill of a scheduler", "kill of a queue"},
    {"step of a wall clock", "cut"},
    {"full etcd", "pause of a replica"},
    {"slow etcd"},
)
"""Half of the worlds know only faults that are worst together, and more of them."""


class Faults:
    def __init__(self, world: World, replicas: list[Replica], safety: Safety, until: int) -> None:
        self.world, self.random, self.replicas, self.safety = world, world.random, replicas, safety
        self.counts: Counter[str] = Counter()
        self.wall_clocks_agree = False
        """Nobody steps them."""
        self._until = until
        known: list[tuple[float, str, Callable[[], None]]] = [
            (6, "pause of a replica", self._pause),
            (4, "pause of a scheduler", self._pause_scheduler),
            (5, "pause before a write", self._stumble),
            (3, "kill of a replica", self._kill),
            (3, "kill of a scheduler", self._kill_scheduler),
            (2, "kill of a queue", self._kill_queue),
            (5, "cut", self._cut),
            (4, "storm", self._storm),
            (2, "broken streams", self._break_streams),
            (4, "stalled streams", self._stall_streams),
            (3, "lost answers", self._lose_answers),
            (3, "compaction", self._compact),
            (2, "kill of etcd", self._kill_etcd),
            (1, "new leader of etcd", self._etcd_leader),
            (2, "step of a wall clock", self._step_clock),
            (1, "wiped record", self._wipe),
            (1, "resignation", self._resign),
            (3, "full etcd", self._fill),
            (3, "slow etcd", self._slow_etcd),
        ]
        if self.random.random() < 0.5:
            theme = self.random.choice(_THEMES)
            self._known = [fault for fault in known if fault[1] in theme]
            self._mean_gap = 0.5
        else:
            self._known = self.random.sample(known, self.random.choice((2, 5, len(known))))
            self._mean_gap = 0.9

    def start(self) -> None:
        self.world.after(self._gap(), self._next)

    def heal(self) -> None:
        """All that lasts is over, and what was to happen at a next write happens no more; what is dead comes back by itself."""
        self.world.weather = Weather()
        self.world.etcd.is_full = False
        for replica in self.replicas:
            for writer in (replica.scheduling, replica.caring, replica.budget_caring):
                if writer is not None:
                    writer.before_next_write = None
            replica.process.resume()
            replica.scheduling.process.resume()
            for link in replica.links:
                link.requests_pass = link.answers_pass = True
        for stream in self.world.streams:
            stream.stir()

    def _gap(self) -> int:
        return int(self.random.expovariate(1.0 / self._mean_gap) * SECOND)

    def _next(self) -> None:
        if self.world.now >= self._until:
            return
        weights = [weight for weight, *_ in self._known]
        _, name, fault = self.random.choices(self._known, weights)[0]
        self.counts[name] += 1
        self.world.trace(name)
        self.world.tell(f"-- {name}")
        fault()
        self.world.after(self._gap(), self._next)

    def _lasts(self, least: float, most: float) -> int:
        """Long ones are rare."""
        return int((least + (most - least) * self.random.random() ** 2) * SECOND)

    def _one(self) -> Replica:
        """The one that leads, if somebody does, in two of three cases: there is most to break."""
        leaders = [replica for replica in self.replicas if replica.candidate.believes()]
        return self.random.choice(leaders if leaders and self.random.random() < 0.67 else self.replicas)

    # -------------------------------------------------------------------------------------------------------------- faults

    def _pause(self) -> None:
        self._one().process.pause(self._lasts(0.1, 6.0))

    def _pause_scheduler(self) -> None:
        self._one().scheduling.process.pause(self._lasts(0.1, 5.0))

    def _stumble(self) -> None:
        """Paused between the look at the belief and the write, often while its successors are slow to begin."""
        replica, pause_ns = self._one(), self._lasts(1.5, 4.5)
        successors_are_slow = self.random.random() < 0.7

        def stumbles() -> None:
            self.world.tell(f"{replica.process.name} is paused before a write")
            replica.process.pause(pause_ns)
            for other in self.replicas:
                if successors_are_slow and other is not replica:
                    other.scheduling.process.pause(pause_ns + self._lasts(0.0, 2.0))

        replica.scheduling.before_next_write = stumbles
        for caring in (replica.caring, replica.budget_caring):
            if caring is not None:
                caring.before_next_write = stumbles

    def _kill(self) -> None:
        self._one().crash(self._lasts(0.2, 3.0))

    def _kill_scheduler(self) -> None:
        self._one().scheduler_crashes(self._lasts(0.05, 1.5))

    def _kill_queue(self) -> None:
        replica = self._one()
        if replica.is_up and replica.scheduling.process.alive:
            replica.scheduling.lose_queue()

    def _cut(self) -> None:
        """Between a replica and etcd, or one connection of it; in one direction or both."""
        replica = self._one()
        links = replica.links if self.random.random() < 0.5 else [self.random.choice(replica.links)]
        requests, answers = self.random.choice(((False, False), (False, True), (True, False)))
        for link in links:
            link.requests_pass &= requests
            link.answers_pass &= answers
        breaks = self.random.random() < 0.5

        def over() -> None:
            for link in links:
                link.requests_pass = link.answers_pass = True
            for stream in list(self.world.streams):
                if stream.link in links:
                    if breaks:
                        stream.end("connection reset")
                    else:
                        stream.stir()

        self.world.after(self._lasts(0.2, 5.0), over)

    def _storm(self) -> None:
        weather = Weather(
            loss=self.random.choice((0.0, 0.1, 0.3)),
            late=self.random.choice((0.0, 0.05, 0.2)),
            slow=self.random.choice((1.0, 5.0, 30.0)),
        )
        self._bad_weather(weather, self._lasts(0.5, 5.0))

    def _bad_weather(self, weather: Weather, lasts_ns: int) -> None:
        self.world.weather = weather

        def over() -> None:
            if self.world.weather is weather:
                self.world.weather = Weather()

        self.world.after(lasts_ns, over)

    def _break_streams(self) -> None:
        for stream in list(self.world.streams):
            if self.random.random() < 0.5:
                stream.end("connection reset")

    def _stall_streams(self) -> None:
        """Watches lag while calls are answered, and many answers get lost; often from the moment of a write on."""
        lasts_ns = self._lasts(0.05, 3.0)

        def stall() -> None:
            for stream in list(self.world.streams):
                if self.random.random() < 0.8:
                    stream.stall(lasts_ns)
            self._bad_weather(Weather(loss=self.random.choice((0.0, 0.3, 0.6))), self._lasts(0.1, 2.0))

        if self.random.random() < 0.6:
            self._one().scheduling.before_next_write = stall
        else:
            stall()

    def _lose_answers(self) -> None:
        """The connection breaks after something was written, calls work again at once, and the watch takes its time."""
        scheduling, count, lasts_ns = self._one().scheduling, self.random.choice((1, 1, 2, 3)), self._lasts(0.1, 2.0)

        def lose() -> None:
            scheduling.link.answers_lost = count
            for stream in self.world.streams:
                if stream.link is scheduling.link:
                    stream.stall(lasts_ns)

        scheduling.before_next_write = lose

    def _compact(self) -> None:
        """Often of what some watches have not delivered yet, and lose now."""
        behind = [stream for stream in self.world.streams if self.random.random() < 0.5]
        wait = self._lasts(0.0, 1.5)
        for stream in behind:
            stream.stall(wait + SECOND)

        def compact() -> None:
            self._compact_now()
            for stream in behind:
                stream.end("connection reset")

        self.world.after(wait, compact)

    def _compact_now(self) -> None:
        etcd = self.world.etcd
        revision = etcd.revision - self.random.choice((0, 0, 3, 20))
        if self.world.etcd_up and revision > etcd.compacted:
            self.world.serve(lambda: etcd.compact(rpc.CompactionRequest(revision=revision)))

    def _kill_etcd(self) -> None:
        """Now, or just before something is to be bound; long enough for the lease to run out, or not."""
        down_ns = self._lasts(2.0, 3.5) if self.random.random() < 0.5 else self._lasts(0.1, 1.5)
        if self.random.random() < 0.5:
            self._one().scheduling.before_next_write = lambda: self.world.etcd_crashes(down_ns)
        else:
            self.world.etcd_crashes(down_ns)

    def _fill(self) -> None:
        """Its alarm is raised, until somebody has made room and disarmed it."""
        etcd, lasts_ns = self.world.etcd, self._lasts(0.3, 6.0)
        etcd.is_full = True
        self._nobody_hears_agents(lasts_ns)

        def over() -> None:
            etcd.is_full = False

        self.world.after(lasts_ns, over)

    def _slow_etcd(self) -> None:
        """Longer than a renewal may take, at worst."""
        weather, lasts_ns = Weather(held=int(self.random.choice((0.2, 0.6, 1.0, 1.6)) * SECOND)), self._lasts(1.0, 6.0)
        self._nobody_hears_agents(lasts_ns)
        self._bad_weather(weather, lasts_ns)

    def _nobody_hears_agents(self, lasts_ns: int) -> None:
        """What was decided meanwhile may be written some time later."""
        self.world.unheard_until = max(self.world.unheard_until, self.world.now + lasts_ns + 4 * SECOND)

    def _etcd_leader(self) -> None:
        self.world.leader_of_etcd_changes()

    def _step_clock(self) -> None:
        clock, step_ns = self._one().clock, self.random.choice((-1, 1)) * self._lasts(1.0, 3600.0)
        if not self.wall_clocks_agree:
            clock.wall_offset_ns += step_ns

    def _wipe(self) -> None:
        """Somebody deletes the record by hand, which is the one thing that beliefs are not proof against."""
        if self.world.etcd_up:
            self.safety.lenient_until = self.world.now + 4 * SECOND
            self.world.serve(lambda: self.world.etcd.delete_range(rpc.DeleteRangeRequest(key=KEYS.record)))

    def _resign(self) -> None:
        candidate = self._one().candidate
        candidate.process.deliver(lambda: candidate.give(ev.ResignRequested("asked to")))
