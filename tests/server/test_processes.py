"""Lines to and from child programs: bounded, however they were cut."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from openresponses_server.processes import (
    ChildProcess,
    LineSplitter,
    LineTooLong,
    LineWriter,
    OversizedLine,
    inherited_environment,
    log_stderr,
)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_the_same_however_they_were_cut_up(size: int) -> None:
    data = b'{"a": 1}\n\n  {"b": 2}\r\n' + b"x" * 21 + b"\n{}\n" + b"y" * 20 + b"\nrest"
    lines = LineSplitter(20)
    output = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    assert output == [b'{"a": 1}', b'{"b": 2}', OversizedLine(b"x" * 21, b"x" * 21), b"{}", b"y" * 20]


@pytest.mark.parametrize("size", [1000, 4096, 100_000])
def test_s8_of_a_line_that_is_too_long_the_ends_are_kept(size: int) -> None:
    line = b"a" * 512 + b"x" * 50_000 + b"b" * 512
    data = line + b"\nnext\n"
    lines = LineSplitter(4096)
    output = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    assert output == [OversizedLine(b"a" * 512, b"b" * 512), b"next"]


def test_s8_the_end_of_a_line_is_not_waited_for_without_end() -> None:
    lines = LineSplitter(100)
    for _ in range(32):
        assert lines.feed(b"x" * 100) == []
    with pytest.raises(LineTooLong):
        lines.feed(b"x")


@pytest.mark.parametrize(
    ("start", "end", "answered"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"a', b'"}}', 7),
        (b'{"jsonrpc": "2.0", "id": "a b", "error": {', b"}}", "a b"),
        (b'{"id":-7,"jsonrpc":"2.0","result":{"a', b'"}}', -7),
        (b'{"result":{"a', b'b"},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result":{"a', b'b"}, "id" : 007 , "jsonrpc" : "2.0" } ', 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"roots/list","params":{', b"}}", None),
        (b'{"jsonrpc":"2.0","method":"roots/list","params":{', b'},"id":7}', None),
        (b'{"method":"notifications/message","params":{', b'"id":7}}', None),
        (b'{"result":{"a', b'b\\"id":7}', None),
        (b'{"result":{"a', b'"id":7}}', None),
        (b'"id":7,', b"\xff", None),
    ],
)
def test_the_request_that_an_oversized_line_answers_is_read_from_its_ends(
    start: bytes, end: bytes, answered: int | str | None
) -> None:
    assert OversizedLine(start, end).answered == answered


LEAVES = """
import subprocess, sys
left = subprocess.Popen(["sleep", "3600"], start_new_session=True)
print(left.pid, flush=True)
sys.stdin.read()
"""


async def test_a_program_ends_though_what_it_started_holds_its_pipes(tmp_path: Path) -> None:
    child = await ChildProcess.start([sys.executable, "-c", LEAVES], inherited_environment(), str(tmp_path))
    left = int(await child.stdout.readline())
    try:
        await child.stop(60)
        assert await child.wait(60) == 0
    finally:
        os.kill(left, signal.SIGKILL)


READS_LATE = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
sys.stdin.buffer.readline()
"""


async def write_until_refused(writer: LineWriter) -> None:
    while True:
        writer.write(b"{}\n")
        await asyncio.sleep(0.001)


async def test_s8_a_program_that_does_not_read_is_not_written_to(tmp_path: Path) -> None:
    reads = tmp_path / "reads"
    command = [sys.executable, "-c", READS_LATE, str(reads)]
    child = await ChildProcess.start(command, inherited_environment(), str(tmp_path))
    writer = LineWriter(child, 1000)
    assert writer.write(b"x" * 1_000_000 + b"\n")
    assert not writer.write(b"{}\n")
    reads.touch()
    with pytest.raises(BrokenPipeError):
        await write_until_refused(writer)
    await child.stop(5)


async def test_s7_no_part_of_a_secret_is_logged_of_a_line_that_arrives_in_pieces() -> None:
    """Nor are the last words lost that end in no line."""
    secret = "sk-" + "secret" * 8
    errors = asyncio.StreamReader()
    errors.feed_data(b"x" * 480 + secret.encode() + b"y" * 40_000 + b"\n")
    errors.feed_data(b"it ends with " + secret.encode())
    errors.feed_eof()
    with capture_logs() as logged:
        await log_stderr(errors, "stderr", lambda text: text.replace(secret, "***"), server="s")
    assert [each["line"] for each in logged] == ["x" * 480 + "***" + "y" * 17, "it ends with ***"]
