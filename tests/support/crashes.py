"""A crash as clients see it: the events that they received, the response that is stored afterwards, and
whether the two agree."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import redis
from msgspec import Struct

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.sse import SSEDecoder
from openresponses_server.store.stores import open_store
from tests.support.serving import call
from tests.support.workers import Reader, SocketReader, type_of

_SURELY = 30  # events, which take longer than several checkpoints
_ENDED = {"completed", "incomplete", "failed"}
_TERMINAL = {f"response.{status}" for status in _ENDED}


class Saved(Struct):
    """What was stored of a response when its worker died."""

    status: str
    last: int
    text: str


def start_streams(base: str, count: int, words: int, **more: Any) -> list[Reader]:
    """Start stored streams of the demo model, each with `words` words at 20 words a second."""
    return [
        Reader(
            base,
            "POST",
            "/v1/responses",
            {"model": "demo-slow", "input": f"{words + number % 5} words", "stream": True, **more},
        )
        for number in range(count)
    ]


def saved(store: str, ids: list[str]) -> dict[str, Saved]:
    """Return the stored responses, read from the store itself."""

    async def look() -> dict[str, Saved]:
        opened = open_store(store)
        try:
            records = {}
            for response_id in ids:
                record = await opened.get(response_id)
                assert record is not None, f"{response_id} is not there"
                text = record.response.output_text
                records[response_id] = Saved(record.response.status, record.last_sequence, text)
            return records
        finally:
            await opened.close()

    return asyncio.run(look())


def resume_all(base: str, readers: Sequence[Reader | SocketReader]) -> dict[str, Reader]:
    """Let each client request the events after the last number that it received."""
    resumed = {}
    for reader in readers:
        if reader.response_id is not None:
            last = max(reader.events)
            path = f"/v1/responses/{reader.response_id}?stream=true&starting_after={last}"
            resumed[reader.response_id] = Reader(base, "GET", path)
    return resumed


def check_client(
    before: Reader | SocketReader, after: Reader, whole: Reader, had: Saved | None, final: dict[str, Any]
) -> None:
    """Assert that no event is missing, repeated or changed, that the terminal event matches the stored
    response, and that everything that was saved is there."""
    seen, rest, all_events = before.events, after.events, whole.events
    last = max(seen)
    assert sorted(seen) == list(range(last + 1)), "the first stream has a gap"
    assert sorted(all_events) == list(range(len(all_events))), "the stored stream has a gap"
    assert whole.done
    assert after.done
    ending = max(all_events)
    assert type_of(all_events[ending]) in _TERMINAL
    for number in range(min(last, ending - 1) + 1):
        assert seen[number] == all_events[number], f"event {number} changed"
    if type_of(seen[last]) not in _TERMINAL:
        if last < ending:
            assert rest == {number: frame for number, frame in all_events.items() if number > last}
        elif last > ending or rest:  # the client may have seen another event with this number
            assert rest == {ending: all_events[ending]}
            assert type_of(all_events[ending]) == "response.failed"
    else:
        assert rest == {}
        assert seen == all_events
    assert final["status"] in _ENDED
    assert json.loads(all_events[ending].split(b"data: ", 1)[1])["response"] == final
    if had is not None:
        assert _text(final).startswith(had.text), "what was saved is not there any more"
        assert ending > had.last or had.status in _ENDED
        assert last < _SURELY or had.last > 1, "nothing was saved after the beginning"
    _check_valid(whole)


def wait_until_settled(base: str, ids: list[str]) -> dict[str, dict[str, Any]]:
    """Wait for the responses to end, and return them."""
    ended: dict[str, dict[str, Any]] = {}
    while len(ended) < len(ids):
        for response_id in ids:
            if response_id not in ended:
                reply = call(base, "GET", f"/v1/responses/{response_id}")
                assert reply.status == 200, reply.body
                if reply.json["status"] in _ENDED:
                    ended[response_id] = reply.json
        time.sleep(0.05)
    return ended


def follow_all(base: str, readers: list[Reader]) -> list[Reader]:
    """Follow each response from this worker with another client."""
    followers = []
    for reader in readers:
        while reader.response_id is None:
            time.sleep(0.01)
        followers.append(Reader(base, "GET", f"/v1/responses/{reader.response_id}?stream=true"))
    return followers


def check_one_end(reader: Reader) -> None:
    """Assert that a whole stream has one terminal event, the last one, and came over one connection."""
    events = reader.events
    assert reader.done, "the stream did not come to its end"
    assert list(events) == list(range(len(events))), "the stream has a gap"
    ends = [number for number, each in events.items() if type_of(each) in _TERMINAL]
    assert ends == [len(events) - 1]


def forget_newest(url: str, response_id: str, count: int, *, rewound: bool) -> None:
    """Make the event log in Redis lose its newest entries: either as missing entries, or as a Redis that was
    restarted from an older state and does not know that they existed."""
    with redis.Redis.from_url(url) as admin:
        (key,) = admin.keys(f"*:log:{response_id}")
        newest = admin.xrevrange(key, count=count)
        older = admin.xrange(key)[: -len(newest)]
        if not rewound:
            admin.xdel(key, *(name for name, _ in newest))
            return
        admin.delete(key)
        for name, fields in older:
            admin.xadd(key, fields, id=name)


def _text(response: dict[str, Any]) -> str:
    parts = [part for item in response["output"] for part in item.get("content", [])]
    return "".join(part.get("text", "") for part in parts)


def _check_valid(whole: Reader) -> None:
    validator = StreamValidator()
    decoder = SSEDecoder()
    for frame in whole.frames:
        for each in decoder.feed(frame):
            validator.feed_frame(each)
    validator.close()
    assert [str(each) for each in validator.violations] == []


def check_all(base: str, sent: Sequence[Reader | SocketReader], had: dict[str, Saved]) -> None:
    resumed = resume_all(base, sent)
    for reader in resumed.values():
        reader.join()
    finals = wait_until_settled(base, list(resumed))
    for before in sent:
        response_id = str(before.response_id)
        whole = Reader(base, "GET", f"/v1/responses/{response_id}?stream=true")
        whole.join()
        check_client(before, resumed[response_id], whole, had.get(response_id), finals[response_id])


def left_by(base: str, response_id: str, database: Path, number: int) -> Path:
    """Return what would be stored if the worker were killed now; then let the worker go on."""
    folder = database.parent / f"left-{number}"
    folder.mkdir()
    copy = folder / database.name
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    assert call(base, "POST", f"/v1/responses/{response_id}/cancel").status == 200
    return copy
