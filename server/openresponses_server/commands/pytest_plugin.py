"""The pytest plugin: fixtures that check streams and servers against the protocol (docs/testing.md).

pytest loads it into every run in an environment with this package, so it imports only pytest until a fixture
is used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from openresponses_bridge.conformance import WireName
    from openresponses_bridge.conformance.scenario import Level
    from openresponses_bridge.protocol.events import Event
    from openresponses_server.commands.playing import ScenarioResult

Result = TypeVar("Result")
_SHOWN = 20  # violations that are listed; the others are counted


class CheckStream(Protocol):
    """The type of the fixture `openresponses_stream`."""

    def __call__(
        self,
        stream: bytes | str | Iterable[bytes | str | Event | Mapping[str, Any]],
        wire: WireName = ...,
    ) -> dict[str, Any]: ...


class Conform(Protocol):
    """The type of the fixture `openresponses_conform`."""

    def __call__(
        self,
        url: str,
        *,
        model: str | None = ...,
        api_key: str | None = ...,
        level: Level = ...,
        only: Collection[str] = ...,
        skip: Collection[str] = ...,
        wire: WireName = ...,
        timeout: float = ...,
    ) -> list[ScenarioResult]: ...


@pytest.fixture(scope="session")
def openresponses_stream() -> CheckStream:
    """`openresponses_stream(stream, wire="auto")` fails the test unless the stream of one response is clean.

    `stream` is the body of a server-sent stream, as a whole or in pieces as they came, or the events
    themselves (structs or JSON objects; a WebSocket's turn comes so). Returns the response that it ended
    with, as a JSON object. TypeError for anything else.
    """

    def check(
        stream: bytes | str | Iterable[bytes | str | Event | Mapping[str, Any]], wire: WireName = "auto"
    ) -> dict[str, Any]:
        __tracebackhide__ = True
        from openresponses_bridge.conformance.judging import validate_capture

        violations, response = validate_capture(stream, wire)
        if violations:
            lines = [f"the stream breaks the protocol ({len(violations)} violations):"]
            lines += [f"  {each}" for each in violations[:_SHOWN]]
            raise AssertionError("\n".join(lines))
        return response

    return check


@pytest.fixture(scope="session")
def openresponses_conform() -> Conform:
    """`openresponses_conform(url, model=…)` plays the scenarios of `conform` against the server at `url` and
    fails the test, with the causes, if one fails. The arguments are the options of the command: `model`,
    `api_key` (the key itself), `level`, `only`, `skip`, `wire`, `timeout` in seconds.

    Returns the verdicts. Raises ValueError for unknown scenarios and a `url` that is not one.
    """

    def conform(
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        level: Level = "full",
        only: Collection[str] = (),
        skip: Collection[str] = (),
        wire: WireName = "openresponses",
        timeout: float = 60.0,
    ) -> list[ScenarioResult]:
        __tracebackhide__ = True
        from openresponses_bridge.conformance.scenarios import chosen

        try:
            from openresponses_server.commands.playing import (
                Unreachable,
                api_base,
                failures_by_cause,
                play_all,
            )
        except ModuleNotFoundError as error:
            what = f"openresponses_conform needs {error.name}, which is not installed"
            raise ModuleNotFoundError(
                f"{what}: pip install 'openresponses-bridge[server]'", name=error.name
            ) from None

        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        scenarios = chosen(level, _names(only), _names(skip))
        base = api_base(url)
        try:
            verdicts, _ = _run(lambda: play_all(scenarios, base, headers, model, wire, timeout))
        except Unreachable as error:
            raise AssertionError(str(error)) from None
        if failures := failures_by_cause(verdicts):
            failed = sum(each.outcome == "failed" for each in verdicts)
            raise AssertionError(f"{failed} of {len(verdicts)} scenarios failed:\n{failures}")
        return verdicts

    return conform


def _names(given: Collection[str]) -> Collection[str]:
    return [given] if isinstance(given, str) else given


def _run(begin: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run the coroutine on a thread, because the test may run in an event loop itself; returns its result."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(begin())).result()
