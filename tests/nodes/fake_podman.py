"""A program that behaves as podman does where the driver relies on it: images, containers, attached clients, sessions of exec.

It keeps real processes. As with podman each container has a monitor, `conmon -n NAME`, that is nobody's child, adopts what the
container leaves behind, kills all of it when main ends, and writes down how that was; the client that started it only watches. A
container sees the host's files, and its limit of memory is kept by looking. Options that podman does not have, or that the driver
should not need, are errors.

`installed(directory)` makes the program; its state is in files beside it, by which a test sets what it wants:

    registry        names of images that can be fetched, one a line
    images          those that are there, with their user behind a blank
    broken          it answers nothing, and says the file's text
    controllers     JSON of the controllers of cgroups that it can use; without the file the usual ones
    slow            fetching takes so many seconds, unless the file goes before
    slow-start      the same of the begin of a container
    calls           what it was called with, one JSON array a line
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

NEVER = "0001-01-01T00:00:00Z"
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.02
_REPO = Path(__file__).parents[2]


def installed(directory: Path) -> Path:
    """The program, with nothing fetched and nothing to fetch."""
    directory.mkdir(parents=True)
    (directory / "containers").mkdir()
    for name in ("registry", "images", "calls"):
        (directory / name).touch()
    python = Path(sys.executable).resolve()
    (directory / "conmon").symlink_to(python)
    program = directory / "podman"
    program.write_text(
        f"#!{python} -IS\nimport sys\nsys.path.insert(0, {str(_REPO)!r})\n"
        f"from tests.nodes.fake_podman import main\nmain({str(directory)!r}, sys.argv[1:])\n"
    )
    program.chmod(0o755)
    return program


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def calls(program: Path) -> list[list[str]]:
    """What it was called with."""
    return [json.loads(line) for line in lines(program.parent / "calls")]


def add_image(program: Path, name: str, user: str = "") -> None:
    with (program.parent / "images").open("a") as file:
        file.write(f"{name} {user}\n")


class FakeError(Exception):
    """What podman says on its errors, with its exit code."""

    def __init__(self, text: str, code: int = 125) -> None:
        super().__init__(text)
        self.code = code


class StrictParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FakeError(f"unknown flag: {message}")


class Fake:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    # ------------------------------------------------------------------------------------------------------------- store

    def path(self, name: str) -> Path:
        return self.directory / "containers" / f"{name}.json"

    def save(self, found: dict[str, Any]) -> None:
        fresh = self.path(found["Name"]).with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(found))
        fresh.replace(self.path(found["Name"]))

    def container(self, name: str) -> dict[str, Any]:
        for path in (self.directory / "containers").glob("*.json"):
            found: dict[str, Any] = json.loads(path.read_text())
            if name in (found["Name"], found["Id"]):
                state = found["State"]
                if state["Status"] == "running" and not alive(state["Pid"]) and not alive(state["ConmonPid"]):
                    state |= {"Status": "exited", "ExitCode": 255, "Unseen": True}
                return found
        raise FakeError(f'no container with name or ID "{name}" found: no such container')

    def images(self) -> dict[str, str]:
        pairs = (line.partition(" ") for line in lines(self.directory / "images"))
        return {name: user for name, _, user in pairs}

    # ---------------------------------------------------------------------------------------------------------- commands

    def run(self, words: list[str]) -> int:
        broken = self.directory / "broken"
        if broken.exists():
            raise FakeError(broken.read_text().strip())
        match words:
            case ["info", "--format", "{{.Version.Version}} {{json .Host.CgroupControllers}}"]:
                controllers = self.directory / "controllers"
                print(f"4.9.9-fake {controllers.read_text() if controllers.exists() else json.dumps(['cpu', 'memory', 'pids'])}")
            case ["image", "exists", image]:
                return int(image not in self.images())
            case ["image", "inspect", "--format", "{{.Config.User}}", image]:
                print(self.images()[image])
            case ["images", "--format", "json"]:
                print(json.dumps([{"Names": [name], "Size": 1000 * len(name)} for name in self.images()] + [{"Size": 7}]))
            case ["image", "rm", image]:
                self.remove_image(image)
            case ["pull", "--quiet", image]:
                self.pull(image)
            case ["create", *options]:
                self.create(options)
            case ["start", "--attach", "--sig-proxy=false", name]:
                return self.start(name)
            case ["container", "inspect", "--format", "{{json .State}}", name]:
                print("time=now level=warning msg=of no interest", file=sys.stderr)
                print(json.dumps(self.container(name)["State"]))
            case ["exec", *options]:
                return self.execute(options)
            case ["rm", "--force", "--ignore", "--time", "0", "--volumes", *names]:
                self.remove(names)
            case ["ps", "--all", "--format", "json", *options]:
                self.list(options)
            case _:
                raise FakeError(f"unknown command or flags: {words}")
        return 0

    def linger(self, name: str) -> None:
        asked = self.directory / name
        ends_at = time.monotonic() + (float(asked.read_text()) if asked.exists() else 0.0)
        while asked.exists() and time.monotonic() < ends_at:
            time.sleep(_LOOK_SECONDS)

    def remove_image(self, image: str) -> None:
        if image not in self.images():
            raise FakeError(f"{image}: image not known", 1)
        containers = [json.loads(path.read_text()) for path in (self.directory / "containers").glob("*.json")]
        if any(one["Image"] == image for one in containers):
            raise FakeError("image is in use by a container: consider listing external containers", 2)
        left = [f"{name} {user}\n" for name, user in self.images().items() if name != image]
        (self.directory / "images").write_text("".join(left))

    def pull(self, image: str) -> None:
        self.linger("slow")
        if image not in lines(self.directory / "registry"):
            raise FakeError(f"initializing source docker://{image}: reading manifest: manifest unknown")
        if image not in self.images():
            with (self.directory / "images").open("a") as file:
                file.write(f"{image} \n")

    def create(self, words: list[str]) -> None:
        parser = StrictParser(add_help=False, allow_abbrev=False)
        for option in (
            "name",
            "pull",
            "log-driver",
            "restart",
            "network",
            "http-proxy",
            "systemd",
            "hostname",
            "user",
            "workdir",
        ):
            parser.add_argument(f"--{option}", default="")
        for option in (
            "memory",
            "memory-swap",
            "cpu-period",
            "cpu-quota",
            "cpu-shares",
            "pids-limit",
            "oom-score-adj",
            "entrypoint",
            "env-file",
        ):
            parser.add_argument(f"--{option}", default="")
        for option in ("label", "env", "mount", "group-add"):
            parser.add_argument(f"--{option}", action="append", default=[])
        for option in ("replace", "no-healthcheck"):
            parser.add_argument(f"--{option}", action="store_true")
        behind = words.index("--")
        asked = parser.parse_args(words[:behind])
        image, *arguments = words[behind + 1 :]
        if image not in self.images():
            raise FakeError(f"{image}: image not known")
        if self.path(asked.name).exists() and not asked.replace:
            raise FakeError(f'the container name "{asked.name}" is already in use')
        pairs = [line.partition("=") for line in [*lines(Path(asked.env_file)), *asked.env]]
        self.save(
            {
                "Id": hashlib.sha256(asked.name.encode()).hexdigest(),
                "Name": asked.name,
                "Image": image,
                "Labels": dict(label.partition("=")[::2] for label in asked.label),
                "Env": {name: value for name, _, value in pairs},
                "Argv": [*(json.loads(asked.entrypoint) if asked.entrypoint else []), *arguments] or ["sleep", "100000"],
                "Memory": int(asked.memory.removesuffix("b") or 0),
                "User": asked.user,
                "Workdir": asked.workdir or "/",
                "Mounts": asked.mount,
                "State": {"Status": "created", "Pid": 0, "ConmonPid": 0, "ExitCode": 0, "OOMKilled": False, "StartedAt": NEVER},
            }
        )
        print(hashlib.sha256(asked.name.encode()).hexdigest())

    def start(self, name: str) -> int:
        self.container(name)
        self.linger("slow-start")
        told = self.with_monitor("run", name, [])
        if told["code"] is None:
            raise FakeError(f"unable to start container {name!r}: {told['text']}", 127)
        return int(told["code"])

    def execute(self, words: list[str]) -> int:
        options: list[str] = []
        while words[0].startswith("-"):
            option = words.pop(0)
            options += [words.pop(0)] if option == "--env" else []
            if option not in ("--env", "--interactive", "--tty"):
                raise FakeError(f"unknown flag: {option}")
        name, *argv = words
        if self.container(name)["State"]["Status"] != "running":
            raise FakeError("can only create exec sessions on running containers: container state improper", 255)
        told = self.with_monitor("exec", name, [json.dumps(options), *argv])
        if told["code"] is None:
            raise FakeError(told["text"], 127)
        return int(told["code"])

    def with_monitor(self, kind: str, name: str, more: list[str]) -> dict[str, Any]:
        """What it says at its end."""
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        child = os.fork()
        if child == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            conmon = str(self.directory / "conmon")
            text = f"import sys; sys.path.insert(0, {str(_REPO)!r}); from tests.nodes.fake_podman import monitor; monitor()"
            where = [str(self.directory), str(writing)]
            os.execve(conmon, [conmon, "-IS", "-c", text, kind, "-n", name, *where, *more], {"PATH": os.environ["PATH"]})
        os.waitpid(child, 0)
        os.close(writing)
        with open(reading, encoding="utf-8") as file:
            found: dict[str, Any] = json.loads(file.read() or '{"code": 137}')
        return found

    def remove(self, names: list[str]) -> None:
        for name in names:
            try:
                found = self.container(name)
            except FakeError:
                continue
            state = found["State"]
            if state.pop("Unseen", False):
                # As podman itself: that the monitor was killed too is seen now, and nothing more is done.
                self.save(found)
                raise FakeError(f"cannot remove container {found['Id']}: sending SIGKILL: container state improper: stopped")
            while alive(state["Pid"]) or alive(state["ConmonPid"]):
                if alive(state["Pid"]):
                    os.kill(state["Pid"], signal.SIGKILL)
                time.sleep(_LOOK_SECONDS)
            self.path(found["Name"]).unlink(missing_ok=True)

    def list(self, options: list[str]) -> None:
        wanted = dict(option.removeprefix("label=").partition("=")[::2] for option in options if option != "--filter")
        found = [json.loads(path.read_text()) for path in (self.directory / "containers").glob("*.json")]
        there = [one for one in found if wanted.items() <= one["Labels"].items()]
        print(json.dumps([{"Id": one["Id"], "Names": [one["Name"]], "Labels": one["Labels"]} for one in there]))


# ------------------------------------------------------------------------------------------------------------------ monitor


def monitor() -> NoReturn:
    """The process beside a container, or beside a further program in it."""
    kind, _, name, directory, writing, *more = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    fake, told = Fake(Path(directory)), os.fdopen(int(writing), "w", encoding="utf-8")
    os.set_inheritable(told.fileno(), False)
    found = fake.container(name)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "container": "podman", **found["Env"]}
    argv = found["Argv"]
    if kind == "exec":
        environment |= dict(pair.partition("=")[::2] for pair in json.loads(more[0]))
        argv = more[1:]
    pid, fault = begun(argv, environment, found)
    if kind == "exec":
        code = ended(pid, 0)[0] if pid else None
    else:
        code = watched(fake, found, pid)
    told.write(json.dumps({"code": code, "text": fault}))
    told.close()
    os._exit(0)


def begun(argv: list[str], environment: dict[str, str], found: dict[str, Any]) -> tuple[int, str]:
    """Its pid, or 0 and why it does not begin."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            user, _, group = found["User"].partition(":")
            if group:
                os.setgid(int(group))
            if user:
                os.setuid(int(user))
            os.chdir(found["Workdir"])
            os.execvpe(argv[0], argv, environment)
        except OSError as error:
            text = f"executable file `{argv[0]}` not found in $PATH: {error.strerror}: OCI runtime attempted to invoke a command"
            os.write(writing, text.encode())
        os._exit(127)
    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        fault = file.read()
    if fault:
        os.waitpid(pid, 0)
        return 0, fault
    return pid, ""


def watched(fake: Fake, found: dict[str, Any], pid: int) -> int | None:
    if not pid:
        return None
    state = found["State"]
    state |= {"Status": "running", "Pid": pid, "ConmonPid": os.getpid(), "StartedAt": datetime.now(UTC).isoformat()}
    fake.save(found)
    code, oom = ended(pid, found["Memory"])
    for left in reversed(below(os.getpid())):
        os.kill(left, signal.SIGKILL)
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    state |= {"Status": "exited", "Pid": 0, "ExitCode": code, "OOMKilled": oom}
    if fake.path(found["Name"]).exists():
        fake.save(found)
    return code


def ended(pid: int, memory: int) -> tuple[int, bool]:
    """Its code, and whether it had more memory than its limit."""
    oom = False
    while True:
        there, status = os.waitpid(-1, os.WNOHANG)
        if there == pid:
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            return (128 + number if number else os.WEXITSTATUS(status)), oom
        if memory and sum(map(resident, [pid, *below(pid)])) > memory:
            oom = True
            os.kill(pid, signal.SIGKILL)
        if not there:
            time.sleep(_LOOK_SECONDS)


def alive(pid: int) -> bool:
    try:
        return bool(pid) and Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def below(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [one for child in map(int, children) for one in (child, *below(child))]


def resident(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("RssAnon:"))


def main(directory: str, words: list[str]) -> NoReturn:
    with (Path(directory) / "calls").open("a") as file:
        file.write(json.dumps(words) + "\n")
    try:
        code = Fake(Path(directory)).run(words)
    except FakeError as error:
        print(f"Error: {error}", file=sys.stderr)
        code = error.code
    sys.stdout.flush()
    os._exit(code)
