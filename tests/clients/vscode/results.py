"""What a run of the extension host came to."""

from typing import Any

from tests.clients.vscode.hostile import Hostile
from tests.support.upstream import ScriptedUpstream


class Played:
    """What another extension got from scripted upstreams, by check, and what they got."""

    def __init__(self, results: dict[str, Any], upstream: ScriptedUpstream) -> None:
        self.results = results
        self.upstream = upstream


class Attacked:
    """What another extension got, by check, and what the servers were asked."""

    def __init__(self, results: dict[str, Any], hostile: Hostile, stranger: Hostile) -> None:
        self.results = results
        self.hostile = hostile
        self.stranger = stranger
