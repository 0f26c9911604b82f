"""Reading a recording: what is wrong with it is named with its line, and only its places are kept."""

import json
import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.observation.recordings.captures import UnreadableCapture
from openresponses_server.observation.recordings.reader import Changed, read_recording, wanted
from openresponses_server.observation.recordings.records import Chunk, is_recording

HEAD = {"type": "recording", "version": 1}
# too deep for Python's calls and not for the decoder of JSON, which counts as one of them up to Python 3.11
_DEPTH = 900 if sys.version_info < (3, 12) else 5_000
DEEP = f'{{"input": {"[" * _DEPTH}{"]" * _DEPTH}}}'


def asked(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "exchange", "exchange": number, "at": 0, "dialect": "chat"} | more


def answered(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "answer", "exchange": number, "at": 0, "status": 200} | more


def chunk(number: int = 1, text: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "chunk", "exchange": number, "at": 1, "text": text} | more


def ended(number: int = 1) -> dict[str, Any]:
    return {"type": "end", "exchange": number, "at": 2, "how": "finished"}


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines))
    return path


def test_exchanges_at_the_same_time_are_kept_apart_by_their_numbers(tmp_path: Path) -> None:
    lines = [asked(), asked(2), answered(2), chunk(2, "a"), answered(), chunk(1, "b"), chunk(2, "c")]
    later = {"type": "hypothesis", "exchange": 7, "x": 1}
    path = written(tmp_path / "r", HEAD, *lines, later, "", chunk(1, "d"), ended(2), ended())
    recording = read_recording(path)
    texts = [
        [record.text for record in recording.records(each) if isinstance(record, Chunk)]
        for each in recording.exchanges
    ]
    assert texts == [["b", "d"], ["a", "c"]]
    assert [(each.status, each.end) for each in recording.exchanges] == [(200, "finished")] * 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "line 1: it is empty"),
        ([asked()], "line 1: this is not a recording"),
        (["data: {}"], "line 1:"),
        ([HEAD | {"version": 2}], "line 1: version 2"),
        ([HEAD, HEAD], "line 2: a second recording"),
        ([HEAD, asked(), asked()], "line 3: exchange 1 begins twice"),
        ([HEAD, answered()], "line 2: exchange 1 has not begun"),
        ([HEAD, asked(), chunk()], "line 3: exchange 1 has no status"),
        ([HEAD, asked(), answered(), answered()], "line 4: exchange 1 has a second status"),
        ([HEAD, asked(), ended(), chunk()], "line 4: exchange 1 has already ended"),
        ([HEAD, asked(), answered(), '{"type":"chunk","exchange":1,"at":1,"te'], "line 4:"),
        ([HEAD, asked(), answered(), chunk() | {"base64": "?"}], "line 4:"),
        ([HEAD, asked(), answered(status=20)], "line 3:"),
        ([HEAD, asked() | {"exchange": -1}], "line 2:"),
        ([HEAD, asked() | {"at": "soon"}], "line 2:"),
        ([HEAD, "[" * 100_000], "line 2:"),
        ([HEAD, json.dumps(asked(body="deep")).replace('"deep"', DEEP)], "line 2: the request is nested"),
        ([HEAD, '{"type": "chunk"'], "line 2:"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(UnreadableCapture) as raised:
        read_recording(written(tmp_path / "r", *lines))
    assert str(raised.value).startswith(said)


def test_a_file_that_ends_within_a_line_says_so(tmp_path: Path) -> None:
    path = written(tmp_path / "r", HEAD, asked(), answered(), chunk())
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UnreadableCapture, match=r"line 4: .* \(the file ends within this line\)"):
        read_recording(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on the kind
            read_recording(path)


@pytest.mark.parametrize("how", ["grown", "other", "cut"])
def test_a_file_that_changes_is_noticed(tmp_path: Path, how: str) -> None:
    path = written(tmp_path / "r", HEAD, asked(), answered(), chunk(), ended())
    recording = read_recording(path)
    if how == "grown":
        path.write_bytes(path.read_bytes() + b"\n")
    elif how == "other":
        path.rename(tmp_path / "old")
        written(path, HEAD, asked(), answered(), chunk(), ended())
    else:
        os.truncate(path, 50)
    with pytest.raises(Changed):
        list(recording.records(recording.exchanges[0]))


def test_what_was_said_is_not_kept_in_memory(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 1_000_000}]}
    lines = [
        line
        for n in range(1, 9)
        for line in (asked(n, body=body), answered(n), *[chunk(n, "y" * 9000)] * 100)
    ]
    path = written(tmp_path / "r", HEAD, *lines)
    assert path.stat().st_size > 15_000_000
    tracemalloc.start()
    recording = read_recording(path)
    current, most = tracemalloc.get_traced_memory()
    size = sum(
        len(each.data) for each in recording.records(recording.exchanges[3]) if isinstance(each, Chunk)
    )
    read = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size == 900_000
    assert current < 200_000
    assert most < 10_000_000
    assert read < 400_000


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        (b'{"type":"recording","version":1}\n', True),
        (b'{"version":1,"type":"recording"}', True),
        (b'{"type":"response.created"}\n', False),
        (b"data: {}\n", False),
        (b"", False),
        (b"[" * 4000, False),
    ],
)
def test_a_recording_is_known_by_its_first_line(line: bytes, is_one: bool) -> None:
    assert is_recording(line) is is_one


def test_the_last_input_counts_without_its_ids_and_white_space() -> None:
    def of(content: Any, **more: Any) -> Any:
        return wanted({"model": "m", "messages": [{"role": "user", "content": content}], **more})

    assert of("Hello  there\n") == of("Hello there", temperature=1)
    assert of("Hello") == of([{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}])
    assert of("Hello") != of("Bye")
    assert of("Hello") != of("Hello", model="n")
    assert wanted({"model": "m", "input": "Hello"}) == of("Hello")
    tool = {"role": "tool", "content": "42"}
    assert of("x", messages=[tool | {"tool_call_id": "a"}]) == of(
        "x", messages=[tool | {"tool_call_id": "b"}]
    )
    for body in (None, [], {}, {"messages": []}, {"model": 5, "input": None}):
        assert wanted(body).model == ""
