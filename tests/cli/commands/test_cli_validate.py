"""`validate`: wires, and captures of every kind."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from openresponses_bridge.conformance import RULES
from openresponses_cli.commands.cli import main
from tests.support.scripts import USAGE, Event, Script, everything

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-request-id: req_1\r\n\r\n"
REFUSED = {
    "type": "error",
    "status": 404,
    "error": {"code": "not_found", "message": "gone"},
}
REPLAY, GONE = "use replay", "not a response: gone"
REQUEST = {"type": "response.create", "model": "m", "input": "Hi"}


def run(*arguments: str, stdin: bytes) -> Result:
    return CliRunner().invoke(main, ["validate", *arguments], input=stdin)


def sse(events: list[Event], done: bool = True) -> bytes:
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return ("".join(frames) + ("data: [DONE]\n\n" if done else "")).encode()


def json_lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def text(*deltas: str) -> list[Event]:
    return Script().message(("output_text", deltas)).finish()


def whole(**changes: Any) -> Event:
    script = Script().message(("output_text", ["a"])).calls(["{}"])
    return {**script.finish()[-1]["response"], **changes}


def rules(result: Result) -> list[str]:
    assert result.exit_code == (1 if result.stdout else 0), result.stderr
    return [line.partition(":")[0] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ("auto", "stream.done_marker"),
        ("openresponses", "stream.done_marker"),
        ("openai", "event.unknown_type"),
    ],
)
def test_the_wire_is_chosen(wire: str, expected: str) -> None:
    capture = sse(Script().reasoning(raw=["a"]).finish(), done=False)
    assert {*rules(run("--wire", wire, stdin=capture))} == {expected}


def test_an_unknown_wire_is_2() -> None:
    assert run("--wire", "any", stdin=b"").exit_code == 2


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(HEAD, id="1.1"),
        pytest.param(HEAD.replace(b"HTTP/1.1 200 OK", b"HTTP/2 200 "), id="2"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD, id="continue"),
        pytest.param(b"HTTP/1.1 200 Connection established\r\n\r\n\r\n" + HEAD, id="proxy"),
        pytest.param(HEAD.replace(b"\r\n", b"\n"), id="LF"),
        pytest.param(b"\xef\xbb\xbf" + HEAD, id="BOM"),
    ],
)
def test_heads_of_curl_are_passed_over(head: bytes) -> None:
    assert rules(run(stdin=head + sse(everything()))) == []
    assert rules(run(stdin=head + json.dumps(whole()).encode())) == []
    assert "response.completed" in CliRunner().invoke(main, ["replay"], input=head + sse(text("a"))).stdout


def test_lines_are_counted_with_the_head() -> None:
    result = run(stdin=HEAD + b"data: {broken\n\n")
    assert (result.exit_code, "line 5:" in result.stderr) == (2, True)
    result = run(stdin=HEAD)
    assert (result.exit_code, "it is empty" in result.stderr) == (2, True)


@pytest.mark.parametrize("indent", [None, 2, "\t"], ids=["line", "spaces", "tabs"])
def test_a_whole_response_is_judged(indent: Any) -> None:
    assert rules(run(stdin=json.dumps(whole(), indent=indent).encode())) == []
    broken = whole(usage={**USAGE, "total_tokens": 9}, completed_at=None)
    result = run("--json", stdin=json.dumps(broken, indent=indent).encode())
    violations = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["rule"], each["event_type"], each["path"]) for each in violations] == [
        ("response.completed_at", "response", "$.completed_at"),
        ("usage.sum", "response", "$.usage.total_tokens"),
    ]


def unfinished(status: str) -> Event:
    return whole(status=status, completed_at=None)


def counted(**counts: Any) -> Event:
    return whole(usage=USAGE | counts)


def spoiled(**item: Any) -> Event:
    response = whole()
    response["output"] = [{**response["output"][0], **item}, response["output"][1]]
    return response


WHOLE: list[tuple[str, Callable[[], Event], str]] = [
    ("schema", lambda: whole(tools=None), "$.tools"),
    ("status.event_matches", lambda: unfinished("done"), "$.status"),
    ("response.completed_after_created", lambda: whole(completed_at=5), "$.completed_at"),
    ("response.error_iff_failed", lambda: whole(error={"code": "c", "message": "m"}), "$.error"),
    ("response.incomplete_details_iff", lambda: unfinished("incomplete"), "$.incomplete_details"),
    ("usage.negative", lambda: counted(input_tokens=-5, total_tokens=0), "$.usage.input_tokens"),
    ("usage.part_of_whole", lambda: counted(input_tokens_details={"cached_tokens": 4}),
     "$.usage.input_tokens_details.cached_tokens"),
    ("item.id_unique", lambda: spoiled(id="fc_1"), "$.output[1].id"),
    ("message.role_assistant", lambda: spoiled(role="user"), "$.output[0].role"),
    ("item.closed_status", lambda: spoiled(status="in_progress"), "$.output[0].status"),
    ("item.incomplete_response", lambda: spoiled(status="incomplete"), "$"),
    ("call.id_unique", lambda: whole(output=[whole()["output"][1], {**whole()["output"][1], "id": "fc_9"}]),
     "$.output[1].call_id"),
    ("item.has_status", lambda: whole(output=[{"type": "openai:search", "id": "ws"}]), "$.output[0].status"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "response", "path"), WHOLE, ids=[row[0] for row in WHOLE])
def test_a_whole_response_that_breaks_a_rule(rule: str, response: Callable[[], Event], path: str) -> None:
    result = run("--json", stdin=json_lines(response()))
    violations = [json.loads(line) for line in result.stdout.splitlines()]
    assert {(each["rule"], each["path"], each["event_index"]) for each in violations} == {(rule, path, 0)}


@pytest.mark.parametrize(
    "response",
    [
        whole(status="incomplete", completed_at=None, incomplete_details={"reason": "max_output_tokens"}),
        whole(status="failed", completed_at=None, error={"code": "c", "message": "m"}, output=[]),
        whole(status="queued", completed_at=None, usage=None, output=[]),
        whole(status="in_progress", completed_at=None, usage=None, output=[]),
        whole(status="cancelled", completed_at=None),
        whole(output=[{"type": "web_search_call", "id": "ws", "status": "completed"}]),
    ],
    ids=["incomplete", "failed", "queued", "in progress", "cancelled", "hosted"],
)
def test_every_legal_response_is_clean(response: Event) -> None:
    assert rules(run(stdin=json_lines(response))) == []


def test_a_response_that_holds_anything_ends_in_violations_not_in_a_crash() -> None:
    for name in whole():
        if name == "object":
            continue
        for value in (
            None,
            5,
            "x",
            [],
            [5],
            [[]],
            {},
            {"type": 5},
            {"total_tokens": []},
            [{"id": []}],
            True,
        ):
            result = run(stdin=json_lines(whole(**{name: value})))
            assert result.exit_code in (0, 1), (name, value, result.exception)


def test_several_whole_responses_and_streams_follow_one_another() -> None:
    assert rules(run(stdin=json_lines(whole(), *everything(), whole(), *text("a")))) == []
    cut = json_lines(*everything()[:-1], whole())
    assert rules(run(stdin=cut)) == ["stream.no_terminal"]


def test_turns_of_a_websocket() -> None:
    """Requests of the client, refusals, turns that an error ends, and one that goes on after a refusal."""
    cut, ends = text("a", "b")[:5], json_lines(REQUEST, *text("a"), REQUEST, REFUSED, REQUEST, *everything())
    assert rules(run(stdin=ends)) == []
    assert rules(run(stdin=json_lines(REFUSED))) == []
    assert rules(run(stdin=json_lines(REQUEST, *cut, REFUSED))) == []
    assert rules(run(stdin=json_lines(REQUEST, *cut, REFUSED, REQUEST, *text("c")))) == []
    assert rules(run(stdin=json_lines(*cut, REFUSED, *text("a", "b")[5:]))) == []
    assert rules(run(stdin=json_lines(REQUEST, *cut))) == ["stream.no_terminal"]
    assert rules(run(stdin=json_lines(*cut, REFUSED, text("a", "b")[5]))) == ["stream.no_terminal"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"status": "404"}, "$.status"),
        ({"status": 200}, "$.status"),
        ({"error": "gone"}, "$.error"),
        ({"error": {"message": "gone"}}, "$.error.code"),
        ({"error": {"code": None, "message": "gone"}}, "$.error.code"),
        ({"error": {"code": "c"}}, "$.error.message"),
        ({"error": {"code": "c", "message": "m", "param": 5}}, "$.error.param"),
        ({"error": {"code": "c", "message": "m", "type": None}}, "$.error.type"),
    ],
)
def test_an_error_of_a_websocket_has_a_status_a_code_and_a_message(changes: Event, path: str) -> None:
    result = run("--json", stdin=json_lines({**REFUSED, **changes}))
    violation = json.loads(result.stdout)
    assert (violation["rule"], violation["path"], violation["event_type"]) == (
        "websocket.error_envelope",
        path,
        "error",
    )


def test_an_error_in_frames_is_a_stream_s() -> None:
    assert "sse.event_name" not in rules(run(stdin=sse(Script().fail())))
    assert "schema" in rules(run(stdin=b"event: error\ndata: " + json.dumps(REFUSED).encode() + b"\n\n"))


CHAT_ANSWER = {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "a"}}]}
MESSAGES_ANSWER = {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}


@pytest.mark.parametrize(
    ("capture", "says"),
    [
        (b'data: {"choices":[]}\n\n', f"a Chat Completions stream: {REPLAY}"),
        (json.dumps(CHAT_ANSWER).encode() + b"\n", f"a Chat Completions answer: {REPLAY}"),
        (b'data: {"type":"message_start","message":{}}\n\n', f"a Messages stream: {REPLAY}"),
        (json.dumps(MESSAGES_ANSWER).encode(), "a Messages answer: use replay"),
        (b'{"method":"turn/started"}', "a Codex stream: use replay"),
        (b'{"type":"LanguageModelTextPart","value":"a"}', "a VS Code stream: use replay"),
        (b'{"text":"a","delta":{"text":"a"}}', "a Copilot stream: use replay"),
        (b'{"error":{"message":"gone","code":"x"}}', f"the body of an HTTP error, {GONE}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("head", [b"", HEAD], ids=["bare", "curl"])
def test_captures_of_something_else_are_named(capture: bytes, says: str, head: bytes) -> None:
    result = run(stdin=head + capture)
    assert result.exit_code == 2
    assert result.stderr == f"stdin: line {5 if head else 1}: this is {says}\n"


def test_a_cut_json_over_several_lines_is_2_and_names_its_first() -> None:
    result = run(stdin=b"\n" + json.dumps(whole(), indent=1).encode()[:-40])
    assert (result.exit_code, "line 2:" in result.stderr) == (2, True)


def test_the_cost_of_lines_is_linear() -> None:
    assert run(stdin=b"{\n" * 50_000).exit_code == 2
    assert run(stdin=b"HTTP/1.1 200 OK\n\n" * 50_000).exit_code == 2


def test_a_rule_is_explained() -> None:
    result = run("--explain", "usage.sum", stdin=b"")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "usage.sum\n"
        "total_tokens is the sum of input_tokens and output_tokens.\n"
        "\n"
        "clause:  specification, OpenAPI: Usage, the total number of tokens\n"
        "example: `completed` with `response.usage.total_tokens` = `9`\n"
        "usage.sum: event 28 (response.completed $.response.usage.total_tokens): 9, but 3 and 5 make 8\n"
    )
    shown = json.loads(run("--explain", "usage.sum", "--json", stdin=b"").stdout)
    assert (shown["rule"], len(shown["violations"])) == ("usage.sum", 1)


def test_every_rule_can_be_explained() -> None:
    for rule in RULES:
        result = run("--explain", rule, stdin=b"")
        assert result.exit_code == 0
        assert f"\n{rule}: event " in result.stdout


@pytest.mark.parametrize(
    ("asked", "says"), [("usage.sums", "usage.sum"), ("\u00e9", "docs/rules.md"), ("", "docs/")]
)
def test_an_unknown_rule_is_2_and_names_what_is_near(asked: str, says: str) -> None:
    result = run("--explain", asked, stdin=b"")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"there is no rule {asked!r}" in result.stderr
    assert says in result.stderr


@pytest.mark.parametrize("said", ["\ud800", "a\nb", "a\r\u2028b", "\x1b[2J", "\x00", "\u202e"], ids=repr)
def test_what_a_peer_says_stays_on_one_line_and_is_no_command_to_a_terminal(said: str) -> None:
    response = json_lines(whole(status=said, completed_at=None, error={"code": said, "message": said}))
    event = json_lines(*Script(id=said).finish(), {"type": said, "sequence_number": 3})
    error = json_lines({"error": {"message": said}})
    for capture in (response, event, error):
        result = run(stdin=capture)
        lines = (result.stdout or result.stderr).splitlines()
        assert lines
        assert all(line.isprintable() for line in lines)
        assert all(": event " in line for line in result.stdout.splitlines())
        assert [
            json.loads(line) for line in run("--json", stdin=capture).stdout.split("\n")[:-1]
        ] or capture == error


def test_a_type_that_is_no_text_is_a_violation() -> None:
    assert "schema" in rules(run(stdin=json_lines({"type": [None], "sequence_number": 0})))


CLEAN = sse(everything())
BROKEN = sse([event for event in everything() if event["sequence_number"] != 2])


@pytest.fixture
def captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("clean.sse").write_bytes(CLEAN)
    Path("two words.sse").write_bytes(BROKEN + BROKEN)
    Path("packed.gz").write_bytes(gzip.compress(BROKEN))
    return tmp_path


def test_several_files_are_judged_and_the_worst_counts(captures: Path) -> None:
    single = rules(run("two words.sse", stdin=b""))
    both = run("clean.sse", "two words.sse", "packed.gz", stdin=b"")
    assert both.exit_code == 1
    files = Counter(line.partition(": ")[0] for line in both.stdout.splitlines())
    assert files == {"two words.sse": len(single), "packed.gz": len(single) // 2}
    assert run("clean.sse", "packed.gz", "missing", stdin=b"").exit_code == 2
    assert run("missing", "clean.sse", stdin=b"").stderr == "missing: No such file or directory\n"
    violations = [
        json.loads(line) for line in run("clean.sse", "packed.gz", "--json", stdin=b"").stdout.splitlines()
    ]
    assert {line["file"] for line in violations} == {"packed.gz"}
    assert {line["rule"] for line in violations} == set(single)


def test_violations_are_grouped_by_rule(captures: Path) -> None:
    each = Counter(rules(run("two words.sse", stdin=b"")))
    grouped = run("two words.sse", "--by-rule", stdin=b"")
    assert rules(grouped) == [rule for rule, _ in sorted(each.items(), key=lambda found: -found[1])]
    rule, count = each.most_common(1)[0]
    assert grouped.stdout.startswith(f"{rule}: {count} violations, first event ")
    as_json = run("two words.sse", "packed.gz", "--by-rule", "--json", stdin=b"").stdout.splitlines()
    assert {json.loads(line)["rule"]: json.loads(line)["files"] for line in as_json} == {
        rule: ["two words.sse", "packed.gz"] for rule in each
    }


def test_reports_for_machines(captures: Path) -> None:
    completed = run(
        "clean.sse", "two words.sse", "missing", "--junit", "j.xml", "--sarif", "s.sarif", stdin=b""
    )
    assert completed.exit_code == 2
    suite = ElementTree.parse("j.xml").getroot()[0]
    assert {name: suite.attrib[name] for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    assert [case.attrib["name"] for case in suite] == ["clean.sse", "two words.sse", "missing"]
    assert (suite[1][0].tag, suite[2][0].attrib["message"]) == (
        "failure",
        "missing: No such file or directory",
    )
    written = json.loads(Path("s.sarif").read_text())
    ran = written["runs"][0]
    assert (written["version"], ran["invocations"][0]["executionSuccessful"]) == ("2.1.0", False)
    named = [rule["id"] for rule in ran["tool"]["driver"]["rules"]]
    assert set(named) <= set(RULES)
    lines = Path("two words.sse").read_bytes().splitlines()
    for result in ran["results"]:
        assert named[result["ruleIndex"]] == result["ruleId"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "two%20words.sse"
        assert lines[place["region"]["startLine"] - 1].startswith((b"event: ", b"data: "))
    assert run("clean.sse", "--junit", "none/j.xml", stdin=b"").exit_code == 2


@pytest.mark.untraced
def test_a_report_is_bounded_and_counts_the_rest(tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_bytes(b'{"type":"nothing"}\n' * 3_000)
    report = tmp_path / "j.xml"
    assert run(str(many), "--by-rule", "--junit", str(report), stdin=b"").exit_code == 1
    text = ElementTree.parse(report).getroot()[0][0][0].text or ""
    assert re.search(r"\nand \d{4} more\Z", text)
    assert len(text.splitlines()) < 6_000


def test_a_recording_s_answers_of_the_responses_api_are_judged(tmp_path: Path, demo: str) -> None:
    for dialect in ("responses", "chat"):
        path = tmp_path / f"{dialect}.jsonl"
        flags = ("--upstream", f"{demo}/v1", "--dialect", dialect, "--model", "demo")
        assert CliRunner().invoke(main, ["record", "Hi", "-o", str(path), *flags]).exit_code == 0
    assert rules(run(str(tmp_path / "responses.jsonl"), stdin=b"")) == []
    other = run(str(tmp_path / "chat.jsonl"), stdin=b"")
    assert (other.exit_code, "no answer in the Responses API" in other.stderr) == (2, True)


def test_an_object_that_is_not_an_event_is_called_that() -> None:
    """It is not the end of the stream."""
    result = run(stdin=CLEAN.replace(b"data: [DONE]", b'data: {"error":{"message":"no"}}'))
    assert "(no type $.type): required and missing" in result.stdout
    assert "end of stream $." not in result.stdout
