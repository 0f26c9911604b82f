"""`inspect`: the tree is that of the stream, from a capture, a recording, a server."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_cli.commands.cli import main
from openresponses_cli.commands.inspecting import Inspection, LiveView
from openresponses_cli.commands.tree import NewestLines, tree
from openresponses_server.observation.recordings.captures import read_capture
from tests.support.model_frames import frames
from tests.support.model_scripts import SCRIPTS, played
from tests.support.serving import respond
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk

TEXT = played(SCRIPTS["text_then_tool"]).events
STREAM = encode_sse(TEXT)
BROKEN = encode_sse([event for event in TEXT if event.sequence_number != 4])


def inspect(*arguments: str, stdin: bytes = b"", **env: str) -> Result:
    return CliRunner(env=env).invoke(main, ["inspect", *arguments], input=stdin)


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_stream_is_the_tree_of_its_items() -> None:
    sent = inspect(stdin=STREAM)
    assert sent.exit_code == 0, sent.output
    response = played(SCRIPTS["text_then_tool"]).machine.snapshot
    for item in response.output:
        assert item.type in sent.stdout
    assert response.output_text in sent.stdout
    assert f"{len(TEXT)} events · no violations" in sent.stdout


def test_json_has_items_events_and_violations() -> None:
    sent = inspect("--json", stdin=BROKEN)
    assert sent.exit_code == 1
    (summary,) = objects(sent)
    validator = StreamValidator()
    for payload in read_capture(BROKEN.splitlines(keepends=True)):
        validator.feed(payload.data)
    validator.close()
    assert [each["rule"] for each in summary["violations"]] == [each.rule for each in validator.violations]
    assert summary["events"] == len(TEXT) - 1
    assert sum(item["events"] for item in summary["items"]) < summary["events"]


@pytest.mark.parametrize("dialect", ["chat_completions", "anthropic_messages", "codex", "copilot", "vscode"])
def test_other_dialects_are_found_and_translated(dialect: str) -> None:
    capture = b"".join(frame + b"\n" for frame in frames(dialect, SCRIPTS["text_then_tool"]))
    (summary,) = objects(inspect("--json", stdin=capture))
    assert [item["type"] for item in summary["items"]] == ["message", "function_call"]
    assert summary["violations"] == []


def test_repairs_stand_at_their_events() -> None:
    call = {"index": 0, "id": 7, "function": {"name": "f", "arguments": {}}}  # neither is text
    capture = b"".join([chunk(content="Hi"), chunk(tool_calls=[call]), chunk("tool_calls"), DONE])
    (summary,) = objects(inspect("--json", stdin=capture))
    assert summary["diagnostics"]
    assert all(0 < case["event"] < summary["events"] for case in summary["diagnostics"])
    assert f"! event {summary['diagnostics'][0]['event']}: " in inspect(stdin=capture).stdout


def test_several_responses_are_a_tree_each() -> None:
    summaries = objects(inspect("--json", stdin=STREAM + BROKEN + STREAM))
    assert [bool(each["violations"]) for each in summaries] == [False, True, False]
    assert [each["status"] for each in summaries] == ["completed"] * 3


def test_a_whole_response_is_one_too() -> None:
    from openresponses_bridge.protocol.codec import encode

    (summary,) = objects(inspect("--json", stdin=encode(played(SCRIPTS["text"]).machine.snapshot)))
    assert (summary["status"], summary["events"], len(summary["items"])) == ("completed", 0, 1)


def test_what_came_before_the_unreadable_is_shown() -> None:
    sent = inspect(stdin=STREAM + b"data: {nonsense\n\n")
    assert sent.exit_code == 2
    assert "no violations" in sent.stdout
    assert "stdin: line " in sent.stderr
    nothing = inspect("missing.sse")
    assert (nothing.exit_code, nothing.stderr) == (2, "missing.sse: No such file or directory\n")


def test_what_a_model_says_reaches_no_terminal_raw() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e[bold red]x[/]\r\x9b31m"
    call = {"index": 0, "id": evil, "function": {"name": evil, "arguments": evil}}
    capture = b"".join(
        [
            chunk(model=evil, content=evil),
            chunk(reasoning_content=evil),
            chunk(tool_calls=[call]),
            chunk("tool_calls"),
            DONE,
        ]
    )
    for stream in (capture, b'{"type":"error","error":{"code":%b,"message":%b}}' % ((evil_json(evil),) * 2)):
        sent = inspect(stdin=stream)
        assert not {"\x1b", "\x07", "\r", "\x9b", "\u202e"} & set(sent.output)
        assert "\\x1b]0;owned" in sent.output
    assert "[bold red]x[/]" in inspect(stdin=capture).stdout  # not read as rich's own markup


def evil_json(text: str) -> bytes:
    return json.dumps(text).encode()


def test_nothing_coloured_leaves_a_pipe() -> None:
    for env in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in inspect(stdin=BROKEN, **env).output


def test_a_response_is_watched_while_a_server_makes_it(demo: str) -> None:
    (summary,) = objects(inspect(demo, "--ask", "Write 40 words", "--json"))
    assert summary["model"] == "demo"
    assert summary["usage"]["output_tokens"] == 40
    assert summary["seconds"] >= summary["first_output_seconds"] >= 0
    assert summary["violations"] == []


@pytest.mark.parametrize("named", ["{base}/v1/responses/{id}", "{id}"])
def test_a_stored_response_is_watched_again(demo: str, named: str) -> None:
    response = respond(demo, model="demo", input="Hi").json
    what = named.format(base=demo, id=response["id"])
    (summary,) = objects(inspect(what, "--server", demo, "--json"))
    assert (summary["id"], summary["status"]) == (response["id"], "completed")


def test_a_request_of_ones_own(demo: str, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"model":"demo","input":"Hi","stream":false}')
    (summary,) = objects(inspect(demo, "--request", str(body), "--json"))
    assert (summary["events"], summary["status"]) == (0, "completed")


def test_a_key_goes_to_the_server_and_into_no_error(
    bridged: str, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "sk-hunter2")
    refused = b'{"error":{"code":"bad_key","message":"sk-hunter2 is wrong \\u001b[2J"}}'
    upstream.scripts["m"] = Script([refused], status=401, headers={"content-type": "application/json"})
    sent = inspect(upstream.url, "--ask", "x", "--model", "m", "--api-key-env", "A_KEY")
    assert sent.exit_code == 2
    assert "sk-hunter2" not in sent.output
    assert "\x1b" not in sent.output
    assert inspect(bridged, "--ask", "x", "--api-key-env", "UNSET").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://127.0.0.1:9"], "use --ask or --request"),
        (["x", "--ask", "y"], "need the URL"),
        (["http://127.0.0.1:9", "--ask", "x"], "can't be reached"),
        (["ftp://x", "--ask", "x"], "is not an http:// or https:// address"),
        (["resp_0", "--server", "http://127.0.0.1:9"], "can't be reached"),
        (["-", "--speed", "2"], "--speed is for recordings"),
    ],
)
def test_what_can_not_be_asked_says_why(arguments: list[str], said: str) -> None:
    sent = inspect(*arguments, stdin=STREAM)
    assert sent.exit_code == 2
    assert said in sent.stderr


def test_a_recording_has_the_times_at_which_it_came(demo: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    recorded = CliRunner().invoke(main, ["record", "Write 20 words", "-o", str(path)])
    assert recorded.exit_code == 0, recorded.output
    (summary,) = objects(inspect(str(path), "--json"))
    assert summary["status"] == "completed"
    assert summary["seconds"] >= 0


def test_the_live_view_stays_within_the_terminal_and_leaves_it_as_it_was() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, height=12, color_system=None)
    inspection = Inspection()
    with LiveView(console, lambda space: tree(inspection.watched[-1], space)) as live:
        for payload in read_capture(encode_sse(many(400)).splitlines(keepends=True)):
            inspection.feed(payload)
            live.tick()
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert drawn.endswith("\x1b[2K")  # the last drawing is erased
    with console.capture() as newest:
        console.print(NewestLines(lambda space: tree(inspection.watched[-1], space)))
    lines = newest.get().splitlines()
    assert len(lines) <= 12
    assert "word 399" in newest.get()
    assert lines[0].startswith("resp_")


def many(count: int) -> list[Any]:
    return played([("text", f"word {number}\n") for number in range(count)] + [("end", "stop")]).events


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"\xff\xfe", "stdin: JSON is malformed"),
        (b"[]", "stdin: a request must be a JSON object"),
        (b"", "stdin: Input data"),
    ],
)
def test_a_request_that_can_not_be_read_is_named(demo: str, body: bytes, says: str) -> None:
    done = CliRunner().invoke(main, ["inspect", demo, "--request", "-"], input=body)
    assert (done.exit_code, done.stderr.startswith(says)) == (2, True), done.stderr
    assert isinstance(done.exception, SystemExit)
