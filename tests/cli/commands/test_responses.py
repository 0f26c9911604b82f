"""`responses`: what a key's own stored responses are, page by page, and nothing of another key's."""

import json
import os
import re
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from openresponses_cli.agents.coding.discovery import is_of_this_user
from openresponses_cli.commands import server_client
from openresponses_cli.commands.cli import main
from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from tests.support.processes import free_port
from tests.support.serving import respond, serving

EVIL = "words \x1b[2J\u202e\tmore"


@pytest.fixture(scope="module")
def keyed() -> Iterator[str]:
    """A server with two keys: `mine` has made three responses, `other` one."""
    with serving(Settings(api_keys=[hashed("mine"), hashed("other")])) as base:
        for key, text in (("mine", "first"), ("mine", EVIL), ("other", "secret"), ("mine", "third")):
            response = respond(base, {"authorization": f"Bearer {key}"}, model="demo", input=text)
            assert response.status == 200
        yield base


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "mine")
    monkeypatch.setenv("OTHER", "other")
    monkeypatch.setenv("WRONG", "wrong")


def run(base: str, *words: str, key: str = "MINE") -> Result:
    return CliRunner().invoke(main, ["responses", *words, "--server", base, "--api-key-env", key])


def listed(base: str, *words: str, key: str = "MINE") -> list[str]:
    sent = run(base, *words, "--json", key=key)
    assert sent.exit_code == 0, sent.output
    return [json.loads(line)["asked"] for line in sent.stdout.splitlines()]


def test_a_list_has_the_newest_first_and_goes_on(keyed: str) -> None:
    assert listed(keyed, "list") == ["third", EVIL, "first"]
    first = run(keyed, "list", "--limit", "1", "--json")
    response_id = json.loads(first.stdout)["id"]
    assert f"--after {response_id}" in first.stderr
    assert listed(keyed, "list", "--after", response_id) == [EVIL, "first"]


def test_a_key_sees_its_own_alone(keyed: str) -> None:
    assert listed(keyed, "list", key="OTHER") == ["secret"]
    theirs = json.loads(run(keyed, "list", "--json", key="OTHER").stdout)["id"]
    for word in ("show", "delete"):
        sent = run(keyed, word, theirs)
        assert (sent.exit_code, "not found" in sent.stderr) == (1, True)
    refused = run(keyed, "list", key="WRONG")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "wrong" not in refused.stderr


def test_filters_and_search(keyed: str) -> None:
    assert listed(keyed, "search", "FIR") == ["first"]
    assert listed(keyed, "list", "--status", "completed", "--model", "demo", "--since", "1h") != []
    for none in (["--failed"], ["--model", "nobody"], ["--until", "2001-01-01"], ["--status", "queued"]):
        assert listed(keyed, "list", *none) == []
    assert run(keyed, "list", "--since", "yesterday").exit_code == 2


def test_a_pipe_gets_columns_and_nothing_that_a_terminal_obeys(keyed: str) -> None:
    sent = run(keyed, "list")
    rows = [line.split("\t") for line in sent.stdout.splitlines()]
    assert [len(row) for row in rows] == [5, 5, 5]
    assert not {"\x1b", "\u202e"} & set(sent.output)
    assert {row[2] for row in rows} == {"completed"}


def test_a_terminal_gets_a_table(keyed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
    monkeypatch.setenv("TERM", "dumb")
    sent = run(keyed, "list")
    assert "made (UTC)" in sent.stdout
    assert not {"\x1b", "\u202e"} & set(sent.output)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_table_cuts_no_id_and_no_status(keyed: str, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "25")  # without it rich ignores the columns of a dumb terminal
    ids = [json.loads(line)["id"] for line in run(keyed, "list", "--json").stdout.splitlines()]
    table = run(keyed, "list").stdout.splitlines()
    heading, *heads = [line for line in table if not line.startswith(" ")]
    assert heading.split()[0] == "id"
    assert [line.split()[0] for line in heads] == ids
    assert all("completed" in line.split() for line in heads)
    assert len(table) == (len(ids) + 1) * (1 if columns == 200 else 2)


def test_show_is_the_tree_or_the_response(keyed: str) -> None:
    response_id = json.loads(run(keyed, "list", "--json", "--limit", "1").stdout)["id"]
    shown = run(keyed, "show", response_id)
    assert shown.exit_code == 0
    assert "You said: third" in shown.stdout
    assert "violations" not in shown.stdout  # it was not judged
    response = json.loads(run(keyed, "show", response_id, "--json").stdout)
    assert (response["id"], response["object"]) == (response_id, "response")


def test_export_has_each_response_with_its_input(keyed: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    sent = run(keyed, "export", str(path))
    assert sent.exit_code == 0, sent.output
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["input"][0]["content"][0]["text"] for line in lines] == ["third", EVIL, "first"]
    assert all(line["response"]["object"] == "response" for line in lines)
    assert run(keyed, "export", "--failed").stdout == ""


def test_what_is_deleted_is_gone() -> None:
    with serving(Settings()) as base:
        ids = [respond(base, model="demo", input="Hi").json["id"] for _ in range(2)]
        words = ["responses", "delete", *ids, "--server", base]
        done = CliRunner().invoke(main, words)
        assert (done.exit_code, done.stdout) == (0, "".join(f"{each} deleted\n" for each in ids))
        assert CliRunner().invoke(main, words).exit_code == 1


@pytest.mark.parametrize("response_id", ["../models", "resp_1/cancel", "a?b", "x" * 200])
def test_an_id_is_not_a_path(response_id: str) -> None:
    sent = run("http://127.0.0.1:9", "delete", response_id)
    assert sent.exit_code == 2
    assert "is not the id of a response" in sent.stderr


def test_a_server_that_does_not_answer_is_exit_code_2() -> None:
    sent = run("http://127.0.0.1:9", "list")
    assert (sent.exit_code, "can't be reached" in sent.stderr) == (2, True)


def test_a_proxy_that_can_t_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1")
    sent = run("http://bridge.example", "list")
    assert sent.exit_code == 2
    assert "HTTP_PROXY: socks5:// is not supported for a proxy" in sent.stderr


class _Noted(BaseHTTPRequestHandler):
    keys: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.keys.append(self.headers["authorization"])
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str | None]]]:
    """Something that listens where `serve` does, and the `authorization` of each request that it got."""
    monkeypatch.setattr(_Noted, "keys", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Noted) as there:
        address = f"http://127.0.0.1:{there.server_port}"
        monkeypatch.setattr(server_client, "DEFAULT", address)
        monkeypatch.setattr(server_client, "PORT", there.server_port)
        serving_there = Thread(target=there.serve_forever, args=(0.01,))
        serving_there.start()
        yield address, _Noted.keys
        there.shutdown()
        serving_there.join()


@pytest.mark.parametrize("words", [["responses", "list"], ["inspect", "resp_1"]])
@pytest.mark.parametrize("uid", [os.getuid(), 4_000_000], ids=["ours", "another's"])
def test_a_key_goes_to_the_usual_address_when_a_server_of_this_user_is_there(
    noted: tuple[str, list[str | None]],
    words: list[str],
    uid: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, keys = noted
    rest = "00000000:0000 0A 00000000:00000000 00:00000000 00000000"
    line = f"   0: 0100007F:{server_client.PORT:04X} {rest} {uid}"
    (tmp_path / "tcp").write_text(f"  sl  local_address\n{line} 0 7\n")
    monkeypatch.setattr(server_client, "is_of_this_user", partial(is_of_this_user, tables=tmp_path))
    sent = CliRunner().invoke(main, [*words, "--api-key-env", "MINE"])
    if uid == os.getuid():
        assert keys == ["Bearer mine"]
        return
    assert (sent.exit_code, "no server of yours listens at" in sent.stderr) == (2, True)
    assert keys == []
    CliRunner().invoke(main, words)  # without a key there is nothing to keep
    CliRunner().invoke(main, [*words, "--api-key-env", "MINE", "--server", address])  # it is the one meant
    assert keys == [None, "Bearer mine"]


def test_a_key_waits_for_a_server_at_the_usual_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing listens the next to come may be anyone."""
    monkeypatch.setattr(server_client, "PORT", free_port())
    sent = CliRunner().invoke(main, ["responses", "list", "--api-key-env", "MINE"])
    assert (sent.exit_code, "no server of yours" in sent.stderr) == (2, True)


@pytest.mark.parametrize("flag", ["--key-env", "--api-key-env"])
def test_both_names_of_the_servers_key_are_taken(keyed: str, flag: str) -> None:
    sent = CliRunner().invoke(main, ["responses", "list", "--server", keyed, flag, "MINE"])
    assert (sent.exit_code, len(sent.stdout.splitlines())) == (0, 3)


@pytest.mark.parametrize("words", [["inspect"], ["conform"], ["responses", "list"], ["chat"], ["run"]])
def test_key_env_is_the_servers_key_everywhere(words: list[str]) -> None:
    text = " ".join(CliRunner().invoke(main, [*words, "--help"]).stdout.split())
    assert re.search(r"--key-env(, --api-key-env)? VAR [^-]* key for (the|this) server", text)
    upstreams = "--upstream" in text
    assert upstreams == ("--api-key-env VAR Environment variable that holds the upstream's key" in text)
