"""`serve` as a process of its own: the greeting, the flags, several workers, and refusals."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from openresponses_cli.commands.serve import _print_startup
from openresponses_server.settings import Limits, Settings
from tests.support.processes import base_of, started
from tests.support.serving import call, respond, stream
from tests.support.upstream import Script, ScriptedUpstream, text
from tests.support.waiting import wait_until


@contextmanager
def serve(*flags: str) -> Iterator[tuple[str, str]]:
    """(base URL, curl line) of a server started from the command line."""
    with started(*flags) as process:
        base = base_of(process)
        assert process.stdout is not None
        yield base, process.stdout.readline()


def refused(*flags: str) -> str:
    """What is said of flags that can't be used."""
    done = CliRunner().invoke(main, ["serve", *flags])
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    return " ".join(done.stderr.split())


def answered(base: str) -> list[bool]:
    """Whether these hosts are allowed: one.example, two.example, three.example."""
    hosts = (f"{name}.example" for name in ("one", "two", "three"))
    return [call(base, "GET", "/healthz", headers={"host": host}).status == 200 for host in hosts]


def test_greeting_is_an_address_and_a_curl_line_that_work() -> None:
    with serve() as (base, curl):
        assert base.startswith("http://127.0.0.1:")
        wait_until(lambda: call(base, "GET", "/readyz").status == 200)  # its first look may be slow
        shown = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("event: response.created")
    assert shown.stdout.endswith("data: [DONE]\n\n")


def test_s10_flags_lead_every_model_to_the_upstream_and_replace_hosts_of_a_variable(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_ALLOWED_HOSTS", "one.example, two.example")
    upstream.scripts["real-name"] = Script(text("Hi"))
    flags = ["--upstream", upstream.url, "--dialect", "chat", "--model", "real-name"]
    flags += ["--allowed-host", "two.example", "--allowed-host", "three.example"]
    with serve(*flags) as (base, curl):
        assert stream(base, model="any-name").final["model"] == "any-name"
        assert "real-name" in curl
        assert answered(base) == [False, True, True]
    assert upstream.last("real-name").body["model"] == "real-name"


def test_several_workers_share_the_port() -> None:
    with serve("--workers", "2") as (base, _):
        assert all(respond(base, model="demo").status == 200 for _ in range(10))


def test_s10_config_file_and_hosts_of_a_variable(
    tmp_path: Path, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_ALLOWED_HOSTS", "one.example, two.example")
    config = tmp_path / "bridge.toml"
    config.write_text(f'[[upstreams]]\nname = "local"\nurl = "{upstream.url}"\nmodels = ["a", "b"]\n')
    with serve("--config", str(config)) as (base, _):
        models = call(base, "GET", "/v1/models").json["data"]
        assert [(each["id"], each["owned_by"]) for each in models] == [("a", "local"), ("b", "local")]
        assert respond(base, model="b").status == 200
        assert respond(base, model="c").status == 404
        assert answered(base) == [True, True, False]


def test_s7_without_keys_only_loopback_is_bound() -> None:
    assert "loopback" in refused("--host", "0.0.0.0")


def test_flags_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    assert "--upstream" in refused("--model", "m")
    assert "morse" in refused("--upstream", "http://127.0.0.1:1", "--dialect", "morse")
    assert "NO_SUCH_KEY" in refused("--upstream", "http://127.0.0.1:1", "--api-key-env", "NO_SUCH_KEY")
    assert "nonsense" in refused("--upstream", "nonsense")
    assert "redis" in refused("--store", "redis://x")
    assert "missing.toml" in refused("--config", str(tmp_path / "missing.toml"))


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        output = refused("--port", port)
    assert f"can't listen on 127.0.0.1:{port}: Address already in use; --port takes another one" in output


@pytest.mark.parametrize(
    ("workers", "event_log", "warned"),
    [(2, "memory://", True), (1, "memory://", False), (2, "redis://127.0.0.1/0", False)],
)
def test_several_workers_with_an_event_log_each_are_warned_of(
    capsys: pytest.CaptureFixture[str], workers: int, event_log: str, warned: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        _print_startup(Settings(workers=workers, store="sqlite:", event_log=event_log), listener)
    assert ("its own event log" in capsys.readouterr().err) == warned


@pytest.mark.parametrize(
    ("workers", "event_log", "warned"), [(2, "memory://", True), (1, "memory://", False)]
)
def test_limits_that_each_worker_counts_by_itself_are_warned_of(
    capsys: pytest.CaptureFixture[str], workers: int, event_log: str, warned: bool
) -> None:
    limits = Limits(requests_per_minute_per_key=60)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        _print_startup(Settings(workers=workers, event_log=event_log, limits=limits), listener)
        assert ("counts the limits per key for itself" in capsys.readouterr().err) == warned
        _print_startup(Settings(workers=workers, event_log=event_log), listener)
        assert "counts the limits" not in capsys.readouterr().err


def test_s7_a_name_that_begins_like_loopback_is_not() -> None:
    assert "loopback" in refused("--host", "127.example.com")


def test_s10_a_host_with_a_scheme_is_refused() -> None:
    assert "--allowed-host: 'http://one.example' is not" in refused("--allowed-host", "http://one.example")


@pytest.mark.parametrize("flag", ["--record", "--trace"])
def test_a_folder_that_can_not_be_written_to_ends_the_start(tmp_path: Path, flag: str) -> None:
    """Also for root, whom permissions don't stop: a file lies where a folder has to be made."""
    (tmp_path / "file").touch()
    inside = tmp_path / "file" / "inside"
    done = CliRunner().invoke(main, ["serve", "--port", "0", "--store", "memory://", flag, str(inside)])
    assert done.exit_code == 2
    assert f"{flag}: the folder {str(inside)!r} can't be written to" in done.stderr


def test_the_folders_that_are_written_to_are_named_at_the_start(tmp_path: Path) -> None:
    with started("--record", str(tmp_path / "r"), "--trace", str(tmp_path / "t")) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(6)]
    assert f"  record: {tmp_path}/r, what upstreams are sent and answer\n" in lines
    assert f"  trace: {tmp_path}/t, all that each response sends and gets, kept for 1d\n" in lines
    assert (tmp_path / "r").is_dir()
