"""Where this platform keeps what belongs to the user who serves."""

from __future__ import annotations

import os
import secrets
import sys
from base64 import b64decode
from binascii import Error as Base64Error
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Final

import structlog

from openresponses_bridge.seal import Sealed, Sealer
from openresponses_server.settings.files import ConfigError

_FOLDER: Final = "openresponses-bridge"


def data_folder() -> Path:
    """The user's data folder (on Linux the XDG base directory specification); it need not exist yet."""
    home = Path.home()
    if sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        named = Path(os.environ.get("XDG_DATA_HOME", ""))
        base = named if named.is_absolute() else home / ".local" / "share"
    return base / _FOLDER


def make_private(folder: Path) -> Path:
    """This folder, made if need be for this user alone, and so are all of the folders above it that are made:
    `Path.mkdir(parents=True)` gives them the usual rights. What is there keeps its rights. Raises OSError."""
    missing = [folder]
    missing += takewhile(lambda each: not each.exists(), folder.parents)
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    return folder


# The key that seals `encrypted_content`: the configured one, else one made once and kept in the data
# folder, so that what a client was given still opens after a restart and at another worker.

KEY_BYTES: Final = 32
_FILE: Final = "sealing.key"
_URL_SAFE: Final = str.maketrans("-_", "+/")
_log = structlog.get_logger(__name__)


class ServerSealer(Sealer):
    """A sealer that gets its key when it first needs one: most servers never seal anything."""

    def __init__(self, key_env: str | None = None, folder: Path | None = None) -> None:
        self._given = None if key_env is None else configured_key(key_env)
        self._folder = folder

    def seal(self, payload: bytes, kind: str) -> str:
        return self._sealer.seal(payload, kind)

    def open(self, text: str) -> Sealed:
        return self._sealer.open(text)

    def bound(self, owner: str) -> Sealer:
        return _BoundSealer(self, owner)

    def with_key(self) -> Sealer:
        """The sealer behind it."""
        return self._sealer

    @cached_property
    def _sealer(self) -> Sealer:
        return Sealer(self._given or kept_key(self._folder or data_folder()))


class _BoundSealer(Sealer):
    """The same for one owner, as late."""

    def __init__(self, of: ServerSealer, owner: str) -> None:
        self._of = of
        self._for = owner

    def seal(self, payload: bytes, kind: str) -> str:
        return self._sealer.seal(payload, kind)

    def open(self, text: str) -> Sealed:
        return self._sealer.open(text)

    def bound(self, owner: str) -> Sealer:
        return self._of.bound(owner)

    @cached_property
    def _sealer(self) -> Sealer:
        return self._of.with_key().bound(self._for)


def configured_key(variable: str) -> bytes:
    """The key in this environment variable, 32 bytes in hex or base64. Raises ConfigError."""
    text = os.environ.get(variable, "").strip()
    if not text:
        raise ConfigError(f"the environment variable {variable} is not set", "$.sealing_key_env")
    for read in (bytes.fromhex, _of_base64):
        try:
            key = read(text)
        except (ValueError, Base64Error):
            continue
        if len(key) == KEY_BYTES:
            return key
    what = f"the environment variable {variable} does not hold {KEY_BYTES} bytes in hex or base64"
    raise ConfigError(what, "$.sealing_key_env")


def kept_key(folder: Path) -> bytes:
    """The key in the data folder, made if there is none. Where it can't be kept it lasts as long as the
    process, which is logged. Raises ConfigError for a file that holds something else."""
    path = folder / _FILE
    try:
        make_private(folder)
        _make(path)
        key = path.read_bytes()
    except OSError as error:
        _log.warning("sealing.key_not_kept", reason=error.strerror)
        return secrets.token_bytes(KEY_BYTES)
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} is not a key: it has {len(key)} bytes and not {KEY_BYTES}")
    return key


def _make(path: Path) -> None:
    """Put a key there, whole or not at all, unless there is one: of several workers one succeeds."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_bytes(secrets.token_bytes(KEY_BYTES))
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


def _of_base64(text: str) -> bytes:
    return b64decode(text.translate(_URL_SAFE), validate=True)
