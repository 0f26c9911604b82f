"""A server, and the `keys` commands over its store."""

import re
from typing import Any

from click.testing import CliRunner, Result

from openresponses_cli.commands.cli import main
from tests.support.serving import Reply, call
from tests.support.waiting import wait_until


class Managed:
    """A server, and the `keys` command over its store."""

    def __init__(self, base: str, store: str) -> None:
        self.base, self.store = base, store

    def keys(self, what: str, *arguments: str) -> Result:
        return CliRunner().invoke(
            main, ["keys", what, "--store", self.store, *arguments], catch_exceptions=False
        )

    def add(self, *arguments: str) -> tuple[str, dict[str, str]]:
        """Add a key, and return its id and its request header."""
        result = self.keys("add", *arguments)
        assert result.exit_code == 0, result.output
        key = result.stdout.strip()
        assert re.fullmatch(r"orb_[\w-]{43}", key)
        return result.stderr.split()[0], {"authorization": f"Bearer {key}"}

    def becomes(self, headers: dict[str, str], status: int, path: str = "/v1/models", **body: Any) -> Reply:
        """Repeat the request until the answer has this status, and return the answer."""
        replies: list[Reply] = []

        def has_status() -> bool:
            replies.append(call(self.base, "POST" if body else "GET", path, body or None, headers))
            return replies[-1].status == status

        wait_until(has_status)
        return replies[-1]
