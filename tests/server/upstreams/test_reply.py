"""What comes on a connection is given to a sink in its order, and nothing of it is lost; a sink that pauses
is given nothing."""

import asyncio
import gc
import time
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest

from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.body import PIECE, FairScheduler, ResponseBody
from openresponses_server.http.flow import BodyReader, Discard, TaskSource
from openresponses_server.upstreams.http import HttpReply, WholeReply

pytestmark = pytest.mark.anyio


class Connection:
    """Counts what a body asks of it."""

    paused = 0

    def pause(self) -> None:
        self.paused += 1

    def resume(self) -> None:
        self.paused -= 1


class Notes:
    """A sink that pauses its source when it has `wanted` pieces."""

    def __init__(self, source: Any, wanted: int = 1000) -> None:
        self.source = source
        self.wanted = wanted
        self.pieces: list[bytes] = []
        self.ends: list[Exception | None] = []
        source.start(self)

    def feed(self, data: bytes) -> None:
        self.pieces.append(data)
        if len(self.pieces) >= self.wanted:
            self.source.pause()

    def end(self, error: Exception | None) -> None:
        self.ends.append(error)


async def reply() -> tuple[ResponseBody, HttpReply]:
    body = ResponseBody(Connection(), FairScheduler())
    return body, HttpReply("one", cast(Any, SimpleNamespace(content=body, headers={})), 10.0, "")


@pytest.mark.parametrize("ends", [False, True])
async def test_what_comes_while_a_sink_pauses_waits_with_the_end(ends: bool) -> None:
    body, source = await reply()
    notes = Notes(source, wanted=2)
    for piece in (b"a", b"b", b"c", b"d"):
        body.feed(piece)
    if ends:
        body.end()
    assert (notes.pieces, notes.ends) == ([b"a", b"b"], [])
    source.resume()
    assert (notes.pieces, notes.ends) == ([b"a", b"b", b"cd"], [])
    source.resume()
    body.feed(b"e")
    assert notes.ends == ([None] if ends else [])
    assert notes.pieces[3:] == ([] if ends else [b"e"])
    source.close()


async def test_a_sink_that_is_closed_is_given_nothing_more() -> None:
    body, source = await reply()
    notes = Notes(source)
    body.feed(b"a")
    source.close()
    body.feed(b"b")
    body.end()
    assert (notes.pieces, notes.ends) == ([b"a"], [])


class Headers(dict[str, str]):
    """Can be referred to weakly."""


@pytest.mark.parametrize("ends", [False, True])
async def test_s4_a_reply_and_its_body_do_not_keep_each_other(ends: bool) -> None:
    """Of those that do a busy process keeps megabytes."""
    body, headers = ResponseBody(Connection(), FairScheduler()), Headers()
    source = HttpReply("one", cast(Any, SimpleNamespace(content=body, headers=headers)), 10.0, "")
    reference = weakref.ref(headers)
    gc.disable()
    try:
        source.start(Discard())
        body.feed(b"a")
        if ends:
            body.end()
        else:
            source.close()
        del body, source, headers
        assert reference() is None
    finally:
        gc.enable()


async def test_s4_what_is_kept_for_a_sink_that_pauses_is_bounded() -> None:
    body, source = await reply()
    notes = Notes(source, wanted=1)
    body.feed(b"a")
    connection: Any = body.flow
    for _ in range(3):
        body.feed(b"x" * 40_000)
    assert connection.paused == 1
    notes.wanted = 1000
    source.resume()
    while sum(map(len, notes.pieces)) < 120_001:
        await asyncio.sleep(0)
    assert connection.paused == 0
    assert max(map(len, notes.pieces)) <= PIECE
    source.close()


async def test_a_reply_is_silent_when_nothing_was_heard_for_all_of_its_looks() -> None:
    body, source = await reply()
    notes = Notes(source)
    for _ in range(3):
        for _ in range(4):
            source._check_idle()
        body.feed(b"a")
    for _ in range(5):
        source._check_idle()
        assert not notes.ends
    source._check_idle()
    (error,) = notes.ends
    assert isinstance(error, UpstreamError)
    assert error.code == UpstreamError.TIMEOUT
    body.feed(b"b")
    body.end()
    assert (len(notes.pieces), len(notes.ends)) == (3, 1)


async def test_comments_are_silence_and_what_stands_beside_them_is_not() -> None:
    body, source = await reply()
    notes = Notes(source)
    for piece in (b": processing\n\ndata: 1\n\n", b":\r\n\r\nevent: a\r\n", b"data: 2\n\n"):
        for _ in range(4):
            source._check_idle()
            body.feed(b": processing\n\n")
        body.feed(piece)
    for _ in range(6):
        assert not notes.ends
        source._check_idle()
        body.feed(b":\n\n: processing\r\n\r\n")
    (error,) = notes.ends
    assert isinstance(error, UpstreamError)
    assert error.code == UpstreamError.TIMEOUT


async def test_a_sink_that_pauses_is_not_the_upstream_s_silence() -> None:
    body, source = await reply()
    notes = Notes(source, wanted=1)
    body.feed(b"a")
    for _ in range(20):
        source._check_idle()
    assert not notes.ends
    source.close()


async def test_what_waits_for_its_turn_is_not_the_upstream_s_silence() -> None:
    body, source = await reply()
    notes = Notes(source)
    while not body.scheduler.must_wait(PIECE):
        time.sleep(0.001)
    body.feed(b"a")
    assert not body.is_waiting
    for _ in range(10):
        source._check_idle()
    await asyncio.sleep(0.01)
    assert body.is_waiting
    assert (notes.pieces, notes.ends) == ([b"a"], [])
    source.close()


async def test_a_source_that_is_read_by_a_task_keeps_to_the_same() -> None:
    pieces = iter((b"a", b"b", b"c"))

    async def read() -> bytes:
        return next(pieces, b"")

    source = TaskSource(read)
    notes = Notes(source, wanted=2)
    await asyncio.sleep(0.01)
    assert (notes.pieces, notes.ends) == ([b"a", b"b"], [])
    notes.wanted = 1000
    source.resume()
    await asyncio.sleep(0.01)
    assert (notes.pieces, notes.ends) == ([b"a", b"b", b"c"], [None])
    late = Discard()
    source.start(late)
    await late.ended.wait()
    source.close()


async def test_a_task_source_ends_with_what_its_read_raises_and_stops_when_it_is_closed() -> None:
    async def broken() -> bytes:
        raise OSError("gone")

    source = TaskSource(broken)
    notes = Notes(source)
    await asyncio.sleep(0.01)
    assert [str(error) for error in notes.ends] == ["gone"]
    forever = TaskSource(lambda: asyncio.sleep(60, b""))
    silent = Notes(forever)
    await asyncio.sleep(0)
    forever.close()
    await asyncio.sleep(0.01)
    assert (silent.pieces, silent.ends) == ([], [])
    late = TaskSource(lambda: asyncio.sleep(60, b""))
    cut = Notes(late)
    late.end(TimeoutError())
    await asyncio.sleep(0.01)
    assert [type(error) for error in cut.ends] == [TimeoutError]


async def test_a_reader_reads_all_pauses_its_source_and_raises_what_cut_it() -> None:
    body, source = await reply()
    reader = BodyReader(source)
    body.feed(b"a")
    body.feed(b"b")
    assert await reader.read() == b"ab"
    connection: Any = body.flow
    for _ in range(5):
        body.feed(b"x" * 30_000)
    await asyncio.sleep(0.01)
    body.feed(b"x" * 70_000)
    assert connection.paused == 1
    body.end(ConnectionResetError())
    sizes: list[int] = []

    async def read_on() -> None:
        while data := await reader.read():
            sizes.append(len(data))

    with pytest.raises(UpstreamError, match="was lost"):
        await read_on()
    assert sum(sizes) == 220_000


async def test_the_beginning_is_collected_and_the_rest_is_for_another_sink() -> None:
    body, source = await reply()
    for piece in (b"ab", b"cd", b"ef"):
        body.feed(piece)
    reader = BodyReader(body)
    assert await reader.collect(4) == b"abcdef"
    body.feed(b"gh")
    notes = Notes(body)
    body.end()
    assert (notes.pieces, notes.ends) == ([b"gh"], [None])
    with pytest.raises(TimeoutError):
        await BodyReader(ResponseBody(Connection(), FairScheduler())).collect(1, idle=0.01)
    source.close()


@pytest.mark.parametrize("rest", [False, True])
async def test_a_whole_answer_is_one_frame(rest: bool) -> None:
    body, source = await reply()
    notes = Notes(whole := WholeReply(b'{"a":\r\n', "", source if rest else None))
    whole.pause()
    whole.resume()
    body.feed(b"1}")
    body.end()
    expected = b'data: {"a":  1}\n\n' if rest else b'data: {"a":  \n\n'
    assert b"".join(notes.pieces) == expected
    assert notes.ends == [None]
    source.close()


async def test_a_whole_answer_that_is_cut_has_no_end() -> None:
    body, source = await reply()
    notes = Notes(WholeReply(b"{", "", source))
    body.end(ConnectionResetError())
    assert b"".join(notes.pieces) == b"data: {"
    assert isinstance(notes.ends[0], UpstreamError)
