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
    from openresponses_bridge.corpus import Case, Report
    from openresponses_bridge.corpus.foreign import ForeignCase
    from openresponses_bridge.protocol.events import Event
    from openresponses_cli.commands.playing import ScenarioResult

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


class StreamToDecode:
    """The type of the fixture `openresponses_streams`: a stream, and the check of what was decoded from
    it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        """Its id, events, bytes and everything that is expected: `openresponses_bridge.corpus.Case`."""

    @property
    def body(self) -> bytes:
        """The bytes of the server-sent stream."""
        return self.case.body

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of the stream, in the pieces in which a reader gets them."""
        return list(self.case.pieces)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events as JSON objects."""
        return self.case.events

    def check(self, **facts: Any) -> None:
        """Fail the test unless these facts are those of the stream: `status`, `text`, `calls` (`call_id`,
        `name`, `arguments`), `refusal`, `reasoning`, `summary`, `citations`, `usage`, `error`,
        `incomplete_reason`, or a whole `response`. TypeError for other facts."""
        __tracebackhide__ = True
        from openresponses_bridge.corpus import differences

        _fail_for(self.case.id, self.case.asks, differences(self.case.expected, _report(self.case.id, facts)))


class StreamToBridge:
    """The type of the fixture `openresponses_foreign_streams`: another API's stream, and the check of the
    response made from it."""

    def __init__(self, case: ForeignCase) -> None:
        self.case = case
        """Its id, dialect (chat, anthropic or gemini), frames and everything that is expected."""

    @property
    def dialect(self) -> str:
        return self.case.dialect

    @property
    def body(self) -> bytes:
        """The bytes of the server-sent stream."""
        return self.case.body

    def check(
        self,
        stream: bytes | str | Iterable[bytes | str | Event | Mapping[str, Any]],
        wire: WireName = "auto",
    ) -> dict[str, Any]:
        """Fail the test unless the bridge's stream keeps the protocol and its response is that of this
        stream. Returns the response."""
        __tracebackhide__ = True
        from openresponses_bridge.corpus import report_of

        response = _checked(stream, wire)
        mismatches = self.case.differences(report_of(self.case.id, response))
        _fail_for(self.case.id, self.case.asks, mismatches)
        return response


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "openresponses(*names, wire='both'): which cases the fixtures openresponses_streams and "
        "openresponses_foreign_streams have",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each stream that its fixture stands for."""
    marked = metafunc.definition.get_closest_marker("openresponses")
    names, options = (marked.args, marked.kwargs) if marked is not None else ((), {})
    if "openresponses_streams" in metafunc.fixturenames:
        from openresponses_bridge.corpus import chosen_ids

        wire = options.get("wire", "both")
        ids = chosen_ids(names, ("openresponses", "openai") if wire == "both" else (wire,))
        metafunc.parametrize("openresponses_streams", ids, indirect=True)
    if "openresponses_foreign_streams" in metafunc.fixturenames:
        from openresponses_bridge.corpus.foreign import foreign_ids

        ids = [id for id in foreign_ids() if not names or {id, *id.split("/")} & set(names)]
        metafunc.parametrize("openresponses_foreign_streams", ids, indirect=True)


@pytest.fixture
def openresponses_streams(request: pytest.FixtureRequest) -> StreamToDecode:
    """A stream of the corpus: the test runs once for each, on both wires and in each variant. The marker
    `openresponses` chooses: `@pytest.mark.openresponses("text", "crlf", wire="openai")`."""
    from openresponses_bridge.corpus import case

    return StreamToDecode(case(request.param))


@pytest.fixture
def openresponses_foreign_streams(request: pytest.FixtureRequest) -> StreamToBridge:
    """A stream of Chat Completions, Anthropic's Messages or Gemini, for a bridge: the test runs once for
    each. The marker `openresponses` chooses: `@pytest.mark.openresponses("chat")`."""
    from openresponses_bridge.corpus.foreign import foreign_case

    return StreamToBridge(foreign_case(request.param))


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
        return _checked(stream, wire)

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
            from openresponses_cli.commands.playing import (
                Unreachable,
                api_base,
                failures_by_cause,
                play_all,
            )
        except ModuleNotFoundError as error:
            what = f"openresponses_conform needs {error.name}, which is not installed"
            raise ModuleNotFoundError(f"{what}: pip install openresponses-server", name=error.name) from None

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


def _checked(stream: Any, wire: WireName) -> dict[str, Any]:
    """Return the response that a stream ends with. Raises AssertionError if it breaks the protocol."""
    __tracebackhide__ = True
    from openresponses_bridge.conformance.judging import validate_capture

    violations, response = validate_capture(stream, wire)
    if violations:
        lines = [f"the stream breaks the protocol ({len(violations)} violations):"]
        lines += [f"  {each}" for each in violations[:_SHOWN]]
        if len(violations) > _SHOWN:
            lines.append(f"  and {len(violations) - _SHOWN} more")
        raise AssertionError("\n".join(lines))
    return response


def _report(id: str, facts: Mapping[str, Any]) -> Report:
    """Return the facts as a report. Raises TypeError for anything else."""
    from msgspec import ValidationError, convert

    from openresponses_bridge.corpus import Report

    if unknown := facts.keys() - set(Report.__struct_fields__) | ({"id"} & facts.keys()):
        raise TypeError(f"a stream is not checked for {', '.join(sorted(unknown))}")
    try:
        return convert({**facts, "id": id}, Report, from_attributes=True)
    except ValidationError as error:
        raise TypeError(f"these are not facts of a stream: {error}") from error


def _fail_for(id: str, asks: str, mismatches: list[str]) -> None:
    __tracebackhide__ = True
    if mismatches:
        raise AssertionError("\n".join([f"{id}: {asks}", *(f"  {each}" for each in mismatches)]))


def _names(names: Collection[str]) -> Collection[str]:
    return [names] if isinstance(names, str) else names


def _run(begin: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run the coroutine on a thread, because the test may itself run in an event loop. Returns its result."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(begin())).result()
