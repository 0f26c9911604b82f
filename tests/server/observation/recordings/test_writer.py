"""What can't be written never holds up the answer, and the recording says so."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from openresponses_server.observation.recordings.masking import Secrets
from openresponses_server.observation.recordings.reader import read_recording
from openresponses_server.observation.recordings.records import RecordedRequest, decode_record
from openresponses_server.observation.recordings.writer import ExchangeRecorder, RecordingFile, files_in

NOTHING = Secrets([])
ASKED = RecordedRequest(0, 0, dialect="chat", model="m")


def new(path: Path, **more: Any) -> RecordingFile:
    ticks = iter(range(10_000))
    return RecordingFile(
        path, clock=lambda: next(ticks) / 4, now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), **more
    )


def kinds(path: Path) -> list[str]:
    records = [decode_record(line) for line in path.read_bytes().splitlines()]
    return [str(type(each).__struct_config__.tag) for each in records if each is not None]


def test_the_lines(tmp_path: Path) -> None:
    file = new(tmp_path / "sub" / "r.jsonl")
    assert not file.path.exists()
    recorder = ExchangeRecorder(file, NOTHING, ASKED, b'{"model":"m","messages":[]}')
    recorder.answer(200, {"content-type": "text/event-stream", "set-cookie": "a"})
    recorder.chunk("é".encode()[:1])
    recorder.chunk(b"data: x\n\n")
    recorder.end("finished")
    recorder.end("cut")
    file.close()
    assert file.path.read_text().splitlines() == [
        '{"type":"recording","version":1,"created_at":"2026-01-02T03:04:05.000Z",'
        '"generator":"openresponses-bridge 0.1.0"}',
        '{"type":"exchange","exchange":1,"at":0.25,"dialect":"chat","model":"m",'
        '"body":{"model":"m","messages":[]}}',
        '{"type":"answer","exchange":1,"at":0.5,"status":200,"headers":{"content-type":"text/event-stream"}}',
        '{"type":"chunk","exchange":1,"at":0.75,"base64":"ww=="}',
        '{"type":"chunk","exchange":1,"at":1.0,"text":"data: x\\n\\n"}',
        '{"type":"end","exchange":1,"at":1.25,"how":"finished"}',
    ]
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is taken back, so that what is before it can be read, and the end says why it stops."""
    file = new(tmp_path / "r.jsonl")
    recorder = ExchangeRecorder(file, NOTHING, ASKED)
    recorder.answer(200, {})
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 100:
            return write(descriptor, bytes(data)[:50])
        if len(data) > 60:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with capture_logs() as logs:
        recorder.chunk(b"x" * 80)
        recorder.chunk(b"y")
    monkeypatch.undo()
    recorder.end("finished")
    later = ExchangeRecorder(file, NOTHING, ASKED)
    later.answer(200, {})
    later.chunk(b"z")
    later.end("finished")
    assert [each["event"] for each in logs] == ["recording.stopped"]
    (exchange,) = read_recording(file.path).exchanges
    assert exchange.end == "unrecorded"
    assert kinds(file.path) == ["recording", "exchange", "answer", "end"]
    assert "No space left" in file.path.read_text()


def test_it_grows_no_larger_than_it_may(tmp_path: Path) -> None:
    file = new(tmp_path / "r.jsonl", most=128 * 1024)
    recorder = ExchangeRecorder(file, NOTHING, ASKED)
    recorder.answer(200, {})
    for _ in range(1000):
        recorder.chunk(b"x" * 1000)
    recorder.end("finished")
    assert file.path.stat().st_size < 128 * 1024
    assert read_recording(file.path).exchanges[0].end == "unrecorded"


@pytest.mark.parametrize("kind", ["exists", "link", "folder"])
def test_it_writes_over_nothing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "r.jsonl"
    (tmp_path / "kept").write_text("mine")
    if kind == "exists":
        path.write_text("mine")
    elif kind == "link":
        path.symlink_to(tmp_path / "kept")
    else:
        path = tmp_path / "kept" / "r.jsonl"
    file = new(path)
    with capture_logs():
        recorder = ExchangeRecorder(file, NOTHING, ASKED)
        recorder.end("finished")
    assert file.failure
    assert (tmp_path / "kept").read_text() == "mine"


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/", "a b", "é" * 300, ".hidden", ""])
def test_a_name_of_an_upstream_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    path = files_in(str(tmp_path))(name).path
    assert path.parent == tmp_path
    assert not path.name.startswith(".")
    assert len(path.name) < 120


def test_a_closed_recording_takes_nothing(tmp_path: Path) -> None:
    file = new(tmp_path / "r.jsonl")
    file.close()
    ExchangeRecorder(file, NOTHING, ASKED).end("finished")
    assert not file.path.exists()
