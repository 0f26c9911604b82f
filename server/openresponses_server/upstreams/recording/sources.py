"""Which recordings an upstream's settings name: the one that it is, the one that is made of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from openresponses_server.observation.recordings.captures import Unreadable
from openresponses_server.observation.recordings.reader import Exchange, Recording, read_recording
from openresponses_server.observation.recordings.writer import Tap
from openresponses_server.settings import SettingsError, Timeouts
from openresponses_server.settings.setting_tables import Playback
from openresponses_server.upstreams.connections import Connect, Requests
from openresponses_server.upstreams.dialects import HttpDialect
from openresponses_server.upstreams.http1.pool import Connections
from openresponses_server.upstreams.recording.played import PlayedRequests
from openresponses_server.upstreams.recording.recorded import RecordingRequests


class Source:
    """The recording that is an upstream; `dialect` is the one that was asked for, if one was. Raises
    SettingsError about `.url`."""

    def __init__(self, path: Path, dialect: str | None) -> None:
        try:
            self.recording: Recording = read_recording(path)
        except Unreadable as error:
            raise SettingsError(f"{path}: {error}", ".url") from error
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror or error}", ".url") from error
        found = [each for each in self.recording.exchanges if each.asked.leg == "upstream"]
        spoken = list(dict.fromkeys(each.asked.dialect for each in found))
        if dialect is None and len(spoken) > 1:
            raise SettingsError(
                f"{path} has exchanges in {', '.join(spoken)}: say which with dialect", ".url"
            )
        self.dialect = dialect or (spoken[0] if spoken else None)
        self.exchanges: list[Exchange] = [each for each in found if each.asked.dialect == self.dialect]
        if not self.exchanges:
            what = "no exchanges with an upstream" if not found else f"no exchanges in {self.dialect}"
            raise SettingsError(f"{path} has {what}", ".url")

    def connect(self, playback: Playback) -> Connect:
        """What answers in the place of connections."""

        def answering(name: str, _timeouts: Timeouts) -> Requests:
            return PlayedRequests(self.recording, self.exchanges, playback, name)

        return answering


def recorded_connect(
    tap: Tap, dialect: HttpDialect, url: str, secrets: Iterable[str], connect: Connect | None = None
) -> Connect:
    """Connections to an upstream at this address, or what `connect` makes instead, that are recorded. Raises
    ValueError for an address that can't be used."""
    base = dialect.address(url)
    password = urlsplit(base).password or ""
    hidden = [*secrets, password, unquote(password)]

    def connected(name: str, timeouts: Timeouts) -> Requests:
        requests = (connect or Connections)(name, timeouts)
        return RecordingRequests(requests, tap(name), name, dialect.dialect.name, base, hidden)

    return connected
