"""Messages between processes: in order, each to its reader, never to a stopped process."""

import os
from pathlib import Path

import pytest

from openresponses_server.store.pipes import Pipes
from tests.support.waiting import until


def opened(folder: Path, process: str) -> tuple[Pipes, list[list[str]]]:
    """A process' pipe, and what it was told."""
    pipes, heard = Pipes(folder, process), []
    pipes.handlers["say"] = heard.append
    pipes.open()
    return pipes, heard


async def test_messages_arrive_in_order(tmp_path: Path) -> None:
    (one, _), (two, heard) = opened(tmp_path, "one"), opened(tmp_path, "two")
    for number in range(50):
        assert one.send("two", "say", "one", str(number))
    await until(lambda: len(heard) == 50)
    assert heard == [["one", str(number)] for number in range(50)]
    for each in (one, two):
        each.close()
    assert not list(tmp_path.iterdir())


async def test_all_others_are_told(tmp_path: Path) -> None:
    processes = [opened(tmp_path, f"p{number}") for number in range(4)]
    processes[0][0].send_all("say", "x")
    await until(lambda: all(heard == [["x"]] for _, heard in processes[1:]))
    assert processes[0][1] == []
    for pipes, _ in processes:
        pipes.close()


async def test_process_that_has_stopped_is_told_nothing_and_its_pipe_is_removed(tmp_path: Path) -> None:
    one, _ = opened(tmp_path, "one")
    two, _ = opened(tmp_path, "two")
    assert one.send("two", "say", "x")
    assert two._file is not None
    path = tmp_path / "two.pipe"
    aside = path.with_name("kept")
    os.link(path, aside)
    two.close()
    aside.rename(path)  # as if it had been killed
    assert not one.send("two", "say", "x")
    one.send_all("say", "x")
    assert [each.name for each in tmp_path.iterdir()] == ["one.pipe"]
    assert not one.send("three", "say", "x")
    one.close()


async def test_reader_that_does_not_read_gets_all_later(tmp_path: Path) -> None:
    (one, _), (two, heard) = opened(tmp_path, "one"), opened(tmp_path, "two")
    for number in range(9000):  # more than the pipe holds, and the loop has no turn meanwhile
        assert one.send("two", "say", f"{number:05}" + "x" * 20)
    await until(lambda: len(heard) == 9000)
    assert [int(each[0][:5]) for each in heard] == list(range(9000))
    for each in (one, two):
        each.close()


@pytest.mark.parametrize("before", [0, 9000], ids=["read at once", "waiting at a full pipe"])
async def test_what_is_taken_back_and_said_again_is_said(tmp_path: Path, before: int) -> None:
    (one, _), (two, heard) = opened(tmp_path, "one"), opened(tmp_path, "two")
    two.handlers["unsay"] = lambda words: heard.remove(words) if words in heard else None
    for number in range(before):
        assert one.send("two", "say", f"{number:05}" + "x" * 20)
    for kind in ("say", "unsay", "say"):
        assert one.send("two", kind, "x")
    assert one.send("two", "say", "last")
    await until(lambda: heard[-1:] == [["last"]])
    assert heard[before:] == [["x"], ["last"]]
    for each in (one, two):
        each.close()


async def test_reader_that_never_reads_is_given_up(tmp_path: Path) -> None:
    (one, _), (two, _) = opened(tmp_path, "one"), opened(tmp_path, "two")
    sent = [one.send("two", "say", f"{number:05}" + "x" * 20) for number in range(14_000)]
    assert not all(sent)
    for each in (one, two):
        each.close()


async def test_reader_that_was_given_up_keeps_its_pipe(tmp_path: Path) -> None:
    """It may only have stood still."""
    (one, _), (two, heard) = opened(tmp_path, "one"), opened(tmp_path, "two")
    for number in range(14_000):
        one.send_all("say", f"{number:05}" + "x" * 20)
    await until(lambda: heard)
    one.send_all("say", "last")
    await until(lambda: heard[-1] == ["last"])
    for each in (one, two):
        each.close()


async def test_message_that_fails_does_not_stop_the_next(tmp_path: Path) -> None:
    (one, _), (two, heard) = opened(tmp_path, "one"), opened(tmp_path, "two")
    two.handlers["fail"] = lambda words: 1 // 0
    assert one.send("two", "fail", "x")
    assert one.send("two", "unknown", "x")
    assert one.send("two", "say", "x")
    await until(lambda: heard == [["x"]])
    for each in (one, two):
        each.close()


async def test_message_that_is_too_long_to_be_written_at_once_is_refused(tmp_path: Path) -> None:
    (one, _), (two, _) = opened(tmp_path, "one"), opened(tmp_path, "two")
    with pytest.raises(ValueError, match="at most 512 bytes"):
        one.send("two", "say", "x" * 600)
    for each in (one, two):
        each.close()
