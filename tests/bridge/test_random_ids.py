"""Ids come from the system's randomness, each once: over reads, threads and forks."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import pytest

from openresponses_bridge import random_ids
from openresponses_bridge.random_ids import LONGEST, random_id


def test_names_are_hexadecimal_digits_and_differ() -> None:
    names = [random_id("id") for _ in range(1000)]
    assert len({*names}) == 1000
    assert all(len(name) == len("id_") + LONGEST and int(name[3:], 16) >= 0 for name in names)
    assert len(random_id("id", 24)) == len("id_") + 24


def test_they_are_the_system_s_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    random_ids._names.clear()
    monkeypatch.setattr("os.urandom", lambda size: bytes(index // 16 for index in range(size)))
    try:
        names = [random_id("id") for _ in range(64)]
        assert {*names} == {"id_" + f"{number:02x}" * 16 for number in range(64)}
    finally:
        random_ids._names.clear()


def test_threads_share_none() -> None:
    with ThreadPoolExecutor(8) as threads:
        names = list(threads.map(lambda _: random_id("id"), range(5000)))
    assert len({*names}) == 5000


def test_a_fork_gives_others() -> None:
    if not hasattr(random_ids.os, "fork"):
        pytest.skip("there are no forks here")
    random_id("id")  # the rest of this read is there when the process forks
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_tell, args=(random_id, theirs))
    child.start()
    child_id = ours.recv()
    child.join()
    assert child_id not in {random_id("id") for _ in range(200)}


def _tell(name: Callable[[str], str], to: Connection) -> None:
    to.send(name("id"))
