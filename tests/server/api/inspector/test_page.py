"""What leaves the page, and what it keeps of a stream; its modules run in Node.js."""

import base64
import json
import re
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.observation.recordings.masking import MASK, masked_value
from openresponses_server.observation.recordings.observing import observed
from tests.support.inspector_modules import modules
from tests.support.model_scripts import SCRIPTS, played
from tests.support.stores import streamed

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u202eabc\u2028'\"`$(reboot)\\"
KEY = "the-users-own-key"
SECRETS = ("sk-abcdefghijklmnopqrstuvwx", "Bearer abcdefghij.klm", "ghp_ABCDEFGHIJKLMNOPQRSTUV0123", KEY)


def run(
    observations: list[dict[str, Any]],
    request: dict[str, Any],
    pairs: Any = (),
    title: str = "t",
    trace: str = "",
) -> Any:
    assert NODE is not None
    payload = {"title": title, "key": KEY, "request": request, "observations": observations, "pairs": pairs}
    payload["trace"] = trace
    command = [NODE, str(Path(__file__).with_name("page.mjs")), modules()]
    done = subprocess.run(command, input=json.dumps(payload), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SECRET_FIELDS = (
    *(
        "apiKey",
        "api-key",
        "Authorization",
        "proxy-authorization",
        "access_token",
        "refresh-token",
        "id_token",
    ),
    *(
        "auth_token",
        "password",
        "passwd",
        "user_secret",
        "credentials",
        "set-cookie",
        "bearer",
        "private_key",
    ),
)
OTHER_FIELDS = ("key", "token", "author", "max_tokens", "content")


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in observed(data.splitlines(True)) if line]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.handlers: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag == "script":
            self.scripts.append(dict(attrs))


def test_an_export_keeps_hostile_text_as_text() -> None:
    sent = lines(streamed(HOSTILE, 3)[1].data)
    result = run(sent, {"model": HOSTILE, "input": HOSTILE}, title=HOSTILE)
    tags = Tags()
    tags.feed(result["page"])
    assert tags.scripts == [{"type": "application/json", "id": "stream"}]
    assert tags.handlers == []
    assert not tags.tags & {"img", "iframe", "link", "object", "base"}
    assert "default-src 'none'" in result["page"]
    assert "\u202e" not in result["page"].partition('id="stream"')[0]
    assert result["read"]["request"]["input"] == HOSTILE
    shown = [line["data"] for line in result["read"]["observations"]]
    assert shown == [line["data"] for line in sent if "data" in line]


def test_secrets_are_masked_in_whatever_leaves_the_page() -> None:
    text = " ".join(SECRETS)
    request = {
        "model": "m",
        "input": text,
        "tools": [{"type": "mcp", "authorization": "hidden", "headers": {"x-api-key": "hidden"}}],
    }
    result = run(lines(streamed(text, 2)[1].data), request, title=text)
    for name in ("page", "curl", "python", "fixture"):
        for secret in (*SECRETS, "hidden"):
            assert secret not in result[name], (name, secret)


@pytest.mark.parametrize("prefix", ["", "X-", "client_"])
def test_the_page_masks_the_fields_that_recordings_mask(prefix: str) -> None:
    names = [prefix + name for name in (*SECRET_FIELDS, *OTHER_FIELDS)]
    request = {"metadata": dict.fromkeys(names, "word")}
    words = shlex.split(run([], request)["curl"].replace("\\\n", " "))
    shown = json.loads(words[words.index("-d") + 1])["metadata"]
    assert shown == masked_value(request)["metadata"]
    assert {name for name in names if shown[name] == MASK} == {prefix + name for name in SECRET_FIELDS}


def test_copies_are_what_they_say() -> None:
    request = {"model": "m", "input": HOSTILE}
    data = streamed("Hi", 2)[1].data
    result = run(lines(data), request)
    words = shlex.split(result["curl"].replace("\\\n", " "))
    assert json.loads(words[words.index("-d") + 1]) == {**request, "stream": True}
    assert words[2] == "http://h/v1/responses"
    compile(result["python"], "copied", "exec")
    scope: dict[str, Any] = {}
    exec(
        "\n".join(
            line for line in result["python"].splitlines() if line.startswith(("import json", "request"))
        ),
        scope,
    )
    assert scope["request"] == request
    validator = StreamValidator("any")
    for frame in SSEDecoder().feed(result["fixture"].encode()):
        assert validator.feed_frame(frame) == []
    assert validator.close() == []


def test_the_snapshot_of_any_moment_is_the_same_however_it_is_reached() -> None:
    events = json.loads(encode(played(SCRIPTS[next(iter(SCRIPTS))]).events))
    many = [json.loads(line) for line in observed(streamed("word ", 2500)[1].data.splitlines(True)) if line]
    result = run([{"at": 0, "event": event["type"], "data": event} for event in events], {})
    assert result["again"]
    result = run(many, {})
    assert result["again"]
    assert result["snapshot"]["output"][0]["content"][0]["text"] == "word " * 2500


def test_findings_are_pinned_to_their_events() -> None:
    data = streamed("Hi", 3)[1].data.replace(b'"sequence_number":3', b'"sequence_number":9')
    result = run(lines(data), {})
    assert result["pinned"] == [3, 4]
    assert result["lanes"] == ["response", "message"]


def test_two_values_are_compared_by_structure() -> None:
    call = {"type": "function_call", "id": "a", "name": "f", "arguments": "{}"}
    text = {"type": "message", "id": "b", "content": [{"type": "output_text", "text": "one"}]}
    other = {**text, "id": "c", "content": [{"type": "output_text", "text": "two"}]}
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    pairs = [
        [[text], [call, other]],
        [{"a": 1}, {"a": 1}],
        [{"a": 1, "b": 2}, {"a": "1", "c": 3}],
        [deep, [deep]],
    ]
    moved, same, changed, bounded = run([], {}, pairs)["differences"]
    assert [(each["path"], each["kind"]) for each in moved] == [
        ("$[0]", "added"),
        ("$[0].content[0].text", "changed"),
    ]
    assert same == []
    assert [(each["path"], each["kind"]) for each in changed] == [
        ("$.a", "changed"),
        ("$.b", "removed"),
        ("$.c", "added"),
    ]
    assert len(bounded) == 1


LONG = "resp_0123456789abcdef"


def _turn(name: str, answer: str = "9") -> dict[str, Any]:
    """A response with a call and its result, all ids made of this name."""
    return {
        "object": "response",
        "id": f"{LONG}{name}",
        "previous_response_id": f"resp_before_{name}",
        "created_at": len(name),
        "metadata": {"id": "mine"},
        "output": [
            {"type": "function_call", "id": f"fc_{name}_1", "call_id": f"call_{name}_1", "name": "f"},
            {"type": "function_call", "id": f"fc_{name}_2", "call_id": f"call_{name}_2", "name": "f"},
            {
                "type": "function_call_output",
                "id": f"fco_{name}",
                "call_id": f"call_{name}_2",
                "output": answer,
            },
            {"type": "message", "id": f"msg_{name}", "content": f"As call_{name}_2 says, for {LONG}{name}."},
        ],
    }


def test_equal_answers_do_not_differ_by_their_ids_and_others_do() -> None:
    one, two = _turn("one"), _turn("other")
    twisted = json.loads(json.dumps(_turn("other")))
    twisted["output"][2]["call_id"] = "call_other_1"
    named = {**two, "metadata": {"id": "another"}}
    longer = {**two, "output": [{"type": "reasoning", "id": "rs_1"}, *two["output"]]}
    marks = [
        [
            {
                "type": "LanguageModelDataPart",
                "mimeType": "stateful_marker",
                "data": _encoded(f"m\\{turn['id']}"),
            }
        ]
        for turn in (one, two)
    ]
    pairs = [[one, two], [one, twisted], [one, named], [one, longer]]
    pairs += [marks, [f"{LONG}1, {LONG}2", f"{LONG}3, {LONG}3"]]
    pairs += [[[one, marks[0]], [two, marks[1]]], [[one, marks[0]], [two, [{**marks[1][0], "data": "QQ=="}]]]]
    same, swapped, renamed, added, alone, text, marked, unlike = run([], {}, pairs)["differences"]
    assert same == marked == alone == []
    assert len(text) == 1
    assert [each["path"] for each in swapped] == ["$.output[2].call_id"]
    assert [each["path"] for each in renamed] == ["$.metadata.id"]
    assert [(each["path"], each["kind"]) for each in added] == [("$.output[0]", "added")]
    assert [(each["path"], each["b"]) for each in unlike] == [("$[1][0].data", "A")]


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_times_go_on_where_a_connection_is_taken_up_again() -> None:
    assert run([], {"model": "m"})["times"] == [1, 5, 5, 7]


def test_a_secret_that_comes_in_pieces_is_masked_in_all_of_them() -> None:
    text = " ".join(SECRETS)
    events = [json.loads(data.removeprefix(b"data: ")) for data in _frames(text)]
    sent = [{"at": 0, "event": event["type"], "data": event, "findings": []} for event in events]
    for each in sent:
        if "delta" in each["data"]:
            each["parts"] = [{"type": "LanguageModelTextPart", "value": each["data"]["delta"]}]
            each["source"] = [{"choices": [{"delta": {"content": each["data"]["delta"]}}]}]
    result = run(sent, {})
    shown = result["read"]["observations"]
    deltas = [each["data"]["delta"] for each in shown if "delta" in each["data"]]
    parts = [part["value"] for each in shown for part in each.get("parts", ())]
    source = [part["choices"][0]["delta"]["content"] for each in shown for part in each.get("source", ())]
    assert "".join(deltas) == "".join(parts) == "".join(source) == " ".join(["[masked]"] * len(SECRETS))
    assert "".join(json.loads(f"[{','.join(_deltas(result['fixture']))}]")) == "".join(deltas)


def _frames(said: str) -> list[bytes]:
    """A stream of this text, three characters an event."""
    pieces = iter([said[at : at + 3] for at in range(0, len(said), 3)])
    marked = streamed("PIECE", -(-len(said) // 3))[1].data.splitlines()
    frames = [line for line in marked if line.startswith(b"data: {")]
    return [
        line.replace(b"PIECE", next(pieces).encode(), 1)
        if b'.delta"' in line
        else line.replace(b"PIECE" * -(-len(said) // 3), said.encode())
        for line in frames
    ]


def _deltas(fixture: str) -> list[str]:
    return re.findall(r'"delta":("[^"]*")', fixture)


def test_a_trace_is_saved_without_secrets_wherever_its_chunks_end() -> None:
    text = " ".join(SECRETS)
    chunks = [
        {"type": "chunk", "exchange": number % 2, "at": number, "text": text[number // 2 * 5 :][:5]}
        for number in range(2 * (len(text) // 5 + 1))
    ]
    head = [{"type": "recording", "version": 1}]
    head += [{"type": "exchange", "exchange": each, "at": 0, "body": {"input": text}} for each in (0, 1)]
    saved = run([], {}, trace="".join(json.dumps(line) + "\n" for line in [*head, *chunks]) + '{"type":"chu')
    lines = [json.loads(line) for line in saved["saved"].splitlines()]
    assert [line["type"] for line in lines] == [line["type"] for line in [*head, *chunks]]
    hidden = " ".join(["[masked]"] * len(SECRETS))
    for exchange in (0, 1):
        texts = [line["text"] for line in lines if line["type"] == "chunk" and line["exchange"] == exchange]
        assert "".join(texts) == hidden
    assert lines[1]["body"]["input"] == hidden


def test_events_belong_to_chunks_by_times_and_texts() -> None:
    only, by_text, nearest, before, in_order = 1, 2, 3, 4, 6
    events = [{"sequence_number": at, "type": "e", "delta": text} for at, text in enumerate("abcdxy")]
    head = {"type": "exchange", "at": 0}

    def passed(exchange: int, at: float, text: str) -> dict[str, Any]:
        return {"type": "chunk", "exchange": exchange, "at": at, "text": text}

    def sent(at: float, *numbers: int) -> dict[str, Any]:
        return passed(1, at, "".join(f"data: {json.dumps(events[each])}\n\n" for each in numbers))

    lines = [
        {**head, "exchange": 1, "leg": "client"},
        {**head, "exchange": 2, "leg": "upstream"},
        sent(0.5, 0),  # before the upstream had sent anything
        passed(2, 1.0, '"b"'),
        sent(1.1, 1),
        passed(2, 2.0, '"c"'),
        passed(2, 2.1, '"d"'),
        sent(2.2, 2, 3),
        passed(2, 3.0, "neither"),
        sent(3.1, 4),
        passed(2, 4.0, '"y"'),
    ]
    observed = [{"at": 0, "event": "e", "data": event} for event in events]
    result = run(observed, {}, trace="".join(json.dumps(line) + "\n" for line in lines))
    assert result["links"] == [
        [0, before, 0, 1],
        [1, only, 1, 2],
        [2, by_text, 2, 3],
        [3, by_text, 2, 3],
        [4, nearest, 1, 4],
        [5, in_order, 1, 0],
    ]


def test_a_window_keeps_what_is_looked_at() -> None:
    result = run([], {})
    for window in result["windows"]:
        assert 0 <= window["from"] <= window["place"] <= window["from"] + window["span"] <= 1 + 1e-9
    spans = [round(window["span"], 6) for window in result["windows"]]
    assert spans == [0.5, 0.25, 0.0625, 0.001, 0.002, 0.002, 1]
    assert [len(each) for each in result["ticks"]][:4] == [6, 3, 0, 1]
    assert len(result["ticks"][4]) <= 6  # times beyond the precision of numbers end too
    assert result["ticks"][0] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
