"""The results of a run of the extension host."""

from typing import Any

from tests.clients.vscode.hostile import Hostile
from tests.support.upstream import ScriptedUpstream


class Played:
    """The results of another extension over scripted upstreams, by check, and the requests to the
    upstreams."""

    def __init__(self, results: dict[str, Any], upstream: ScriptedUpstream) -> None:
        self.results = results
        self.upstream = upstream


class Attacked:
    """The results of another extension, by check, and the requests to the servers."""

    def __init__(self, results: dict[str, Any], hostile: Hostile, stranger: Hostile) -> None:
        self.results = results
        self.hostile = hostile
        self.stranger = stranger
