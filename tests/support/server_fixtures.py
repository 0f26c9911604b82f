"""Fixtures: the servers that tests of a package share, over the demo model and over a scripted upstream."""

from collections.abc import Iterator

import pytest

from openresponses_server.settings import Limits, Settings, Timeouts, UpstreamSettings
from tests.support.direct_writes import DirectWrites, watched_writing
from tests.support.fetched_files import PUBLIC, Files, public_files
from tests.support.searxng import HIT, found, settings
from tests.support.serving import FAST, HASTY, PATIENT, serving
from tests.support.upstream import ScriptedUpstream

DIALECTS = ("chat", "anthropic", "responses")


@pytest.fixture(scope="package", autouse=True)
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep files that a server stores for its user in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="package")
def demo() -> Iterator[str]:
    """A server over the built-in model."""
    with serving(Settings()) as base:
        yield base


@pytest.fixture(scope="package")
def upstream() -> Iterator[ScriptedUpstream]:
    """A Chat Completions server that plays the scripts a test gives it."""
    with ScriptedUpstream() as scripted:
        yield scripted


@pytest.fixture(autouse=True)
def _as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove a test's scripts, pages, models and recorded requests after the test: many tests use the same
    names and paths."""
    own = getattr(request.node, "callspec", None)  # a parameter of a test may have the same name
    if "upstream" not in request.fixturenames or (own is not None and "upstream" in own.params):
        yield
        return
    shared: ScriptedUpstream = request.getfixturevalue("upstream")
    scripts, pages = dict(shared.scripts), dict(shared.pages)
    models, answer = shared.models, shared.answer
    yield
    shared.models, shared.answer = models, answer
    shared.scripts.clear()
    shared.scripts.update(scripts)
    shared.pages.clear()
    shared.pages.update(pages)
    shared.received.clear()


def _bridged(upstream: ScriptedUpstream, timeouts: Timeouts) -> Settings:
    return Settings(
        upstreams=[UpstreamSettings(url=upstream.url, name="scripted")],
        timeouts=timeouts,
        max_body_bytes=100_000,
        keep_alive=0.2,
    )


@pytest.fixture(scope="package")
def bridged(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server in front of the scripted upstream."""
    with serving(_bridged(upstream, PATIENT)) as base:
        yield base


@pytest.fixture(scope="package")
def bridged_hasty(upstream: ScriptedUpstream) -> Iterator[str]:
    """The same with short timeouts, for an upstream that becomes silent."""
    with serving(_bridged(upstream, FAST)) as base:
        yield base


def _many(upstream: ScriptedUpstream, timeouts: Timeouts) -> Settings:
    upstreams = [
        UpstreamSettings(name=dialect, url=upstream.url, dialect=dialect, models=[f"{dialect}-*"])
        for dialect in DIALECTS
    ]
    return Settings(upstreams=upstreams, timeouts=timeouts, keep_alive=0.1)


@pytest.fixture(scope="package")
def many(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server over three upstreams, one of each dialect: `chat-…`, `anthropic-…`, `responses-…`."""
    with serving(_many(upstream, PATIENT)) as base:
        yield base


@pytest.fixture(scope="package")
def many_hasty(upstream: ScriptedUpstream) -> Iterator[str]:
    """The same with short timeouts, for an upstream that becomes silent."""
    with serving(_many(upstream, HASTY)) as base:
        yield base


@pytest.fixture(scope="package")
def stored() -> Iterator[str]:
    """The base URL of a server over the demo model that makes frequent checkpoints."""
    with serving(Settings(checkpoint_interval=0.1, lease=2.0)) as base:
        yield base


@pytest.fixture
def narrow() -> Iterator[str]:
    """The base URL of such a server that makes only one response at a time."""
    with serving(Settings(checkpoint_interval=0.1, limits=Limits(concurrent=1))) as base:
        yield base


@pytest.fixture
def written() -> Iterator[DirectWrites]:
    """The pieces that the servers of a test write without ASGI's `send`."""
    with watched_writing() as written:
        yield written


@pytest.fixture
def searxng() -> Iterator[ScriptedUpstream]:
    """A stand-in for SearXNG that finds one page."""
    with ScriptedUpstream() as server:
        server.pages["/search"] = found(HIT)
        yield server


@pytest.fixture
def searching(upstream: ScriptedUpstream, searxng: ScriptedUpstream) -> Iterator[str]:
    """A server over the scripted upstream that uses this stand-in."""
    with serving(settings(upstream, searxng)) as base:
        yield base


@pytest.fixture
def lookups() -> dict[str, list[list[str]]]:
    """The addresses that a look-up finds for each name, the first time and later."""
    return {"files.example": [[PUBLIC]]}


@pytest.fixture
def files(lookups: dict[str, list[list[str]]]) -> Iterator[Files]:
    """A server of files that the tested code takes for a public one, under the names in `lookups`."""
    with public_files(lookups) as served:
        yield served
