"""Hosts as network namespaces on one switch, and what can happen to their network. Linux, root, `ip`, `nsenter` and `unshare`.

    with made_network(["client", "one", "two"]) as network:
        subprocess.Popen(network.command("one", ["etcd", ...]))
        network.down("one")

Each host is a namespace with loopback and one interface, eth0; the switch is a bridge in a namespace of its own that has no
address. A namespace lives as long as a process that sleeps in it, and that dies with us however we end: nothing has a name
outside, and nothing is left. No route leads anywhere but to the other hosts.

    down        the interface of the host itself is down
    cut         what a host sends to another one is lost, without a word to either: it goes to an address that nobody has
    shape       what passes a host's cable comes late, or not at all (network_cable.py)

Nothing here needs a packet filter or netem, which not every kernel has. Cost: a process for each namespace; some 10 ms a change.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from signal import SIGKILL
from typing import Final

from rayched.replica.ray.processes import dying_with_us

INTERFACE: Final = "eth0"
_BRIDGE: Final = "br0"
_NET: Final = "10.77.0"
_HOSTS_MAX: Final = 200
_NOBODY: Final = "02:00:00:00:ff:ff"
"""No interface has this address."""
_PROGRAMS: Final = ("ip", "nsenter", "unshare", "sleep")
_MADE_SECONDS_MAX: Final = 10.0
_IP_SECONDS_MAX: Final = 10.0
_CABLE_SECONDS_MAX: Final = 20.0


class NamespacesNotAllowed(Exception):
    """This host does not let us make network namespaces; one line."""


class NetworkFailed(Exception):
    """A change of the network did not happen; one line."""


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """`pid` is the process that keeps its namespace."""

    number: int
    name: str
    address: str
    pid: int


@dataclass(frozen=True, slots=True)
class CableCounts:
    """Frames that a shaped cable took, by what became of them."""

    passed: int
    lost: int
    refused: int
    """The kernel did not take them back."""


class HostNetwork:
    """Changes a network that `made_network` has made, from whatever process."""

    def __init__(self, switch_pid: int, hosts: Sequence[NetworkHost]) -> None:
        self._switch_pid = switch_pid
        self.hosts = {host.name: host for host in hosts}
        self._cables: dict[str, subprocess.Popen[str]] = {}

    def as_text(self) -> str:
        """For `from_text` in a process that runs in one of the hosts."""
        return json.dumps({"switch": self._switch_pid, "hosts": [asdict(host) for host in self.hosts.values()]})

    @classmethod
    def from_text(cls, text: str) -> HostNetwork:
        found = json.loads(text)
        return cls(int(found["switch"]), [NetworkHost(**host) for host in found["hosts"]])

    def address(self, name: str) -> str:
        return self.hosts[name].address

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """The command in a host's network. It keeps its pid."""
        return [*_entering(self.hosts[name].pid), *words]

    # -------------------------------------------------------------------------------------------------------------- changes

    def down(self, name: str) -> None:
        """The interface of the host goes down; loopback stays. Raises NetworkFailed, as all changes do."""
        _ip(self.hosts[name].pid, f"link set {INTERFACE} down")

    def up(self, name: str) -> None:
        _ip(self.hosts[name].pid, f"link set {INTERFACE} up")

    def cut(self, source: str, targets: Sequence[str]) -> None:
        """What `source` sends to these is lost from now on; what they send arrives."""
        changes = [f"neigh replace {self.address(one)} lladdr {_NOBODY} dev {INTERFACE} nud permanent" for one in targets]
        _ip(self.hosts[source].pid, *changes)

    def mend(self, source: str, targets: Sequence[str]) -> None:
        """Takes `cut` back."""
        _ip(self.hosts[source].pid, *(f"neigh del {self.address(one)} dev {INTERFACE}" for one in targets))

    def shape(self, name: str, *, delay_seconds: float = 0.0, loss: float = 0.0, both_ways: bool = False, seed: int = 1) -> None:
        """What the host sends, or with `both_ways` gets as well, is late by so much, and that part of it is lost."""
        if name in self._cables:
            raise NetworkFailed(f"the cable of {name} is shaped already")
        number = self.hosts[name].number
        words = [sys.executable, "-m", "benchmarks.network_cable", _port(number), _outer(number)]
        words += ["--delay", str(delay_seconds), "--loss", str(loss), "--seed", str(seed)]
        words += ["--both-ways"] if both_ways else []
        cable = subprocess.Popen(
            dying_with_us([*_entering(self._switch_pid), *words], SIGKILL),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._cables[name] = cable
        _expect(cable, "ready", name)
        # It reads the port only when the bridge does not any more: nothing passes twice.
        _ip(self._switch_pid, f"link set {_port(number)} nomaster")
        _tell(cable, "begin\n", name)
        _expect(cable, "begun", name)

    def straighten(self, name: str) -> CableCounts:
        """Takes `shape` back."""
        cable = self._cables.pop(name)
        told, _ = cable.communicate(timeout=_CABLE_SECONDS_MAX)
        _ip(self._switch_pid, f"link set {_port(self.hosts[name].number)} master {_BRIDGE}")
        if cable.returncode:
            raise NetworkFailed(f"the cable of {name} ended with exit code {cable.returncode}")
        return CableCounts(**json.loads(told))

    def check_ways(self) -> None:
        """Each host reaches each other by its own interface, and nothing beyond. Raises NetworkFailed."""
        for host in self.hosts.values():
            for other in self.hosts.values():
                wanted = "lo" if host is other else INTERFACE
                found = _ip(host.pid, f"route get {other.address}").split()
                if wanted not in found:
                    raise NetworkFailed(f"{host.name} would reach {other.name} by {' '.join(found)}, not by {wanted}")
            if beyond := _ip(host.pid, "route show default").strip():
                raise NetworkFailed(f"{host.name} has a route beyond the hosts: {beyond}")

    def close(self) -> None:
        """Ends the cables that are left."""
        for cable in self._cables.values():
            cable.kill()
            cable.communicate()
        self._cables.clear()


@contextlib.contextmanager
def made_network(names: Sequence[str]) -> Iterator[HostNetwork]:
    """Hosts with these names. Raises NamespacesNotAllowed, NetworkFailed. To be called on a thread that lives as long."""
    if not 0 < len(names) <= _HOSTS_MAX:
        raise NetworkFailed(f"{len(names)} hosts: 1 to {_HOSTS_MAX} are possible")
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise NamespacesNotAllowed(f"network namespaces need programs that are not on the PATH: {', '.join(missing)}")
    with contextlib.ExitStack() as owned:
        switch_pid = _kept_namespace(owned)
        pids = [_kept_namespace(owned) for _ in names]
        pairs = enumerate(zip(names, pids, strict=True), start=1)
        hosts = [NetworkHost(number, name, f"{_NET}.{number}", pid) for number, (name, pid) in pairs]
        try:
            _ip(switch_pid, f"link add {_BRIDGE} type bridge", f"link set {_BRIDGE} up")
            for host in hosts:
                _connect(switch_pid, host)
        except NetworkFailed as error:
            raise NamespacesNotAllowed(f"this host has no bridges or veth pairs: {error}") from error
        network = HostNetwork(switch_pid, hosts)
        owned.callback(network.close)
        network.check_ways()
        yield network


def _connect(switch_pid: int, host: NetworkHost) -> None:
    """A port of the switch; and another way into it that is used by a shaped cable alone."""
    port, outer, inner = _port(host.number), _outer(host.number), f"inner-{host.number}"
    mac = f"02:00:00:00:00:{host.number:02x}"
    _ip(
        switch_pid,
        f"link add {port} type veth peer name {INTERFACE} address {mac} netns {host.pid}",
        f"link set {port} master {_BRIDGE} up",
        f"link add {outer} type veth peer name {inner}",
        f"link set {outer} up",
        f"link set {inner} master {_BRIDGE} up",
    )
    _ip(host.pid, "link set lo up", f"addr add {host.address}/24 dev {INTERFACE}", f"link set {INTERFACE} up")


def _port(number: int) -> str:
    return f"port-{number}"


def _outer(number: int) -> str:
    return f"outer-{number}"


def _kept_namespace(owned: contextlib.ExitStack) -> int:
    """A namespace of its own, as the pid of a process that sleeps in it. Raises NamespacesNotAllowed."""
    command = [_program("unshare"), "--net", _program("sleep"), "infinity"]
    keeper = subprocess.Popen(
        dying_with_us(command, SIGKILL), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    owned.callback(_end, keeper)
    ours = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + _MADE_SECONDS_MAX
    while keeper.poll() is None:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if os.readlink(f"/proc/{keeper.pid}/ns/net") != ours:
                return keeper.pid
        if time.monotonic() > deadline:
            raise NamespacesNotAllowed(f"no network namespace was made within {_MADE_SECONDS_MAX:.0f} s")
        time.sleep(0.01)
    assert keeper.stderr is not None
    why = " ".join(keeper.stderr.read().split()) or f"exit code {keeper.returncode}"
    raise NamespacesNotAllowed(f"this host makes no network namespaces for us: {why}")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NetworkFailed(f"{name} is not on the PATH")
    return os.path.abspath(found)


def _entering(pid: int) -> list[str]:
    return [_program("nsenter"), f"--net=/proc/{pid}/ns/net", "--"]


def _ip(pid: int, *changes: str) -> str:
    """What `ip` says, in that namespace."""
    command = [*_entering(pid), _program("ip"), "-batch", "-"]
    try:
        lines = "\n".join(changes) + "\n"
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=_IP_SECONDS_MAX)
    except subprocess.TimeoutExpired as error:
        raise NetworkFailed(f"ip {changes[0]}: no end after {_IP_SECONDS_MAX:.0f} s") from error
    if done.returncode:
        raise NetworkFailed(f"ip {'; '.join(changes)}: {' '.join(done.stderr.split())}")
    return done.stdout


def _tell(cable: subprocess.Popen[str], words: str, name: str) -> None:
    assert cable.stdin is not None
    try:
        cable.stdin.write(words)
        cable.stdin.flush()
    except BrokenPipeError as error:
        raise NetworkFailed(f"the cable of {name} has ended") from error


def _expect(cable: subprocess.Popen[str], word: str, name: str) -> None:
    assert cable.stdout is not None
    if (found := cable.stdout.readline().strip()) != word:
        raise NetworkFailed(f"the cable of {name} says {found!r}, want {word!r}")
