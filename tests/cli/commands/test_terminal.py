"""What commands print of others' texts: to a terminal nothing that it obeys, hides or turns, to a pipe every
byte as it came."""

import json
import os
import pty
import re
import subprocess
from base64 import b64decode
from contextlib import suppress
from io import StringIO

import pytest

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_cli.agents.screen import OutputStream, Screen
from openresponses_cli.commands.flags import TARGETS
from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from tests.support.forked import Forked
from tests.support.model_scripts import played
from tests.support.serving import respond, serving
from tests.support.terminal_text import is_safe

EVIL = "words \x9b2J\u202e\x7f\u3164\U000e0101 more"
OUR_OWN = "\n\t\r\x1b"  # of colours and of what is drawn over
ENVIRONMENT = {**os.environ, "MINE": "mine", "TERM": "xterm"}


def printed(words: list[str], stdin: bytes = b"", *, to_terminal: bool) -> str:
    """What a command writes to its standard output."""
    ours, theirs = pty.openpty() if to_terminal else os.pipe()
    pipe = subprocess.PIPE
    with Forked[bytes](words, stdin=pipe, stdout=theirs, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as p:
        os.close(theirs)
        assert p.stdin is not None
        p.stdin.write(stdin)
        p.stdin.close()
        written = b""
        with suppress(OSError):  # a terminal whose other end is closed
            while piece := os.read(ours, 65536):
                written += piece
        os.close(ours)
    return written.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def capture() -> bytes:
    return encode_sse(played([("reasoning", EVIL), ("text", EVIL), ("end", "stop")]).events)


@pytest.mark.parametrize("target", TARGETS)
def test_a_replayed_stream_moves_no_cursor_and_is_the_same_json(capture: bytes, target: str) -> None:
    words = ["replay", "--to", target]
    shown, piped = (printed(words, capture, to_terminal=each) for each in (True, False))
    assert is_safe(shown)
    if encoded := re.findall(r'"bytes":"([^"]+)"', piped):  # InvokeModel's, which move nothing
        assert EVIL in "".join(b64decode(each).decode() for each in encoded)
        assert shown == piped
        return
    assert EVIL in piped
    assert "words \\u009b2J\\u202e\\u007f\\u3164\\udb40\\udd01 more" in shown
    assert [_json(line) for line in shown.split("\n")] == [_json(line) for line in piped.split("\n")]


def _json(line: str) -> object:
    body = line.removeprefix("data: ")
    return json.loads(body) if body.startswith("{") else line


def test_json_of_a_capture_moves_no_cursor(capture: bytes) -> None:
    for words in (["inspect", "--json", "-"], ["validate", "--json", "-"]):
        broken = capture.replace(b'"sequence_number":3', '"sequence_number":"\x9b\u202e"'.encode())
        assert is_safe(printed(words, broken, to_terminal=True), OUR_OWN)


def test_stored_responses_move_no_cursor() -> None:
    with serving(Settings(api_keys=[hashed("mine")])) as base:
        response_id = respond(base, {"authorization": "Bearer mine"}, model="demo", input=EVIL).json["id"]
        server = ["--server", base, "--api-key-env", "MINE"]
        for words in (
            ["list"],
            ["list", "--json"],
            ["show", response_id],
            ["show", response_id, "--json"],
            ["export"],
        ):
            shown = printed(["responses", *words, *server], to_terminal=True)
            assert "words" in shown
            assert is_safe(shown, OUR_OWN)
        assert EVIL in printed(["responses", "export", *server], to_terminal=False)


@pytest.mark.parametrize("width", [20, 33, 80])
def test_no_line_of_a_question_passes_for_another_by_wrapping(width: int) -> None:
    """A line that is as wide as the screen, and then says what the question could say."""
    console = OutputStream(file=StringIO(), width=width)
    forged = "| +" + " " * (width - 3) + "Makefile: new" + "\t" * width + "語" * width
    Screen(console).show_question(f"Change this file?\n{forged}\nChange 1 file (1 new), +1 -0?")
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().split("\n")
    assert "".join(line.removeprefix("↪ ") for line in lines[1:]).count("語") == width
    assert all(line.startswith(("Change", "| ", "↪ ")) for line in lines)
    assert "".join(line.removeprefix("↪ ") for line in lines).endswith("+1 -0? [y/N] ")
