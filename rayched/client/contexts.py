"""Contexts: by which servers a cluster is reached, and with which certificate or token. One file each below the user's settings.

    $XDG_CONFIG_HOME/rayched/contexts/NAME.yaml     servers, ca, and cert and key, or token
    $XDG_CONFIG_HOME/rayched/current                NAME of the one that is used where none is named

Which one counts: the one that is named ($RAYCHED_CONTEXT, `--context`), by its name or by the path of its file; else, where
servers are named, the one that lists all of them, the current one first (one that lists some alone is an error); else the
current one. Where there is none, or where `none` is named, calls go out without TLS.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rayched.client.endpoints import DEFAULT_ENDPOINTS, endpoints_of, named_endpoints
from rayched.pki import private_files
from rayched.pki.client_credentials import ClientCertificate
from rayched.pki.client_token import CallerFiles, ClientToken, ShownByCaller, TokenFiles
from rayched.pki.errors import PkiError
from rayched.pki.tls_files import TlsFiles

CONTEXT_VARIABLE: Final = "RAYCHED_CONTEXT"
NO_CONTEXT: Final = "none"
"""In the place of a name: no TLS, whatever contexts there are."""
CONTEXT_FILE: Final = "context.yaml"
"""Of a context that lies beside its certificate."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?")
_SUFFIX: Final = ".yaml"
_FIELDS: Final = (("servers", "ca", "cert", "key"), ("servers", "ca", "token"))


class ContextError(ValueError):
    """A context that cannot be used: one line with its file or name."""


@dataclass(frozen=True, slots=True)
class ClientContext:
    """One cluster as a caller reaches it."""

    name: str
    servers: tuple[str, ...]
    """host:port each."""
    files: CallerFiles


@dataclass(frozen=True, slots=True)
class ChosenServers:
    """Where calls go, and what is shown there."""

    endpoints: tuple[str, ...]
    files: CallerFiles | None = None
    """None: no TLS."""
    context: str = ""

    def certificate(self) -> ShownByCaller | None:
        """Or the token; read from its files. Raises ContextError."""
        if self.files is None:
            return None
        try:
            return ClientToken(self.files) if isinstance(self.files, TokenFiles) else ClientCertificate(self.files)
        except PkiError as error:
            where = f"context {self.context!r}: " if self.context else ""
            raise ContextError(f"{where}{error}") from None


def choose(
    servers: str | Sequence[str] | None = None,
    context: str | None = None,
    files: CallerFiles | None = None,
    *,
    insecure: bool = False,
) -> ChosenServers:
    """What counts, see above; `files` that are given count before any context, and so does that there is no TLS (`insecure`).

    Raises ValueError, ContextError among them.
    """
    name = context or os.environ.get(CONTEXT_VARIABLE, "")
    named = named_endpoints(servers)
    if files is not None or insecure or name == NO_CONTEXT:
        return ChosenServers(named or DEFAULT_ENDPOINTS, files)
    if name:
        found = read_context(name)
        return ChosenServers(named or found.servers, found.files, name)
    listing = _listing(named) if named else _current()
    if listing is None:
        return ChosenServers(named or DEFAULT_ENDPOINTS)
    return ChosenServers(named or listing.servers, listing.files, listing.name)


def contexts_directory() -> Path:
    return _directory() / "contexts"


def current_context() -> str:
    """The name; empty: none is current."""
    try:
        return (_directory() / "current").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, ContextError):
        return ""


def read_context(name: str) -> ClientContext:
    """`name`: what has a slash is the path of its file. Raises ContextError."""
    path = Path(name) if "/" in name else _path(name)
    if not path.exists() and "/" in name:
        raise ContextError(f"context {name!r}: there is no such file")
    if not path.exists():
        known = ", ".join(context_names()) or "none yet"
        raise ContextError(f"context {name!r}: there is no {path}; known are: {known}")
    try:
        return _read(name, path, private_files.read_private(path).decode())
    except (PkiError, UnicodeDecodeError) as error:
        raise ContextError(f"context {name!r}: {error}") from None


def context_names() -> list[str]:
    try:
        return sorted(path.name.removesuffix(_SUFFIX) for path in contexts_directory().glob(f"*{_SUFFIX}"))
    except ContextError:
        return []


def write_context(context: ClientContext, *, make_current: bool) -> Path:
    """Its file, in place of an earlier one. Raises ContextError."""
    path = _path(context.name)
    try:
        private_files.make_directory(_directory())
        private_files.make_directory(contexts_directory())
        write_context_file(path, context.servers, context.files)
        if make_current:
            _make_current(context.name)
    except PkiError as error:
        raise ContextError(f"context {context.name!r}: {error}") from None
    return path


def write_context_file(path: Path, servers: Sequence[str], files: CallerFiles) -> None:
    """A context of no name, for whoever is given its path; in place of an earlier one. Raises PkiError.

    Files beside it are named without their directory: so all of them can be carried elsewhere together.
    """
    lines = ["servers:", *(f"- {server}" for server in servers)]
    shown = [("token", files.token)] if isinstance(files, TokenFiles) else [("cert", files.certificate), ("key", files.key)]
    for field, file in (("ca", files.ca), *shown):
        lines.append(f"{field}: {_quoted(Path(file.name) if file.parent == path.parent else file)}")
    private_files.replace(path, ("\n".join(lines) + "\n").encode())


def use_context(name: str) -> None:
    """Makes one that is there current. Raises ContextError."""
    read_context(name)
    try:
        _make_current(name)
    except PkiError as error:
        raise ContextError(f"context {name!r}: {error}") from None


def _make_current(name: str) -> None:
    private_files.replace(_directory() / "current", f"{name}\n".encode())


def remove_context(name: str) -> None:
    """The file, and its being current. Nothing where there is none."""
    _path(name).unlink(missing_ok=True)
    if current_context() == name:
        (_directory() / "current").unlink(missing_ok=True)


def _directory() -> Path:
    if configuration := os.environ.get("XDG_CONFIG_HOME"):
        return Path(configuration) / "rayched"
    try:
        return Path.home() / ".config" / "rayched"
    except RuntimeError:
        raise ContextError("contexts lie below $HOME/.config, and this user has no home; set XDG_CONFIG_HOME") from None


def _path(name: str) -> Path:
    if name == NO_CONTEXT:
        raise ContextError(f"context {name!r}: says that there is no TLS, so no context has that name")
    if not _NAME.fullmatch(name):
        raise ContextError(f"context {name!r}: want a name of letters, digits, '-', '.' and '_', at most 63 characters")
    return contexts_directory() / f"{name}{_SUFFIX}"


def _current() -> ClientContext | None:
    name = current_context()
    return read_context(name) if name else None


def _listing(servers: tuple[str, ...]) -> ClientContext | None:
    """The context that has all of these servers. Raises ContextError where there is one for some of them alone."""
    current = current_context()
    partly: ClientContext | None = None
    for name in sorted(context_names(), key=lambda one: (one != current, one)):
        found = read_context(name)
        if set(servers) <= set(found.servers):
            return found
        if partly is None and set(servers) & set(found.servers):
            partly = found
    if partly is not None:
        listed = ", ".join(one for one in servers if one in partly.servers)
        others = ", ".join(one for one in servers if one not in partly.servers)
        raise ContextError(
            f"context {partly.name!r} lists {listed}, but not {others}: name the context for all of them, or {NO_CONTEXT!r}"
        )
    return None


def _read(name: str, path: Path, text: str) -> ClientContext:
    # Not at the top: whoever has no context does not wait for it.
    import yaml

    try:
        found: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ContextError(f"context {name!r}, {path}: is no YAML ({' '.join(str(error).split())[:200]})") from None
    fields = next((one for one in _FIELDS if isinstance(found, dict) and set(found) == set(one)), None)
    if fields is None:
        has = ", ".join(map(str, found)) if isinstance(found, dict) else type(found).__name__
        wanted = ", or ".join(", ".join(one) for one in _FIELDS)
        raise ContextError(f"context {name!r}, {path}: has {has or 'nothing'}; want the fields {wanted}")
    servers = found["servers"]
    if not isinstance(servers, list) or not servers or not all(isinstance(one, str) for one in servers):
        raise ContextError(f"context {name!r}, {path}: servers: want a list of host:port")
    places = {field: found[field] for field in fields[1:]}
    for field, place in places.items():
        if not isinstance(place, str) or not place:
            raise ContextError(f"context {name!r}, {path}: {field}: want the path of a file")
    # Beside the context, where it is no absolute path.
    ca, *shown = (path.parent / place for place in places.values())
    files = TokenFiles(ca, *shown) if "token" in places else TlsFiles(ca, *shown)
    return ClientContext(name, endpoints_of(servers), files)


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
