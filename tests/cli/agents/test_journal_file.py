"""Journal entries in a file: only whole lines are read."""

import os
from pathlib import Path

import pytest

from openresponses_agent.loop import JournalError, LoopBegun, LoopEnded, RoundMade, ToolCallRound
from openresponses_agent.prompt.raw import ChatMessage
from openresponses_cli.agents.running import JournalFile


def test_what_is_recorded_is_read_again_and_a_cut_line_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with JournalFile(path) as journal:
        journal.record(LoopBegun("q"))
        journal.record(LoopEnded("done"))
    path.write_bytes(path.read_bytes()[:-3])
    with JournalFile(path) as journal:
        assert journal.entries == [LoopBegun("q")]
        journal.record(LoopEnded("failed"))
    with JournalFile(path) as journal:
        assert journal.entries == [LoopBegun("q"), LoopEnded("failed")]


def test_rounds_after_a_failed_write_and_in_another_process_refer_to_what_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    prompt = [ChatMessage(role="user", content=f"{number}" * 50) for number in range(4)]
    rounds = [
        RoundMade(ToolCallRound(prompt=prompt[:number], response="", tool_calls=[]))
        for number in (1, 2, 3, 4)
    ]
    with JournalFile(path) as journal:
        journal.record(LoopBegun("q"))
        journal.record(rounds[0])
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda descriptor, data: _full())
            with pytest.raises(OSError, match="No space"):
                journal.record(rounds[1])
        journal.record(rounds[2])
    with JournalFile(path) as journal:
        journal.record(rounds[3])
    with JournalFile(path) as journal:
        assert journal.entries == [LoopBegun("q"), rounds[0], rounds[2], rounds[3]]
    assert all(path.read_bytes().count(f"{number}".encode() * 50) == 1 for number in range(4))


def _full() -> int:
    raise OSError(28, "No space left on device")


def test_a_first_line_that_was_cut_is_an_empty_journal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"type":"begun","que')
    with JournalFile(path) as journal:
        assert journal.entries == []
    assert path.read_bytes() == b""


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    write = os.write
    with JournalFile(path) as journal:
        journal.record(LoopBegun("q"))
        before = path.read_bytes()

        def full(descriptor: int, data: bytes) -> int:
            if len(data) < 10:
                raise OSError(28, "No space left on device")
            return write(descriptor, data[:-9])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            journal.record(LoopEnded("done"))
    assert path.read_bytes() == before


def test_what_is_not_a_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(JournalError, match="regular file"):
            JournalFile(path).__enter__()
