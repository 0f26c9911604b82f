"""Stored frames in pieces: what a reader of a long record holds is bounded, and nothing is lost."""

import pytest

from openresponses_server.store.base import Lease, ResponseProgress, ResponseStore
from openresponses_server.store.frames import PIECE_BYTES, Frames, FrameSkipper, Piece, pieces
from tests.support.stores import frame, frames, record

LARGE = 5 * PIECE_BYTES + 17
SIXTEENTH = 16


def long_frame(number: int, size: int) -> bytes:
    """One event of so many bytes and more."""
    return b'event: x\ndata: {"sequence_number":%d,"text":"%s"}\n\n' % (number, b"y" * size)


async def read(store: ResponseStore, after: int = -1) -> list[Piece]:
    return [piece async for piece in store.frames("r", "k", after)]


async def long_record(store: ResponseStore) -> list[bytes]:
    """A record whose checkpoints are small, long in one event, and long in many; its frames."""
    lease = Lease("w", 4e9)
    sent = [frame(0), frame(1), long_frame(2, LARGE), frame(3), *(long_frame(n, 2000) for n in range(4, 400))]
    await store.put(record("r", owner="k", lease=lease), Frames(0, 1, b"".join(sent[:2])))
    await store.checkpoint("r", lease, None, Frames(2, 3, b"".join(sent[2:4])))
    await store.checkpoint("r", lease, None, Frames(4, 399, b"".join(sent[4:])))
    return sent


async def test_pieces_are_the_frames_to_the_byte(store: ResponseStore) -> None:
    sent = await long_record(store)
    got = await read(store)
    assert b"".join(piece.data for piece in got) == b"".join(sent)
    assert [piece.last for piece in got if piece.last is not None] == [1, 3, 399]
    assert max(len(piece.data) for piece in got) <= PIECE_BYTES
    assert len(got) >= 8


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 200, 398, 399, 10**6])
async def test_pieces_begin_behind_any_number(store: ResponseStore, after: int) -> None:
    sent = await long_record(store)
    assert b"".join(piece.data for piece in await read(store, after)) == b"".join(sent[after + 1 :])


async def test_a_very_long_checkpoint_is_read_in_a_sixteenth_of_it(store: ResponseStore) -> None:
    whole = long_frame(0, 40 * PIECE_BYTES)
    await store.put(record("r", owner="k"), Frames(0, 0, whole))
    got = await read(store)
    assert b"".join(piece.data for piece in got) == whole
    assert max(len(piece.data) for piece in got) <= max(PIECE_BYTES, len(whole) // SIXTEENTH)
    assert len(got) <= 42, "a database goes through the row with each"


@pytest.mark.parametrize("meanwhile", ["delete", "put"])
async def test_what_is_deleted_or_replaced_meanwhile_ends(store: ResponseStore, meanwhile: str) -> None:
    sent = await long_record(store)
    got = b""
    async for piece in store.frames("r", "k", 1):
        got += piece.data
        if piece.last is None and meanwhile == "delete":
            await store.delete("r", "k")
        elif piece.last is None:
            await store.put(record("r", owner="k"), frames(0, 1))
    assert got
    assert b"".join(sent[2:4]).startswith(got)


async def test_standing_is_how_far_a_record_is(store: ResponseStore) -> None:
    await store.put(record("r", owner="k", lease=Lease("w", 3.25)), frames(0, 4))
    assert await store.standing("r", "k") == ResponseProgress("r", "k", Lease("w", 3.25), 4)
    assert await store.standing("r", "other") is None
    assert await store.standing("nothing", "k") is None
    assert await store.standing("a\0b", "k") is None
    await store.finish("r", "w", record("r").response, frames(5, 6))
    assert await store.standing("r", "k") == ResponseProgress("r", "k", None, 6)
    await store.put(record("gone", owner="k", expires_at=1.0))
    assert await store.standing("gone", "k") is None


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("count", range(4))
def test_frames_are_left_out_wherever_pieces_are_cut(size: int, count: int) -> None:
    sent = [b"a: 1\n\n", b"b\nc\n\n", b"d: 2\n\n", b"e\n\n"]
    data = b"".join(sent)
    skipping = FrameSkipper(count)
    cut = [data[start : start + size] for start in range(0, len(data), size)]
    assert b"".join(map(skipping.rest, cut)) == b"".join(sent[count:])


def test_frames_behind_the_number_have_no_pieces() -> None:
    assert list(pieces(Frames(0, 1, b"a\n\nb\n\n"), 1)) == []
    assert list(pieces(Frames(0, 1, b"a\n\nb\n\n"), 0)) == [Piece(b"b\n\n", 1)]
