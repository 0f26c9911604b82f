"""Debian's proxies with the files of docs/deploy, each as a process on a free port in front of a server."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes import free_port
from tests.support.shared import REPOSITORY

DEPLOY: Final = REPOSITORY / "docs" / "deploy"
_UPSTREAM: Final = "127.0.0.1:8080"


def program(name: str) -> str:
    """The program's path; skips the test if the program is not installed."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def _changed(text: str, *changes: tuple[str, str]) -> str:
    """Return the text with these changes; each of them has to change something."""
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text


def _nginx(server: str, port: int, folder: Path) -> list[str]:
    site = (DEPLOY / "nginx.conf").read_text()
    site = _changed(site, (_UPSTREAM, server), ("listen 80;", f"listen 127.0.0.1:{port};"))
    paths = " ".join(
        f"{each}_temp_path {folder};" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"pid {folder}/pid; error_log stderr; daemon off;\nevents {{}}\n"
        f"http {{ access_log off; {paths}\n{site} }}\n"
    )
    return ["-e", "stderr", "-c", str(config)]


def _ingress(server: str, port: int, folder: Path) -> list[str]:
    """nginx configured as Kubernetes' Ingress: it passes any requested protocol on."""
    arguments = _nginx(server, port, folder)
    config = folder / "nginx.conf"
    upgrades = '    default "";\n    ~*^websocket$ websocket;'
    closed = '    default "";\n    websocket upgrade;'
    config.write_text(
        _changed(
            config.read_text(),
            (upgrades, "    default $http_upgrade;"),
            (closed, '    default upgrade;\n    "" "";'),
        )
    )
    return arguments


def _caddy(server: str, port: int, folder: Path) -> list[str]:
    site = _changed(
        (DEPLOY / "Caddyfile").read_text(),
        (_UPSTREAM, server),
        ("bridge.example {", f"http://:{port} {{\n\tbind 127.0.0.1"),
    )
    config = folder / "Caddyfile"
    config.write_text("{\n\tadmin off\n}\n" + site)
    return ["run", "--adapter", "caddyfile", "--config", str(config)]


def _haproxy(server: str, port: int, folder: Path) -> list[str]:
    """Return the arguments of HAProxy, with connections that all requests share, even where HAProxy is
    usually more careful."""
    site = _changed(
        (DEPLOY / "haproxy.cfg").read_text(),
        (_UPSTREAM, server),
        ("bind :80", f"bind 127.0.0.1:{port}"),
        ("    retries 0", "    http-reuse always\n    retries 0"),
    )
    config = folder / "haproxy.cfg"
    config.write_text("global\n    nbthread 1\n" + site)
    return ["-db", "-f", str(config)]


PROXIES: Final[dict[str, Callable[[str, int, Path], list[str]]]] = {
    "nginx": _nginx,
    "ingress": _ingress,
    "caddy": _caddy,
    "haproxy": _haproxy,
}


@contextmanager
def proxied(name: str, base: str, folder: Path) -> Iterator[str]:
    """The base URL of this proxy in front of the server at `base`; `folder` has the proxy's files."""
    binary, port = program("nginx" if name == "ingress" else name), free_port()
    arguments = PROXIES[name](base.removeprefix("http://"), port, folder)
    environment = {
        **os.environ,
        **{each: str(folder) for each in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")},
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([binary, *arguments], stdout=log, stderr=log, env=environment)
        try:
            while not _listens(port):
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
