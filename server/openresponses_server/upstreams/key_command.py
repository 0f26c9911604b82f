"""Keys that expire, printed by a program of the operator."""

from __future__ import annotations

import asyncio
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_server.errors import UpstreamError
from openresponses_server.observation.recordings.masking import Secrets
from openresponses_server.processes import EndingProtocol, kill_group
from openresponses_server.upstreams.base import called
from openresponses_server.upstreams.refusals import said_in

_log = structlog.get_logger(__name__)
_KEY_SECONDS: Final = 30.0  # the time in which the program must have ended
_KEY_BYTES: Final = 64 * 1024  # of what it prints, and of its standard error that is logged
_READ: Final = 8 * 1024
_LAST_WORDS: Final = 0.5  # seconds for reading what an ended program has written, if others hold its output
_EARLY: Final = 60.0  # seconds before a key expires, at most a tenth of its life
_REFUSED_AGAIN: Final = 60.0  # seconds for which a refused key is not asked for once more
_FAILED_AGAIN: Final = 1.0  # seconds for which a failure of the program is answered without running it
_KEPT_KEYS: Final = 4  # that texts of the upstream are cleaned of
_PRINTED: Final = re.compile(r"[!-~]{1,16384}")  # the characters of a header's value without spaces
_NO_KEYS: Final = ("{", "[", '"', "<", "(")  # how JSON and pages begin, and no key
_KEY_FIELDS: Final = ("accessToken", "access_token", "token", "key")  # az, OAuth, Copilot
_TIME_FIELDS: Final = ("expires_on", "expires_at", "expiresAt", "expiry", "expirationTimestamp", "expiration")
_T = TypeVar("_T")


class PrintedKey(NamedTuple):
    """A key, and when it expires, in seconds since the epoch; None if it does not say."""

    key: str
    expires: float | None = None


def printed_key(output: bytes, now: float) -> PrintedKey | None:
    """The key that a program printed, alone or in a JSON object; None if it printed something else. A JSON
    Web Token says itself when it expires (RFC 7519, section 4.1.4)."""
    text = output.decode("utf-8", "replace").strip()
    is_key = not text.startswith(_NO_KEYS)
    fields = {} if is_key else _object(text)
    key = text if is_key else next((fields[name] for name in _KEY_FIELDS if name in fields), None)
    if not isinstance(key, str) or not _PRINTED.fullmatch(key):
        return None
    times = (_time(fields[name]) for name in _TIME_FIELDS if name in fields)
    expires = next((each for each in times if each is not None), None)
    lasts = fields.get("expires_in")
    if expires is None and isinstance(lasts, int | float):
        expires = now + lasts
    return PrintedKey(key, _time(_claims(key).get("exp")) if expires is None else expires)


def _object(text: str) -> dict[str, Any]:
    try:
        value = decode_json(text.encode())
    except WireError:
        return {}
    return value if isinstance(value, dict) else {}


def _claims(token: str) -> dict[str, Any]:
    """The claims of a JSON Web Token, whose signature is not checked; {} for another text."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _object(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)).decode())
    except ValueError:
        return {}


def _time(value: Any) -> float | None:
    """Return the seconds of the epoch, from a number, its digits or a time with its zone."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return float(value) if value.isascii() and value.isdigit() and len(value) < 13 else None
        return None if at.tzinfo is None else at.timestamp()
    return float(value) if isinstance(value, int | float) and 0 < value < 10**12 else None


class KeyCommand:
    """The key that a program prints, kept until shortly before it expires. Requests that need it at once
    share one run. `clock` returns seconds of the epoch."""

    def __init__(
        self, name: str, argv: Sequence[str], seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        """`name`: that of the upstream. `seconds`: how long to keep a key that does not say when it
        expires."""
        self.argv = list(argv)
        self.secrets: list[str] = []
        """The latest keys."""
        self._name = name
        self._seconds = seconds
        self._clock = clock
        self._kept_until = self._refused_until = self._failed_until = 0.0
        self._failure = ""
        self._run: asyncio.Task[str] | None = None

    async def try_with(self, work: Callable[[str], Awaitable[_T]], *, again: bool = True) -> _T:
        """Call `work` with the key, and once more with a new one if the upstream refuses it. Without `again`
        the new key is only for later calls. Raises what `work` raises, and UpstreamError if there is no
        key."""
        key = await self._key()
        try:
            return await work(key)
        except UpstreamError as error:
            if error.code != UpstreamError.AUTHENTICATION:
                raise
            other = await self._key(refused=key)
            if other == key or not again:
                raise
        return await work(other)

    def kept_key(self) -> str | None:
        """Return the key that a request would be sent with now; None if the program would be run first."""
        return self.secrets[-1] if self.secrets and self._clock() < self._kept_until else None

    async def _key(self, refused: str = "") -> str:
        now = self._clock()
        key = self.secrets[-1] if self.secrets else None
        if key is not None and now < self._kept_until and (key != refused or now < self._refused_until):
            return key
        if refused and key == refused:
            self._refused_until = now + _REFUSED_AGAIN
        if self._run is None:
            if now < self._failed_until:
                raise self._error()
            self._run = asyncio.create_task(self._print())
            self._run.add_done_callback(self._end)
        try:
            return await asyncio.shield(self._run)
        except (OSError, ValueError, TimeoutError) as error:
            raise self._error() from error

    def _end(self, run: asyncio.Task[str]) -> None:
        self._run = None
        error = None if run.cancelled() else run.exception()
        if error is not None:
            self._failure = f"the key command ended {error}" if str(error) else "the key command failed"
            self._failed_until = self._clock() + _FAILED_AGAIN
            _log.warning("upstream.no_key", upstream=self._name, program=self.argv[0], cause=str(error))

    def _error(self) -> UpstreamError:
        return UpstreamError(
            502,
            f"this server has no key for the {called(self._name)} at the moment",
            code=UpstreamError.UNREACHABLE,
            cause="the key command failed",
        )

    async def _print(self) -> str:
        """Run the program and keep its key. Raises OSError if it can't be started, TimeoutError, and
        ValueError if it prints no key."""
        code, output, errors = await self._run_program()
        now = self._clock()
        printed = printed_key(output, now) if code == 0 and len(output) <= _KEY_BYTES else None
        known = [
            *self.secrets,
            *([] if printed is None else [printed.key]),
            output.decode("utf-8", "replace"),
        ]
        if line := said_in(errors, Secrets(known).out_of):
            _log.warning("upstream.key_command", upstream=self._name, said=line)
        if printed is None:
            raise ValueError(f"it ended with code {code}" if code else "it printed no key")
        life = self._seconds if printed.expires is None else max(0.0, printed.expires - now)
        self._kept_until = now + life - min(_EARLY, life / 10)
        if printed.key not in self.secrets[-1:]:
            self.secrets = [*self.secrets[1 - _KEPT_KEYS :], printed.key]
        return printed.key

    async def _run_program(self) -> tuple[int | None, bytes, bytes]:
        """Run the program to its end; returns its code and the beginnings of what it has written. Raises
        OSError if it can't be started, and TimeoutError."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: EndingProtocol(loop),
            *self.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # its own process group, to be ended with its children
        )
        assert protocol.stdout is not None
        assert protocol.stderr is not None
        output, errors = bytearray(), bytearray()
        reading = asyncio.gather(_read(protocol.stdout, output), _read(protocol.stderr, errors))
        try:
            async with asyncio.timeout(_KEY_SECONDS):
                await protocol.ended.wait()
            await asyncio.wait((reading,), timeout=_LAST_WORDS)
        except TimeoutError:
            raise TimeoutError(f"it did not end within {_KEY_SECONDS:g} seconds") from None
        finally:
            if transport.get_returncode() is None:
                kill_group(transport.get_pid())
                await protocol.ended.wait()
            reading.cancel()
            await asyncio.wait((reading,))
            transport.close()
        return transport.get_returncode(), bytes(output), bytes(errors)

    async def close(self) -> None:
        """Kill the program if it runs."""
        if self._run is not None:
            self._run.cancel()
            with suppress(asyncio.CancelledError, OSError, ValueError):
                await self._run


async def _read(stream: asyncio.StreamReader, beginning: bytearray) -> None:
    """Read a stream to its end, and keep its first bytes, one more than are used."""
    while data := await stream.read(_READ):
        beginning += data[: _KEY_BYTES + 1 - len(beginning)]
