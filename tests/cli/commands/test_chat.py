"""`chat`: a conversation whose client keeps it, files as parts, nothing that a terminal would obey."""

import builtins
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from openresponses_cli.commands import chat as chatting
from openresponses_cli.commands.chatting import MOST_BYTES, AttachmentError, ChatSession, attachment_part
from openresponses_cli.commands.cli import main
from tests.support.model_scripts import SCRIPTS, played
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk


def call_chunk(index: int, arguments: str, name: str | None = None, call_id: str | None = None) -> bytes:
    call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if name is not None:
        call |= {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return chunk(tool_calls=[call])


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def chat(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["chat", *arguments], input=stdin)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command as at a terminal where these lines are typed."""

    def run(lines: Iterable[str], *arguments: str) -> Result:
        remaining = iter(lines)

        def read(_prompt: str) -> str:
            try:
                line = next(remaining)
            except StopIteration:
                raise EOFError from None
            if line == "^C":
                raise KeyboardInterrupt
            return line

        monkeypatch.setattr(builtins, "input", read)
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
        monkeypatch.setenv("TERM", "dumb")
        return chat(*arguments)

    return run


def test_a_message_and_its_answer(demo: str) -> None:
    sent = chat("Hi", "--server", demo)
    assert sent.exit_code == 0, sent.output
    assert sent.stdout.startswith("You said: Hi\n")
    assert "output tokens" in sent.stdout
    assert chat("--server", demo, stdin="Hi\n").stdout.startswith("You said: Hi\n")
    assert chat("--server", demo).exit_code == 2


def test_json_is_the_response(demo: str) -> None:
    response = json.loads(chat("Hi", "--server", demo, "--json").stdout)
    assert (response["object"], response["status"], response["store"]) == ("response", "completed", False)


def test_each_message_has_what_came_before(upstream: ScriptedUpstream, bridged: str, typed: Any) -> None:
    answers = [Script([chunk(content=each), chunk("stop"), DONE]) for each in ("One.", "Two.", "Three.")]
    upstream.scripts["m"] = answers
    lines = ["first", "second \\", "and more", "/clear", "third"]
    sent = typed(lines, "--server", bridged, "--model", "m", "--instructions", "Be brief.")
    assert sent.exit_code == 0, sent.output
    contents = [[each["content"] for each in received.body["messages"]] for received in upstream.received]
    texts = [[str(content) for content in each if content != "Be brief."] for each in contents]
    assert [len(each) for each in texts] == [1, 3, 1]
    assert "second \nand more" in texts[1][2] or "second" in texts[1][2]
    assert "One." in texts[1][1]
    assert all(each[0] == "Be brief." for each in contents)


def test_what_failed_is_not_kept_and_can_be_asked_again(
    upstream: ScriptedUpstream, bridged: str, typed: Any
) -> None:
    answer = Script([chunk(content="Well."), chunk("stop"), DONE])
    upstream.scripts["m"] = [Script([chunk(content="Half")]), Script(status=400), answer]
    sent = typed(["one", "two", "three"], "--server", bridged, "--model", "m")
    assert sent.exit_code == 0
    assert sent.output.count("✗") == 2
    assert len(upstream.received[-1].body["messages"]) == 1


def test_a_call_is_shown_and_not_run(upstream: ScriptedUpstream, bridged: str, typed: Any) -> None:
    call = [call_chunk(0, "", "rm", "call_1"), call_chunk(0, '{"path":"/"}'), chunk("tool_calls"), DONE]
    upstream.scripts["m"] = [Script(call), Script([chunk(content="Well."), chunk("stop"), DONE])]
    sent = typed(["one", "two"], "--server", bridged, "--model", "m")
    assert "🔧 rm" in sent.output
    assert 'Input: {"path":"/"}' in sent.output
    assert "○ Not run" in sent.output
    assert [each["role"] for each in upstream.received[-1].body["messages"]] == ["user", "user"]


def test_nothing_that_a_model_says_is_obeyed(upstream: ScriptedUpstream, bridged: str) -> None:
    evil = "\x1b[2J\x1b]52;c;cm0gLXJm\x07\u202e[red]\r"
    steps = [
        chunk(reasoning_content=evil),
        chunk(content=evil[:3]),
        chunk(content=evil[3:]),
        call_chunk(0, evil, "f", "c"),
        chunk("tool_calls"),
        DONE,
    ]
    upstream.scripts["m"] = Script(steps)
    sent = chat("Hi", "--server", bridged, "--model", "m")
    assert not {"\x1b", "\x07", "\u202e", "\r", "\x9b"} & set(sent.output)
    assert "\\x1b[2J" in sent.output
    assert "[red]" in sent.output


def test_what_can_be_typed_beside_messages(demo: str, typed: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    attach = f"/attach {tmp_path / 'a.txt'}"
    sent = typed(
        ["/help", attach, "/attach missing", "/model", "/model other", "/nope", "/quit", "no"],
        "--server",
        demo,
    )
    for message in (
        "/attach FILE",
        "goes with the next message",
        "missing: No such file",
        "demo-text",
        "which the server does not list",
        "/nope is not a command",
    ):
        assert message in sent.output
    assert "You said" not in sent.output


def test_stopping_an_answer_goes_on_and_stopping_at_the_prompt_ends(
    demo: str, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []

    async def stopped(_self: Any, text: str, _feed: Any) -> None:
        prompts.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr(chatting._Chat, "_stream", stopped)
    sent = typed(["one", "two", "^C"], "--server", demo)
    assert prompts == ["one", "two"]
    assert sent.output.count("the message is not kept") == 2
    assert sent.exit_code == 130


def test_files_are_parts_by_what_is_in_them(tmp_path: Path) -> None:
    parts = {}
    for name, data in {"i": PNG, "t": "é".encode(), "p.pdf": b"%PDF-1.7", "w": b"RIFF0000WEBP"}.items():
        (tmp_path / name).write_bytes(data)
        parts[name] = attachment_part(tmp_path / name)
    assert parts["i"]["image_url"].startswith("data:image/png;base64,")
    assert parts["w"]["image_url"].startswith("data:image/webp;base64,")
    assert parts["t"] == {"type": "input_text", "text": "t:\né"}
    assert (parts["p.pdf"]["type"], parts["p.pdf"]["filename"]) == ("input_file", "p.pdf")


def unattachable(folder: Path) -> Iterator[tuple[Path, str]]:
    os.mkfifo(folder / "pipe")
    (folder / "binary").write_bytes(b"\xff\x00\xfe")
    with (folder / "large").open("wb") as opened:
        opened.truncate(MOST_BYTES + 1)
    with (folder / "long.txt").open("wb") as opened:
        opened.truncate(1024 * 1024 + 1)
    yield folder / "pipe", "not a regular file"
    yield Path("/dev/zero"), "not a regular file"
    yield folder, "Is a directory"
    yield folder / "binary", "neither an image"
    yield folder / "large", "20 MiB at most"
    yield folder / "long.txt", "1 MiB at most"


def test_what_can_not_be_sent_says_why(tmp_path: Path) -> None:
    for path, why in unattachable(tmp_path):
        with pytest.raises(AttachmentError, match=why):
            attachment_part(path)


def test_an_attachment_goes_once_and_stays_when_the_answer_fails(tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(PNG)
    conversation = ChatSession()
    conversation.attachments.append(attachment_part(tmp_path / "i"))
    failed = played([("text", "x"), ("fail", "model_error", "no")]).machine.snapshot
    first = conversation.request("m", "Look")
    conversation.add_response(failed)
    again = conversation.request("m", "Look")
    assert first == again
    assert [part["type"] for part in again["input"][0]["content"]] == ["input_image", "input_text"]
    conversation.add_response(played(SCRIPTS["text"]).machine.snapshot)
    assert len(conversation.request("m", "And?")["input"][-1]["content"]) == 1


def test_reasoning_is_kept_where_it_can_be_sent_back() -> None:
    conversation = ChatSession()
    for script, types in (
        ("reasoning", ["message", "reasoning", "message"]),
        ("text_then_tool", ["message", "message"]),
    ):
        conversation.clear()
        conversation.request("m", "Hi")
        conversation.add_response(played(SCRIPTS[script]).machine.snapshot)
        assert [item["type"] for item in conversation.request("m", "?")["input"][:-1]] == types


def test_a_message_that_is_not_text_is_refused(demo: str) -> None:
    done = CliRunner().invoke(main, ["chat", "--server", demo], input=b"Hi \xff")
    assert done.exit_code == 2
    assert "the message on standard input is not text in UTF-8 (byte 3)" in done.stderr
