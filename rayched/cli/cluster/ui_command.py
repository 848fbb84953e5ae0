"""ui: the page in a browser, signed in."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import webbrowser
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from rayched.cli.cluster.gateway_command import check_gateway, gateway_beside
from rayched.cli.connection import connected
from rayched.cli.context_option import chosen_context
from rayched.cli.options import Server
from rayched.cli.printing import fail, note, out, wrong
from rayched.client.contexts import choose
from rayched.pki.client_token import CallerFiles, TokenFiles, token_in
from rayched.pki.errors import PkiError

_TOKEN_SECONDS: Final = 12 * 3600
"""A working day; what it stands for is in the browser's memory for as long as the tab is open."""
_CALL_SECONDS: Final = 5.0
_PAUSES_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)
"""Until the gateway's replica has read that there is a new token. Until then each attempt counts as a wrong one, and of these
an address has few."""


def ui(
    server: Server = None,
    gateway: Annotated[
        str | None,
        typer.Option("--gateway", metavar="URL,...", help="Where gateways are; none: beside the replicas.", show_default=False),
    ] = None,
    prints: Annotated[bool, typer.Option("--print", help="Print the address, and open nothing.")] = False,
) -> None:
    """Open the page in a browser, signed in as you.

    \b
      rayched ui
      rayched ui --print      for a browser elsewhere

    Where the context has a certificate, a token for twelve hours is made, which `rayched token list` shows. The address has a
    code in its place, which serves once, within a minute.
    """
    try:
        chosen = choose(server, chosen_context())
    except ValueError as error:
        wrong(str(error))
    files = chosen.files
    if gateway is None and isinstance(files, TokenFiles):
        wrong(f"--gateway: is needed, as context {chosen.context} has a token, and its servers say where that is shown alone")
    scheme = "http" if files is None else "https"
    urls = [one.strip().rstrip("/") for one in (gateway or "").split(",") if one.strip()]
    urls = urls or [gateway_beside(endpoint, scheme) for endpoint in chosen.endpoints]
    for url in urls:
        check_gateway(url)
        if files is not None and not url.startswith("https://"):
            wrong(f"--gateway {url}: want https://, as the context shows who you are")
    place = _first_that_answers([_Place(url, None if files is None else files.ca) for url in urls])
    address = f"{place.url}/ui/"
    if files is not None:
        address += f"#code={_code(place, files, server)}"
        note(f"its certificate is of the cluster's own authority, {files.ca}, which the browser may not know")
    if prints or not webbrowser.open(address):
        out(address)
    else:
        note(f"{place.url}/ui/ is opened in the browser")


@dataclass(frozen=True, slots=True)
class _Place:
    """A gateway."""

    url: str
    ca: Path | None
    """Its authority; None: there is no TLS."""

    def asked(self, method: str, path: str, token: str = "") -> tuple[int, Any]:
        """The code, and the document that came with it, if it is one. Raises OSError, HTTPException."""
        host = urlsplit(self.url).netloc
        connection = (
            http.client.HTTPConnection(host, timeout=_CALL_SECONDS)
            if self.ca is None
            else http.client.HTTPSConnection(host, timeout=_CALL_SECONDS, context=ssl.create_default_context(cafile=self.ca))
        )
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(data)
        except ValueError:
            return answer.status, None


def _first_that_answers(places: Iterable[_Place]) -> _Place:
    """Ends the command where none does."""
    faults = []
    for place in places:
        try:
            code, _ = place.asked("GET", "/livez")
        except (OSError, http.client.HTTPException) as error:
            faults.append(f"{place.url} ({error})")
            continue
        if code == 200:
            break
        faults.append(f"{place.url} (it answers {code})")
    else:
        fail(f"no gateway answers at {', '.join(faults)}; start one with `rayched gateway`, or name another with --gateway")
    return place


def _code(place: _Place, files: CallerFiles, server: str | None) -> str:
    """Ends the command where there is none."""
    if isinstance(files, TokenFiles):
        try:
            return _code_for(place, token_in(files))
        except PkiError as error:
            fail(str(error))
    with connected(server) as client:
        issued = client.issue_token("", _TOKEN_SECONDS, "rayched ui")
        try:
            return _code_for(place, issued.secret)
        except SystemExit:
            # Nobody has it.
            client.revoke_token(issued.token.id)
            raise


def _code_for(place: _Place, token: str) -> str:
    for pause in (*_PAUSES_SECONDS, 0.0):
        try:
            code, found = place.asked("POST", "/ui/code", token)
        except (OSError, http.client.HTTPException) as error:
            fail(f"{place.url}: {error}")
        if code != 401:
            break
        time.sleep(pause)
    if code != 200:
        said = found["error"] if isinstance(found, dict) and "error" in found else f"it answers {code}"
        fail(f"{place.url}: {said}")
    return str(found["code"])
