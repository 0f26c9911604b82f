"""An export imported into another database is the same responses; a bad line is named and harms nothing."""

import asyncio
import io
import json
import tracemalloc
from typing import Any, BinaryIO

import pytest
from msgspec.structs import replace

from openresponses_bridge.protocol.codec import decode_event
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.store.base import NOBODY, Lease, ResponseStore, StoreError
from openresponses_server.store.frames import PIECE_BYTES, Frames
from openresponses_server.store.idempotency import IdempotencyKey
from openresponses_server.store.sql import transfer
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.transfer import Imported, import_lines, numbered_lines
from openresponses_server.store.stores import open_store
from tests.support.stores import Place, failing_table, frames, messages, record, streamed

LATE = 4e9


async def exported(store: ResponseStore) -> list[bytes]:
    return [line async for line in store.export()]


async def imported(url: str, lines: list[bytes]) -> tuple[tuple[int, int, int], list[str]]:
    """New, present and refused, and what was said of the lines."""
    complaints: list[str] = []

    def work() -> Imported:
        source = io.BytesIO(b"".join(lines))
        return import_lines(
            database_url(url), source, lambda number, why: complaints.append(f"{number}: {why}")
        )

    done = await asyncio.to_thread(work)
    return (done.new, done.present, done.refused), complaints


def changed(line: bytes, **fields: Any) -> bytes:
    return json.dumps(json.loads(line) | fields).encode() + b"\n"


@pytest.fixture
async def lines() -> list[bytes]:
    """Of a chain with a deleted turn, a branch, another owner, and long frames, out of another store."""
    store = open_store("memory:")
    odd = [MessageParam("user", "\0 é 🎉 \u2028", id="in"), *messages("more")]
    key = IdempotencyKey("a" * 64, "b" * 64, LATE)
    await store.put(record("a", owner="k", input=odd, request=b'{"model":"m"}'), frames(0, 3), key=key)
    await store.put(record("b", "a", owner="k", expires_at=LATE), frames(0, 1))
    await store.put(record("c", "b", owner="k"))
    await store.put(record("branch", "b", owner="k"), frames(0, 5))
    await store.put(record("theirs", owner="l"))
    await store.delete("b", "k")
    long = record("long", "c", owner="k", lease=Lease("w", LATE))
    await store.put(long, frames(0, 1, "x" * 700_000))
    await store.finish("long", "w", long.response, frames(2, 3, "y" * 700_000))
    return await exported(store)


async def test_an_import_is_the_same_responses(shared_place: Place, lines: list[bytes]) -> None:
    assert await imported(shared_place.url, lines) == ((6, 0, 0), [])
    store = shared_place.open()
    assert sorted(await exported(store)) == sorted(lines)
    for name, turns in (("long", "abc"), ("branch", "ab")):
        assert [turn.response.id for turn in await store.chain(name, "k")] == [*turns, name]
    assert (await store.items(["in"], "k")).keys() == {"in"}
    got = await store.get("c", "k")
    assert got is not None
    output = got.response.output[0].id
    assert output in await store.items([output], "k")
    whole = b"".join([piece.data async for piece in store.frames("long", "k")])
    assert whole == frames(0, 1, "x" * 700_000).data + frames(2, 3, "y" * 700_000).data
    standing = await store.standing("long", "k")
    assert standing is not None
    assert standing.last_sequence == 3
    assert await store.get("b", "k") is None
    assert await store.get("a", "l") is None
    assert await imported(shared_place.url, lines) == ((0, 6, 0), [])
    assert sorted(await exported(store)) == sorted(lines)


async def test_what_is_there_stays_as_it_is(shared_place: Place, lines: list[bytes]) -> None:
    store = shared_place.open()
    await store.put(record("a", owner="l", text="Mine"))
    await store.put(record("c", "b", owner="k", text="Newer"))
    before = sorted(await exported(store))
    counts, complaints = await imported(shared_place.url, lines)
    assert counts == (4, 1, 1)
    (complaint,) = complaints
    assert "belongs to another owner" in complaint
    assert set(before) <= set(await exported(store))
    existing = await store.get("a", "l")
    assert existing is not None
    assert existing.response.output_text == "Mine"


async def test_what_was_deleted_since_and_is_context_is_not_shown_again(
    shared_place: Place, lines: list[bytes]
) -> None:
    await imported(shared_place.url, lines)
    store = shared_place.open()
    await store.delete("a", "k")
    assert await imported(shared_place.url, lines) == ((0, 6, 0), [])
    assert await store.get("a", "k") is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": "other"}, "id is not the one of its response"),
        ({"id": ""}, "id can't be"),
        ({"id": "x" * 600}, "id can't be"),
        ({"previous_response_id": "z"}, "previous_response_id is not the one"),
        ({"previous_response_id": ""}, "previous_response_id can't be"),
        ({"owner": "~k"}, "owner can't be"),
        ({"owner": "a\0"}, "owner can't be"),
        ({"status": "queued"}, "status is not that of a response that has ended"),
        ({"status": "failed"}, "status is not the one"),
        ({"created_at": -1.0}, "created_at is not a time"),
        ({"expires_at": 1e300}, "expires_at is not a time"),
        ({"last_sequence": 9}, "has 4 frames, and its last event has the number 9"),
        ({"last_sequence": 2**70}, "last_sequence is not"),
        ({"last_sequence": -5, "frames": ""}, "last_sequence is not"),
        ({"frames": ""}, "frames after event -1 are missing"),
        ({"frames": "data: x"}, "frames after event -1 are missing"),
        ({"frames": "a\n\nb"}, "frames are not whole events"),
        ({"hidden": True, "lease": {"worker": "", "until": 4e9}}, "in progress and deleted"),
        ({"input": [1]}, "can't be read"),
        ({"response": {}}, "id is not the one of its response"),
        ({"response": None}, "can't be read"),
        ({"owner": None}, "can't be read"),
        ({"more": 1}, "can't be read"),
    ],
)
async def test_bad_line_is_named_and_the_others_are_imported(
    tmp_path: Any, lines: list[bytes], change: dict[str, Any], why: str
) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite3"
    at = next(number for number, line in enumerate(lines) if json.loads(line)["id"] == "a")
    bad = [changed(line, **change) if number == at else line for number, line in enumerate(lines)]
    counts, complaints = await imported(url, bad)
    assert counts == (5, 0, 1)
    assert complaints[0].startswith(f"{at + 1}: ")
    assert why in complaints[0]
    assert await imported(url, lines) == ((1, 5, 0), [])


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"{}\n",
        b"null\n",
        b'{"frames_of":"a"}\n',
        b'{"id":"\\ud800"}\n',
    ],
    ids=["bytes", "deep", "empty", "null", "frames", "surrogate"],
)
async def test_line_that_is_no_record_is_named(tmp_path: Any, lines: list[bytes], line: bytes) -> None:
    counts, complaints = await imported(f"sqlite:///{tmp_path}/s.sqlite3", [line, b"\n", *lines])
    assert counts == (6, 0, 1)
    assert complaints[0].startswith("1: can't be read")
    assert len(complaints[0]) < 400


async def test_deep_json_within_a_record_is_a_bad_line(tmp_path: Any, lines: list[bytes]) -> None:
    deep = lines[0].replace(b'"request":', b'"request":' + b"[" * 5000 + b"]" * 5000 + b',"x":', 1)
    (_, _, refused), complaints = await imported(f"sqlite:///{tmp_path}/s.sqlite3", [deep, *lines[1:]])
    assert (refused, complaints[0][:13]) == (1, "1: can't be r")


@pytest.mark.parametrize("kept", [1, 2])
async def test_record_whose_frames_are_cut_is_not_imported(
    shared_place: Place, lines: list[bytes], kept: int
) -> None:
    at = next(n for n, line in enumerate(lines) if b'"id":"long"' in line[:40])
    own = [line for n, line in enumerate(lines) if not at <= n <= at + 2]
    cut = lines[at : at + kept]
    counts, complaints = await imported(shared_place.url, [*cut, *own])
    assert counts == (5, 0, 1)
    assert complaints == [f"1: the frames after event {[-1, 1][kept - 1]} are missing"]
    assert await imported(shared_place.url, lines) == ((1, 5, 0), [])


async def test_frames_have_to_follow_their_response(tmp_path: Any, lines: list[bytes]) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite3"
    at = next(n for n, line in enumerate(lines) if b'"id":"long"' in line[:40])
    head, first, second = lines[at : at + 3]
    for shuffled, refused in (([first, second], 2), ([head, second, first], 1), ([head, first, first], 1)):
        counts, complaints = await imported(url, shuffled)
        assert counts == (0, 0, refused)
        assert "do not follow" in complaints[0]
    assert await imported(url, [head, first, second]) == ((1, 0, 0), [])


@pytest.mark.parametrize("worker", ["w", NOBODY])
@pytest.mark.parametrize("until", [1.0, LATE])
async def test_what_was_in_progress_is_interrupted_and_never_made(
    shared_place: Place, worker: str, until: float
) -> None:
    source = open_store("memory:")
    response, sent = streamed("Hello")
    status = "queued" if worker == NOBODY else "in_progress"
    running = replace(response, id="r", status=status, completed_at=None)
    body = b'{"model":"m","input":"x","background":true}'
    begun = Frames(0, 1, b"".join(each + b"\n\n" for each in sent.data.split(b"\n\n")[:2]))
    await source.put(
        replace(record("r", request=body, lease=Lease(worker, until)), response=running),
        begun if worker else None,
    )
    assert await imported(shared_place.url, await exported(source)) == ((1, 0, 0), [])
    store = shared_place.open()
    got = await store.get("r")
    assert got is not None
    assert got.lease is None
    assert got.response.error is not None
    assert (got.response.status, got.response.error.code) == ("failed", "response_interrupted")
    assert await store.claim_orphans(Lease("v", LATE), LATE + 1) == []
    assert await store.claim_waiting(Lease("v", LATE), LATE + 1) == []
    assert await store.acquire("r", Lease("v", LATE), LATE + 1) is None
    data = b"".join([piece.data async for piece in store.frames("r")])
    events = [decode_event(frame.data) for frame in SSEDecoder().feed(data)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert type(events[-1]).__name__ == "ResponseFailed"
    assert got.last_sequence == len(events) - 1
    assert await imported(shared_place.url, await exported(source)) == ((0, 1, 0), [])


async def test_record_that_the_database_refuses_is_named_and_the_others_are_imported(
    shared_place: Place, lines: list[bytes]
) -> None:
    source = open_store("memory:")
    await source.put(record("refused"), frames(0, 1, "x" * PIECE_BYTES))
    refused = await exported(source)
    others = [line for line in lines if b"long" not in line[:40]]
    with failing_table(shared_place, "response_pieces"):
        counts, complaints = await imported(shared_place.url, [*others[:2], *refused, *others[2:]])
    assert counts == (5, 0, 1)
    assert complaints[0].startswith("3: the database refuses it: ")
    assert await imported(shared_place.url, [*others, *refused]) == ((1, 5, 0), [])


async def test_database_of_another_revision_is_refused(
    shared_place: Place, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "REVISION", "9999")
    with pytest.raises(StoreError, match="db upgrade"):
        await imported(shared_place.url, lines)


async def test_servers_write_while_lines_are_imported(shared_place: Place) -> None:
    source = open_store("memory:")
    for number in range(100):
        await source.put(record(f"r{number}", input=[]))
    lines = await exported(source)
    store = shared_place.open()
    importing_ = asyncio.create_task(imported(shared_place.url, lines))
    written = 0
    while not importing_.done():
        await store.put(record(f"own{written}"))
        written += 1
    assert (await importing_)[0] == (100, 0, 0)
    assert written
    assert len(await exported(store)) == 100 + written


class Endless(io.RawIOBase):
    """A line without an end, and one behind it."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            return 0
        count = min(len(buffer), self._left)
        self._left -= count
        buffer[:count] = b"x" * count
        if not self._left:
            buffer[count - 1 : count] = b"\n"
        return count


def test_line_that_is_too_long_is_read_past_in_little_memory() -> None:
    source: BinaryIO = io.BufferedReader(Endless(64_000_000))  # type: ignore[assignment]
    tracemalloc.start()
    assert list(numbered_lines(source, 100_000)) == [(1, None)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6_000_000
    assert list(numbered_lines(io.BytesIO(b"aaaaa\nbb\n"), 3)) == [(1, None), (2, b"bb\n")]


async def test_line_that_is_too_long_is_named(
    tmp_path: Any, lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "LONGEST_LINE", 100_000)
    counts, complaints = await imported(f"sqlite:///{tmp_path}/s.sqlite3", lines)
    assert counts[0] == 5
    assert any("is longer than 100000 bytes" in each for each in complaints)


async def test_lines_of_an_older_export_are_imported(tmp_path: Any, lines: list[bytes]) -> None:
    url = f"sqlite:///{tmp_path}/s.sqlite3"
    older = []
    for line in lines:
        fields = json.loads(line)
        if "frames_of" not in fields and not fields["hidden"] and fields["id"] != "long":
            older.append(
                json.dumps({k: v for k, v in fields.items() if k not in ("hidden", "last_sequence")})
            )
    assert (await imported(url, [each.encode() + b"\n" for each in older]))[0] == (4, 0, 0)
    store = open_store(url)
    got = await store.get("a", "k")
    assert got is not None
    assert got.last_sequence == 3
    await store.close()


async def test_memory_is_bounded_by_a_record_and_not_by_the_file(tmp_path: Any) -> None:
    async def peak(count: int) -> int:
        url = f"sqlite:///{tmp_path}/{count}.sqlite3"
        source = open_store(f"sqlite:///{tmp_path}/from{count}.sqlite3")
        base = record("r", input=[])
        for number in range(count):
            one = replace(base, response=replace(base.response, id=f"r{number}"))
            await source.put(one, frames(0, 3, "x" * 25_000))
        path = tmp_path / f"{count}.jsonl"
        tracemalloc.start()
        with path.open("wb") as target:
            async for line in source.export():
                target.write(line)
        with path.open("rb") as opened:
            await asyncio.to_thread(import_lines, database_url(url), opened, lambda _number, _why: None)
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await source.close()
        return highest

    few = await peak(10)
    assert await peak(80) < few * 1.5 + 1_000_000
