"""Starting over a store or a log that does not work: what waiting does not mend ends `serve` before it says
that it listens; what may come back is waited for."""

import json
import signal
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from sqlalchemy import make_url

from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import upgrade
from tests.support.debug_mode import without_durations
from tests.support.failing_store import store_ends_within
from tests.support.processes import base_of, started
from tests.support.services import own_postgres, own_redis, postgres_database, redis_server
from tests.support.serving import call, ready, respond, serving
from tests.support.upstream import ScriptedUpstream


def ended(folder: Path, *flags: str) -> tuple[int, str]:
    """The exit code of a `serve` that ends by itself, and what it said."""
    with started(*flags, folder=folder) as process:
        out, err = process.communicate()
        assert out == ""
        assert "Traceback" not in err
        assert "hunter2" not in err
        return process.returncode, err


def _garbage(path: Path) -> None:
    path.write_text("no database" * 100)


def _newer(path: Path) -> None:
    upgrade(database_url(f"sqlite:///{path}"))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE openresponses_bridge_version SET version_num = '9999'")
        database.execute("UPDATE openresponses_bridge_usable SET oldest = '9998'")


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE responses (id TEXT)")


def _loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (_garbage, "not a SQLite database"),
        (_newer, "revision 9999"),
        (_foreign, "table `responses`"),
        (Path.mkdir, "can't be opened"),
        (_loop, "Too many levels of symbolic links"),
    ],
)
def test_sqlite_file_that_can_not_be_used_ends_it(
    tmp_path: Path, prepare: object, message: str, workers: str
) -> None:
    path = tmp_path / "s.sqlite3"
    assert callable(prepare)
    prepare(path)
    code, output = ended(tmp_path, "--store", f"sqlite:///{path}", "--workers", workers)
    assert code == 1
    assert message in output
    assert str(path) in output


def test_postgres_that_refuses_ends_it(tmp_path: Path) -> None:
    with postgres_database() as url:
        nobody = make_url(url).set(username="nobody_here", password="hunter2")
        code, output = ended(tmp_path, "--store", nobody.render_as_string(hide_password=False))
    assert code == 1
    assert 'role "nobody_here" does not exist' in output


@pytest.mark.parametrize(
    ("flag", "address", "message"),
    [
        ("--store", "postgresql+psycopg://me:hunter2@127.0.0.1/x?bogus=1", "bogus"),
        ("--event-log", "redis://:hunter2@127.0.0.1/abc", "'abc'"),
    ],
)
def test_address_that_can_not_be_used_ends_it(tmp_path: Path, flag: str, address: str, message: str) -> None:
    code, output = ended(tmp_path, flag, address)
    assert code == 2
    assert message in output


def test_redis_that_refuses_ends_it(tmp_path: Path) -> None:
    with redis_server() as url:
        code, output = ended(
            tmp_path, "--store", "memory://", "--event-log", f"redis://{urlsplit(url).netloc}/9999"
        )
    assert code == 1
    assert "The event log refuses access" in output


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_postgres_that_may_come_back_is_waited_for(tmp_path: Path, workers: str) -> None:
    with ExitStack() as stack:
        postgres = stack.enter_context(own_postgres())
        postgres.stop()
        address = make_url(f"{postgres.url}/test").set(drivername="postgresql+psycopg", password="hunter2")
        flags = ("--store", address.render_as_string(hide_password=False), "--workers", workers)
        process = stack.enter_context(started(*flags, folder=tmp_path))
        base = base_of(process)
        out = ready(base, status=503)
        assert out.error["message"] == "The session store can't be reached."
        assert respond(base, model="demo").status == 503
        assert respond(base, model="demo", store=False).status == 200
        postgres.start()
        assert ready(base).json["status"] == "ready"
        stored = respond(base, model="demo").json
        assert call(base, "GET", f"/v1/responses/{stored['id']}").json == stored
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.stderr is not None
        stderr = without_durations(process.stderr.read())
        assert "Connection refused" in stderr.partition("\n")[0]
        assert "hunter2" not in stderr


def test_store_that_a_newer_release_has_upgraded_is_warned_of_in_the_log_alone(tmp_path: Path) -> None:
    """What starts a server reads its address in the first line of its output."""
    with postgres_database() as store:
        upgrade(database_url(store))
        with psycopg.connect(store.replace("+psycopg", ""), autocommit=True) as admin:
            admin.execute("UPDATE openresponses_bridge_version SET version_num = '9999'")
        with started("--store", store, folder=tmp_path) as process:
            assert ready(base_of(process)).json["status"] == "ready"
            process.send_signal(signal.SIGINT)
            _out, stderr = process.communicate()
    assert json.loads(without_durations(stderr).partition("\n")[0])["event"] == "store.other_revision"


def test_redis_that_is_out_is_reported_and_the_server_is_ready_all_the_same(tmp_path: Path) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(own_redis())
        redis.stop()
        process = stack.enter_context(started("--store", "memory://", "--event-log", redis.url))
        base = base_of(process)
        assert process.stderr is not None
        line = ""
        while not line:
            line = without_durations(process.stderr.readline())
        assert line.startswith("The event log can't be reached: ")
        assert f"127.0.0.1:{urlsplit(redis.url).port}" in line
        assert ready(base).json["event_log"] == "The event log can't be reached."  # no address for clients
        redis.start()
        while "event_log" in ready(base).json:
            time.sleep(0.05)


def test_s1_what_can_not_be_stored_is_refused_before_the_upstream_is_asked(
    tmp_path: Path, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.sqlite3"
    local = UpstreamSettings(url=upstream.url, name="local")
    with serving(Settings(upstreams=[local], store=f"sqlite:///{path}", lease=2.0)) as base:
        assert respond(base, model="m").status == 200
        path.rename(path.with_name("away"))
        store_ends_within(monkeypatch, 0.1)
        while True:  # the store is looked at every now and then, not at each request
            count = len(upstream.received)
            assert respond(base, model="m").error["code"] == "store_unavailable"
            if len(upstream.received) == count:
                break
        assert respond(base, model="m", store=False).status == 200
        path.with_name("away").rename(path)
        monkeypatch.undo()
        assert respond(base, model="m").status == 200
