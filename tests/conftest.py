"""Fixtures for all tests (shared folder, snapshots, logs, async back end) and the profiles of Hypothesis."""

import os
import signal
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from openresponses_server.serving.memory import tune_gc
from openresponses_server.serving.preload import gc_paused
from tests.support import forked_workers, time_limits
from tests.support.debug_mode import log_no_durations
from tests.support.forked_workers import shared_by_workers
from tests.support.logs import log_as_in_production
from tests.support.scale import FACTOR
from tests.support.shared import require_shared
from tests.support.snapshots import SnapshotFiles
from tests.support.tracing import Tracing

# No deadline and no health check for slowness: the machine may be busy, and each test has its timeout.
# In CI Hypothesis generates the same examples in each run, so that a failure can be repeated.
settings.register_profile(
    "modest",
    deadline=None,
    max_examples=60 * FACTOR,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", parent=settings.get_profile("modest"), max_examples=2_000)
settings.register_profile("quick", parent=settings.get_profile("modest"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "modest"))


# A shell starts background jobs with SIGINT ignored, and the processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@shared_by_workers
def _make_character_table() -> None:
    """Hypothesis makes a table of all characters, and keeps it in a file; in a fresh clone every worker would
    make it."""
    st.text().validate()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Run tests in several processes, if asked for."""
    pluginmanager.register(forked_workers)


def pytest_configure(config: pytest.Config) -> None:
    """Limit the time of async tests, and trace only what tests run."""
    config.pluginmanager.register(time_limits)
    config.pluginmanager.register(Tracing())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze the collected tests, which exist until the end of the run: the garbage collector examines them
    neither during collection, where that took a fifth of the time, nor later, when it runs as seldom as in a
    server."""
    with gc_paused():
        collected = yield
    tune_gc()
    return collected


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded streams and the published schema; the test skips where it is absent."""
    return require_shared()


@pytest.fixture
def snapshot(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Compare with `assert value == snapshot`: the file is the one that `@snapshots` names, and `make
    snapshots` writes it."""
    return snapshot.use_extension(SnapshotFiles)


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests store out of the user's own data folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _logs_of_modules() -> None:
    """Discard the log lines of fixtures that live as long as a module."""
    log_no_durations()
    log_as_in_production()


@pytest.fixture(autouse=True)
def logs() -> Iterator[StringIO]:
    """The lines that the code logs during a test, formatted as production writes them to a file."""
    lines = StringIO()
    log_as_in_production(lines)
    yield lines
    log_as_in_production()
