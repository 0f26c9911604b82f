"""`corpus`: what it lists, shows, serves and checks; a stranger's mistakes are found and named."""

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import websockets
from click.testing import CliRunner, Result

from openresponses_bridge.corpus import case, case_ids, chosen_ids
from openresponses_bridge.corpus.scripts import SCRIPTS
from openresponses_bridge.corpus.variants import VARIANTS
from openresponses_cli.commands import corpus_serving
from openresponses_cli.commands.cli import main
from openresponses_cli.commands.corpus_serving import cases_app
from tests.cli.commands.strangers_decoder import ALWAYS_COMPLETED, BY_ARRIVAL, ONE_LINE, decoded
from tests.support.document_blocks import blocks
from tests.support.forked import Forked
from tests.support.serving import call, serving_app

IDS = case_ids()


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["corpus", *arguments], input=stdin)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with serving_app(cases_app(), lifespan="off", ws_max_size=corpus_serving.MAX_BODY) as address:
        yield address


def stream(base: str, id: str) -> bytes:
    reply = call(base, "POST", "/v1/responses", {"model": id, "input": "Hi", "stream": True})
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    return reply.body


# ── a stranger's decoder ───────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def streams(base: str) -> dict[str, bytes]:
    """Each case, read once from where they are served."""
    return {id: stream(base, id) for id in IDS}


def reports(streams: dict[str, bytes], faults: Collection[str] = ()) -> str:
    lines = []
    for id, data in streams.items():
        report = decoded(data, faults)
        calls = [{name: item.get(name) for name in ("call_id", "name")} for item in report["calls"]]
        for each, item in zip(calls, report["calls"], strict=True):
            each["arguments"] = item.get("arguments", item.get("input"))
        lines.append(
            json.dumps({"id": id, "status": report["status"], "text": report["text"], "calls": calls})
        )
    return "\n".join(lines)


def test_a_strangers_decoder_without_faults_passes(streams: dict[str, bytes]) -> None:
    done = run("check", stdin=reports(streams))
    assert (done.output, done.exit_code) == (f"{len(IDS)} cases, 0 differ, 0 faults\n", 0)


NAMED = {
    ONE_LINE: VARIANTS["several-lines"].asks,
    BY_ARRIVAL: SCRIPTS["two_tools_interleaved"].asks,
    ALWAYS_COMPLETED: SCRIPTS["incomplete"].asks,
}


@pytest.mark.parametrize("faults", [*([each] for each in NAMED), list(NAMED)], ids=" and ".join)
def test_each_fault_of_a_strangers_decoder_is_named(streams: dict[str, bytes], faults: list[str]) -> None:
    done = run("check", "--json", stdin=reports(streams, faults))
    mismatches = [json.loads(line) for line in done.output.splitlines()]
    assert done.exit_code == 1
    assert {each["asks"] for each in mismatches} == {NAMED[fault] for fault in faults}


# ── check ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_report_may_be_a_response_and_may_say_little(tmp_path: Path) -> None:
    each = case("openai/two_tools_interleaved")
    whole = json.dumps({"id": each.id, "response": each.response})
    flags = ("--wire", "openai", "--only", "two_tools_interleaved", "--only", each.id)
    done = run("check", "--wire", "openai", "--only", each.id, stdin=whole)
    assert (done.output, done.exit_code) == ("1 case, 0 differ, 0 faults\n", 0)
    wrong = {"call_id": "call_a", "name": "get_time", "arguments": {"city": "Paris"}}
    other = {"call_id": "call_c", "name": "x"}
    line = json.dumps({"id": each.id, "calls": [wrong, wrong, other]})
    done = run("check", *flags, "--junit", str(tmp_path / "report.xml"), stdin=line)
    assert done.exit_code == 1
    for message in (
        "the name of call_a is 'get_time' instead of 'get_weather'",
        "the call 'call_a' is reported twice",
        "there is no whole call 'call_c'",
        "the call call_b is missing",
    ):
        assert message in done.output
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    assert int(suite.attrib["tests"]) == len([id for id in IDS if id.startswith(each.id)])
    assert int(suite.attrib["failures"]) == int(suite.attrib["tests"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1: not a report"),
        ('{"text": ""}', "line 1: not a report"),
        ('{"id": "openai/text", "text": 5}', "$.text"),
        ('{"id": "openai/text"}', "says nothing"),
        ('{"id": "openai/nope", "text": ""}', "the corpus has no case 'openai/nope'"),
        ('{"id": "openai/text", "text": ""}\n' * 2, "is reported twice"),
        ("[" * 100_000, "line 1: not a report"),
        ('{"id": "\\ud800", "text": "x"}', ""),
    ],
)
def test_what_is_no_report_is_unreadable(line: str, said: str) -> None:
    done = run("check", "--only", "openai/text", stdin=line)
    assert done.exit_code == 2
    assert said in done.output
    assert len(done.output) < 500


@pytest.mark.parametrize("arguments", [["list", "nope"], ["show", "nope"], ["check", "--only", "nope"]])
def test_an_unknown_name_is_unreadable(arguments: list[str]) -> None:
    done = run(*arguments, stdin="")
    assert done.exit_code == 2
    assert "the corpus has no case, script or variant 'nope'" in done.output
    assert run("list", "openai/text", "--wire", "openresponses").exit_code == 2


# ── list, show ─────────────────────────────────────────────────────────────────────────────────────────────
def test_cases_are_listed_and_shown() -> None:
    assert [line.split()[0] for line in run("list").output.splitlines()] == IDS
    first = json.loads(run("list", "text", "--json").output.splitlines()[0])
    assert first["id"] == "openresponses/text"
    shown = [json.loads(line) for line in run("show", "text", "--wire", "openai").output.splitlines()]
    assert shown[0] == json.loads(case("openai/text").document)
    assert run("show", "openai/text/crlf", "--sse").stdout_bytes == case("openai/text/crlf").body
    assert run("show", "text", "--sse").exit_code == 2
    assert json.loads(run("show", "--schema").output)["$ref"] == "#/$defs/Case"


# ── serve ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_each_case_is_served_as_its_bytes(base: str) -> None:
    for id in IDS:
        assert stream(base, id) == case(id).body
    listed = call(base, "GET", "/v1/models").json["data"]
    assert [each["id"] for each in listed] == IDS


def test_a_response_is_served_whole(base: str) -> None:
    for id in ("openai/text", "openresponses/fail", "openai/cancel"):
        assert call(base, "POST", "/v1/responses", {"model": id}).json == case(id).response
    refused = call(base, "POST", "/v1/responses", {"model": "openai/text/crlf"})
    assert (refused.status, refused.error["param"]) == (400, "stream")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400), (b"[]", 400), (b"[" * 100_000, 400), ({"model": "nope"}, 404), ({"model": 5}, 404),
        ({}, 404), ({"model": "openai/text/cut-99"}, 404), ({"model": "x" * 100_000}, 404),
        (b"x" * (1 << 21), 413),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused(base: str, body: Any, status: int) -> None:
    reply = call(base, "POST", "/v1/responses", body)
    assert reply.status == status
    assert len(reply.body) < 600
    assert reply.error["message"]


async def turns(base: str, *messages: str | bytes) -> list[list[Any]]:
    """What comes on one connection after each message, up to the end of its response; a close code last."""
    came: list[list[Any]] = []
    async with websockets.connect(base.replace("http", "ws") + "/v1/responses") as connection:
        for message in messages:
            came.append([])
            await connection.send(message)
            try:
                while not came[-1] or came[-1][-1]["type"] not in ("error", *corpus_ends):
                    came[-1].append(json.loads(await connection.recv()))
            except websockets.ConnectionClosed as closed:
                came[-1].append(closed.rcvd and closed.rcvd.code)
                break
    return came


corpus_ends = ("response.completed", "response.incomplete", "response.failed")


def created(model: str) -> str:
    return json.dumps({"type": "response.create", "model": model, "input": "Hi"})


def test_each_turn_of_a_websocket_is_a_case(base: str) -> None:
    names = ("openai/text", "openresponses/two_tools_interleaved", "openai/text/split-surrogates")
    assert asyncio.run(turns(base, *map(created, names))) == [case(name).events for name in names]
    cut = case("openai/text_then_tool/cut-05")
    assert asyncio.run(turns(base, created(cut.id))) == [[*cut.events, 1011]]


def test_a_wrong_message_is_answered_and_the_connection_goes_on(base: str) -> None:
    wrong = ("{", '{"type": "x"}', created("nope"), "[" * 100_000)
    *refused, answered = asyncio.run(turns(base, *wrong, created("openai/text")))
    assert [each[-1]["status"] for each in refused] == [400, 400, 404, 400]
    assert answered == case("openai/text").events
    assert asyncio.run(turns(base, b"bytes")) == [[1003]]
    assert asyncio.run(turns(base, "x" * (corpus_serving.MAX_BODY + 1))) == [[1009]]


def test_a_body_that_does_not_come_is_not_waited_for(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_serving, "BODY_SECONDS", 0.05)
    host, port = base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection((host, int(port))) as gone:
        gone.sendall(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    assert call(base, "GET", "/v1/models").status == 200


def test_an_address_that_is_in_use_is_unreadable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "--port", str(taken.getsockname()[1]))
    assert done.exit_code == 2
    assert "can't listen on 127.0.0.1" in done.output


def test_it_serves_until_it_is_stopped() -> None:
    command = ["corpus", "serve", "--port", "0"]
    with Forked[str](command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        first, second = serving.stdout.readline(), serving.stdout.readline()
        assert first.startswith(f"serving {len(IDS)} cases at http://127.0.0.1:")
        base = first.split()[-1].removesuffix("/v1")
        assert f"{base}/v1/responses" in second
        assert stream(base, "openai/text/crlf") == case("openai/text/crlf").body
        address = ("127.0.0.1", int(base.rpartition(":")[2]))
        # it may be closed while more is sent
        with socket.create_connection(address) as endless, suppress(ConnectionError):
            endless.sendall(b"GET /v1/models HTTP/1.1\r\n" + b"x: " + b"a" * 200_000)
            assert endless.recv(4096)[:13] in (b"", b"HTTP/1.1 400 ")
        assert stream(base, "openai/text") == case("openai/text").body
        serving.terminate()
        assert serving.wait() in (0, -signal.SIGTERM)


def test_the_commands_of_the_guide_run(tmp_path: Path) -> None:
    """`serve` is run by the test above."""
    (listed, _, checked), reported = (
        next(iter(code.strip().splitlines() for title, code in blocks("docs/testing.md", language)))
        for language in ("sh", "json")
    )
    assert run(*listed.split()[2:]).exit_code == 0
    whole = [
        json.dumps({"id": id, "text": case(id).expected.text}) for id in chosen_ids(["text"], ["openai"])
    ]
    (tmp_path / "reports.jsonl").write_text("\n".join([*reported, *whole[1:]]))
    words = [str(tmp_path / word) if word.endswith(".jsonl") else word for word in checked.split()[2:]]
    assert run(*words).output == f"{len(whole)} cases, 0 differ, 0 faults\n"
