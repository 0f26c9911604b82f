"""Two servers for all tests here: one over the demo model, one over a scripted upstream."""

from collections.abc import Iterator

import pytest

from server.settings import Settings, Timeouts, UpstreamSettings
from tests.support.serving import serving
from tests.support.upstream import ScriptedUpstream

FAST = Timeouts(connect=1.0, first_byte=1.0, idle=1.2, total=10.0)


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


@pytest.fixture(scope="package")
def bridged(upstream: ScriptedUpstream) -> Iterator[str]:
    """A server in front of it, with short timeouts."""
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url, name="scripted")],
        timeouts=FAST,
        max_body_bytes=100_000,
        keep_alive=0.2,
    )
    with serving(settings) as base:
        yield base
