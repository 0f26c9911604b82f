"""How the process is started: its command line, and an environment without the server's secrets."""

from __future__ import annotations

import os
import sys
from importlib import resources
from typing import Final

from openresponses_server.settings import CodexSettings
from openresponses_server.settings.files import expanded

# folders, languages and certificates; keys and proxies with passwords are given by name in the settings
_PASSED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "CODEX_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
)


def environment_of(settings: CodexSettings) -> dict[str, str]:
    """The environment of the process."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    own = {"CODEX_HOME": settings.home} if settings.home is not None else {}
    return {**passed, **own, **{name: expanded(value) for name, value in settings.env.items()}}


def command_of(settings: CodexSettings) -> list[str]:
    """The command line: the launcher, and what it becomes."""
    launcher = resources.files(__package__).joinpath("launcher.py")
    python = [sys.executable, "-I", "-S", str(launcher), str(os.getpid())]
    return [*python, settings.path, "app-server", *settings.args]
