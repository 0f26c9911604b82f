"""The user's data folder, and the sealing keys in it."""

from __future__ import annotations

import hmac
import os
import secrets
import sys
import tempfile
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
    """Return the user's data folder on this platform (on Linux by the XDG base directory specification),
    which may not exist yet."""
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
    """Create this folder, and those above it, for this user only, if they do not exist
    (`Path.mkdir(parents=True)` would give parents the default mode). Raises OSError."""
    missing = [folder]
    missing += takewhile(lambda each: not each.exists(), folder.parents)
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    return folder


def check_writable(folder: Path) -> None:
    """Create this folder if it does not exist, and try to write to it. Raises OSError."""
    with tempfile.TemporaryFile(dir=make_private(folder)):
        pass


KEY_BYTES: Final = 32
_FILE: Final = "sealing.key"
_URL_SAFE: Final = str.maketrans("-_", "+/")
_log = structlog.get_logger(__name__)


class ServerSealer(Sealer):
    """Seals `encrypted_content` with the first of the configured keys. Without any, it uses the keys in the
    data folder, where one is made once, so that content can be opened after a restart and by other workers.
    Each of the keys opens. They are loaded when they are first needed: most servers never seal anything."""

    def __init__(self, key_env: str | None = None, folder: Path | None = None) -> None:
        """`key_env` is the environment variable with the keys. Raises ConfigError."""
        self._given = None if key_env is None else configured_keys(key_env)
        self._folder = folder

    def seal(self, payload: bytes, kind: str) -> str:
        return self._sealer.seal(payload, kind)

    def open(self, text: str) -> Sealed:
        return self._sealer.open(text)

    def bound(self, owner: str) -> Sealer:
        return _BoundSealer(self, owner)

    def with_key(self) -> Sealer:
        """Return the sealer with the loaded keys."""
        return self._sealer

    def derived_keys(self, purpose: str) -> list[bytes]:
        """Return keys of 32 bytes for another purpose, one for each key that opens; the first is for
        signing."""
        return [hmac.digest(key, purpose.encode(), "sha256") for key in self._keys]

    @cached_property
    def _keys(self) -> list[bytes]:
        return self._given or kept_keys(self._folder or data_folder())

    @cached_property
    def _sealer(self) -> Sealer:
        first, *others = self._keys
        return Sealer(first, others=others)


class _BoundSealer(Sealer):
    """A sealer for one owner that loads its keys when they are first needed."""

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


def configured_keys(variable: str) -> list[bytes]:
    """Return the keys in this environment variable, each 32 bytes in hex or base64, separated by commas.
    Raises ConfigError."""
    text = os.environ.get(variable, "").strip()
    if not text:
        raise ConfigError(f"the environment variable {variable} is not set", "$.sealing_key_env")
    keys = [_decoded_key(each.strip()) for each in text.split(",")]
    valid_keys = [key for key in keys if key is not None]
    if len(valid_keys) < len(keys):
        what = f"key {keys.index(None) + 1} of {len(keys)} in the environment variable {variable}"
        raise ConfigError(f"{what} is not {KEY_BYTES} bytes in hex or base64", "$.sealing_key_env")
    return valid_keys


def _decoded_key(text: str) -> bytes | None:
    for read in (bytes.fromhex, _of_base64):
        try:
            key = read(text)
        except (ValueError, Base64Error):
            continue
        if len(key) == KEY_BYTES:
            return key
    return None


def kept_keys(folder: Path) -> list[bytes]:
    """Return the keys in the data folder, in which one is made if there is none. If it can't be written, the
    key is for this process only, which is logged. Raises ConfigError for a file with other content."""
    path = folder / _FILE
    try:
        make_private(folder)
        _make(path)
        data = path.read_bytes()
    except OSError as error:
        _log.warning("sealing.key_not_kept", reason=error.strerror)
        return [secrets.token_bytes(KEY_BYTES)]
    if not data or len(data) % KEY_BYTES:
        raise ConfigError(f"{path} has no keys of {KEY_BYTES} bytes: it has {len(data)} bytes")
    return [data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)]


def _make(path: Path) -> None:
    """Write a key atomically, unless there is one already: only one of several workers succeeds."""
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
