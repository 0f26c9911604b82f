"""What leaves the page, and what it keeps of a stream; its modules run in Node.js."""

import json
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bridge.conformance import StreamValidator
from bridge.protocol.codec import encode
from bridge.sse import SSEDecoder
from server.captures.observed import observed
from tests.support.model_scripts import SCRIPTS, played
from tests.support.shared import REPOSITORY
from tests.support.stores import streamed

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u202eabc\u2028'\"`$(reboot)\\"
KEY = "the-users-own-key"
SECRETS = ("sk-abcdefghijklmnopqrstuvwx", "Bearer abcdefghij.klm", "ghp_ABCDEFGHIJKLMNOPQRSTUV0123", KEY)


def run(
    observations: list[dict[str, Any]], request: dict[str, Any], pairs: Any = (), title: str = "t"
) -> Any:
    assert NODE is not None
    asked = {"title": title, "key": KEY, "request": request, "observations": observations, "pairs": pairs}
    root = (REPOSITORY / "server/inspector").as_uri() + "/"
    command = [NODE, str(Path(__file__).with_name("page.mjs")), root]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
    found = run(sent, {"model": HOSTILE, "input": HOSTILE}, title=HOSTILE)
    tags = Tags()
    tags.feed(found["page"])
    assert tags.scripts == [{"type": "application/json", "id": "stream"}]
    assert tags.handlers == []
    assert not tags.tags & {"img", "iframe", "link", "object", "base"}
    assert "default-src 'none'" in found["page"]
    assert "\u202e" not in found["page"].partition('id="stream"')[0]
    assert found["read"]["request"]["input"] == HOSTILE
    shown = [line["data"] for line in found["read"]["observations"]]
    assert shown == [line["data"] for line in sent if "data" in line]


def test_secrets_are_masked_in_whatever_leaves_the_page() -> None:
    said = " ".join(SECRETS)
    request = {
        "model": "m",
        "input": said,
        "tools": [{"type": "mcp", "authorization": "hidden", "headers": {"x-api-key": "hidden"}}],
    }
    found = run(lines(streamed(said, 2)[1].data), request, title=said)
    for name in ("page", "curl", "python", "fixture"):
        for secret in (*SECRETS, "hidden"):
            assert secret not in found[name], (name, secret)


def test_copies_are_what_they_say() -> None:
    request = {"model": "m", "input": HOSTILE}
    data = streamed("Hi", 2)[1].data
    found = run(lines(data), request)
    words = shlex.split(found["curl"].replace("\\\n", " "))
    assert json.loads(words[words.index("-d") + 1]) == {**request, "stream": True}
    assert words[2] == "http://h/v1/responses"
    compile(found["python"], "copied", "exec")
    scope: dict[str, Any] = {}
    exec(
        "\n".join(
            line for line in found["python"].splitlines() if line.startswith(("import json", "request"))
        ),
        scope,
    )
    assert scope["request"] == request
    validator = StreamValidator("any")
    for frame in SSEDecoder().feed(found["fixture"].encode()):
        assert validator.feed_frame(frame) == []
    assert validator.close() == []


def test_the_snapshot_of_any_moment_is_the_same_however_it_is_reached() -> None:
    events = json.loads(encode(played(SCRIPTS[next(iter(SCRIPTS))]).events))
    many = [json.loads(line) for line in observed(streamed("word ", 2500)[1].data.splitlines(True)) if line]
    found = run([{"at": 0, "event": event["type"], "data": event} for event in events], {})
    assert found["again"]
    found = run(many, {})
    assert found["again"]
    assert found["snapshot"]["output"][0]["content"][0]["text"] == "word " * 2500


def test_findings_are_pinned_to_their_events() -> None:
    data = streamed("Hi", 3)[1].data.replace(b'"sequence_number":3', b'"sequence_number":9')
    found = run(lines(data), {})
    assert found["pinned"] == [3, 4]
    assert found["lanes"] == ["response", "message"]


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


def test_times_go_on_where_a_connection_is_taken_up_again() -> None:
    assert run([], {"model": "m"})["times"] == [1, 5, 5, 7]
