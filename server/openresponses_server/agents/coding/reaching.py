"""The server that an agent is to use, as it is found: whether it is one of ours, and which models it has."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

_PATIENCE: Final = 10.0
_MOST_BYTES: Final = 64 * 1024 * 1024
_LISTENING: Final = "0A"  # /proc/net/tcp


class Unusable(Exception):
    """A server that can't be used; the message says why. `answers`: it is one of ours, and refuses the
    key."""

    def __init__(self, message: str, *, answers: bool = False) -> None:
        super().__init__(message)
        self.answers = answers


class Models(Struct, frozen=True):
    """`listed` as `/v1/models` has them, `catalog` as Codex describes them."""

    listed: list[dict[str, Any]]
    catalog: list[dict[str, Any]]


def models_of(base: str, key: str | None) -> Models:
    """The models of the server at this address. Raises Unusable: it does not answer, wants another key, or is
    not one of ours."""
    status, body = _get(f"{base}/v1/models?client_version=1", key)
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise Unusable(f"what answers at {base} is not openresponses-bridge")
    if status == 401 and isinstance(said.get("error"), dict):
        what = f"the server at {base} asks for a key, or for another one: name its variable with --key-env"
        raise Unusable(what, answers=True)
    data, models = said.get("data"), said.get("models")
    if status != 200 or not isinstance(data, list) or not isinstance(models, list):
        raise Unusable(
            f"what answers at {base} is not openresponses-bridge, or an older one (status {status})"
        )
    return Models(
        [each for each in data if isinstance(each, dict)], [each for each in models if isinstance(each, dict)]
    )


def _get(url: str, key: str | None) -> tuple[int, bytes]:
    """Without any proxy. Nothing is followed."""
    address = urlsplit(url)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        port = address.port
    except ValueError:
        port = -1
    if address.scheme not in ("http", "https") or not address.hostname or port == -1:
        raise Unusable(f"{url!r} is not an address as http://HOST:PORT")
    if address.scheme == "https":
        context = ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address.hostname, port, timeout=_PATIENCE, context=context
        )
    else:
        connection = http.client.HTTPConnection(address.hostname, port, timeout=_PATIENCE)
    try:
        connection.request("GET", f"{address.path}?{address.query}", headers=headers)
        response = connection.getresponse()
        return response.status, response.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise Unusable(
            f"the server at {address.scheme}://{address.netloc} does not answer: {error}"
        ) from error
    finally:
        connection.close()


def listens(host: str, port: int) -> bool:
    """Whether anything accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def is_of_this_user(port: int, tables: Path = Path("/proc/net")) -> bool:
    """Whether whatever listens on this port of 127.0.0.1 was started by this user or by root, as far as the
    system says so (Linux does): a port of this machine may be anyone's, and it is sent keys and the user's
    files. False where nothing listens."""
    owners, said = set(), False
    for table in ("tcp", "tcp6"):
        try:
            lines = (tables / table).read_text().splitlines()[1:]
        except OSError:
            continue
        said = True
        for line in lines:
            fields = line.split()
            if len(fields) > 7 and fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                owners.add(int(fields[7]))
    return not said or (bool(owners) and owners <= {os.getuid(), 0})
