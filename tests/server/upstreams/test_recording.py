"""A recording answers as the upstream did that it was made of, and changes nothing while it is made."""

from __future__ import annotations

import asyncio
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.http.flow import BodyReader
from openresponses_server.observation.recordings import masking
from openresponses_server.observation.recordings.reader import read_recording
from openresponses_server.observation.recordings.records import Chunk, Record, RecordedEnd, RecordedRequest
from openresponses_server.observation.recordings.writer import RecordingFile, RecordingTarget
from openresponses_server.settings import Playback, Settings, SettingsError, Timeouts, UpstreamSettings
from openresponses_server.upstreams.base import Upstream, UpstreamRequest
from openresponses_server.upstreams.recording.recorded import recorder_of
from openresponses_server.upstreams.routing.models import Router, build_router
from tests.support.serving import PATIENT
from tests.support.upstream import CUT, HANG, RESET, Script, ScriptedUpstream, refusal, text
from tests.support.waiting import until

KEY = "sk-A1b2C3d4E5f6G7h8I9j0"
QUICK = replace(PATIENT, first_byte=0.2, idle=0.2)
STREAM = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
WHOLE = json.dumps({"object": "chat.completion", "choices": [{"message": {"content": "Hi"}}]}).encode()
SCRIPTS: dict[str, Script] = {
    "text": Script(text("Hello", " there")),
    "pieces": Script([b"data: {", 0.15, b"}\n\ndata: \xc3", 0.15, b"\xa9\n\n"]),
    "busy": refusal(429, {"retry-after": "7"}, message="later", type="rate_limit_error", code="slow_down"),
    "broken": refusal(500, message=f"the key {KEY} is wrong"),
    "page": Script([b"<html>"], 200, {"content-type": "text/html"}),
    "moved": Script([], 307, {"location": "http://elsewhere.invalid"}),
    "whole": Script([WHOLE], 200, JSON),
    "in band": Script([b'{"error":{"message":"no","code":"x"}}'], 200, JSON),
    "empty": Script([]),
    "cut": Script([b"data: {}\n\n", 0.03, CUT]),
    "reset": Script([b"data: {}\n\n", 0.03, RESET]),
    "silent": Script([b"data: {}\n\n", HANG]),
    "late": Script([b"data: {}\n\n"], before=HANG),
    "lossy": Script(text("Hi"), headers=STREAM | {"openresponses-losses": "top_k"}),
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream({name: [script] for name, script in SCRIPTS.items()}) as running:
        yield running


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("A_KEY", KEY)
    return "A_KEY"


def router(url: str, record: Path | None = None, timeouts: Timeouts = PATIENT, **more: Any) -> Router:
    settings = UpstreamSettings(url=url, timeouts=timeouts, **more)
    return build_router(Settings(upstreams=[settings], record=record and str(record)), Sealer(b"k" * 32))


def body(model: str, said: str = "Hi") -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": said}]}).encode()


async def ask(one: Upstream, model: str, said: str = "Hi") -> list[Any]:
    """Everything that comes of a request: the reads and how they end; of a whole answer one read."""
    outcome: list[Any] = []
    request = UpstreamRequest("/chat/completions", body(model, said), "req_1")
    try:
        async with one.open(request) as reply:
            reader = BodyReader(reply)
            outcome.append(reply.losses)
            if reply.whole:
                outcome.append(await reader.collect(1 << 30))
            while data := await reader.read():
                outcome.append(data)
    except UpstreamError as error:
        outcome += [error.http_status, error.code, error.message.partition(" (")[0], error.headers]
    return outcome


def the_only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def records(path: Path) -> list[Record]:
    recording = read_recording(path)
    return [record for each in recording.exchanges for record in recording.records(each)]


@pytest.mark.parametrize("model", SCRIPTS)
async def test_it_answers_as_the_upstream_did(
    upstream: ScriptedUpstream, tmp_path: Path, key: str, model: str
) -> None:
    timeouts = QUICK if model in ("silent", "late") else PATIENT
    live = router(upstream.url, tmp_path, timeouts, api_key_env=key)
    came = await ask(live.resolve(model).upstream, model)
    await live.close()
    path = the_only(tmp_path)
    assert KEY not in path.read_text()
    for speed in (4.0, "max"):
        playback = Playback(speed=speed)
        played = router(f"recording:{path}", timeouts=timeouts, playback=playback)
        assert await ask(played.resolve(model).upstream, model) == came
        await played.close()


async def test_an_unreachable_upstream(tmp_path: Path) -> None:
    live = router("http://127.0.0.1:1", tmp_path)
    came = await ask(live.resolve("m").upstream, "m")
    await live.close()
    played = router(f"recording:{the_only(tmp_path)}")
    assert await ask(played.resolve("m").upstream, "m") == came
    assert came[:2] == [502, UpstreamError.UNREACHABLE]


async def test_what_is_recorded(upstream: ScriptedUpstream, tmp_path: Path, key: str) -> None:
    headers = {"x-tenant-secret": "s3cr3t-value", "x-title": "mine"}
    address = upstream.url.replace("http://", "http://user:pa55word@")
    live = router(address, tmp_path, headers=headers, name="a/../b")
    one = live.resolve("pieces").upstream
    assert await ask(one, "pieces", "see s3cr3t-value and pa55word") != []
    await live.close()
    path = the_only(tmp_path)
    assert path.name.startswith("a_.._b-")
    shown = path.read_text()
    assert "s3cr3t-value" not in shown
    assert "pa55word" not in shown
    request, *_, ended = records(path)
    assert isinstance(request, RecordedRequest)
    assert (request.dialect, request.path, request.model) == ("chat", "/chat/completions", "pieces")
    assert (request.address, request.headers["x-title"]) == (upstream.url, "mine")
    assert isinstance(ended, RecordedEnd)
    assert ended.how == "finished"
    chunks = [each for each in records(path) if isinstance(each, Chunk)]
    assert [each.data for each in chunks] == [b"data: {", b"}\n\ndata: \xc3", b"\xa9\n\n"]
    times = [request.at, *(each.at for each in chunks)]
    assert times == sorted(times)
    assert times[-1] - times[0] > 0.05  # two pauses, each of which may seem shorter on a busy machine


async def test_who_leaves_early_is_recorded(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    live = router(upstream.url, tmp_path)
    one = live.resolve("silent").upstream
    async with one.open(UpstreamRequest("/chat/completions", body("silent"), "r")) as reply:
        reader = BodyReader(reply)
        await reader.read()
    late = asyncio.create_task(ask(one, "late"))
    await until(lambda: upstream.received[-1].model == "late")
    late.cancel()
    await asyncio.wait([late])
    await live.close()
    ends = [each.how for each in records(the_only(tmp_path)) if isinstance(each, RecordedEnd)]
    assert ends == ["left", "left"]


async def test_a_recording_that_fails_changes_no_answer(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    unwritable = router(upstream.url, tmp_path)
    came = await ask(unwritable.resolve("text").upstream, "text")
    await unwritable.close()
    monkeypatch.undo()
    assert b"".join(came[1:]) == b"".join(step for step in text("Hello", " there") if isinstance(step, bytes))


async def test_a_played_pause_is_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "r", [("m", "Hi", [(0.0, "a"), (4000.0, "b")])])

    async def longest(speed: Any) -> float:
        """The longest pause that was to be made."""
        pauses: list[float] = []
        wait = asyncio.sleep

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            await wait(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        played = router(f"recording:{path}", playback=Playback(speed=speed)).resolve("m").upstream
        assert await ask(played, "m") == ["", b"a", b"b"]
        monkeypatch.undo()
        return max(pauses, default=0.0)

    assert await longest(4.0) == pytest.approx(1000.0, rel=0.1)  # less what has passed meanwhile
    assert await longest("max") < 100


async def test_a_played_silence_is_too_long_for_those_who_wait_less(tmp_path: Path) -> None:
    path = made(tmp_path / "r", [("m", "Hi", [(0.0, "a"), (9.0, "b")])])
    hasty = router(f"recording:{path}", timeouts=replace(PATIENT, idle=0.2))
    came = await ask(hasty.resolve("m").upstream, "m")
    assert came[:4] == ["", b"a", 504, UpstreamError.TIMEOUT]


def made(path: Path, exchanges: list[tuple[str, str, list[tuple[float, str]]]], **more: Any) -> Path:
    lines: list[dict[str, Any]] = [{"type": "recording", "version": 1}]
    for number, (model, words, chunks) in enumerate(exchanges, 1):
        request = {"dialect": "chat", "model": model, "body": json.loads(body(model, words))} | more
        about = {"exchange": number, "at": 0.0}
        lines.append({"type": "exchange", **about, **request})
        lines.append(
            {"type": "answer", **about, "status": 200, "headers": {"content-type": "text/event-stream"}}
        )
        lines += [{"type": "chunk", "exchange": number, "at": at, "text": piece} for at, piece in chunks]
        lines.append({"type": "end", **about, "at": chunks[-1][0] if chunks else 0.0, "how": "left"})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def several(path: Path) -> Path:
    pieces = [("m", "one", "1"), ("m", "two", "2"), ("n", "one", "3"), ("m", "one", "4")]
    return made(path, [(model, words, [(0.0, piece)]) for model, words, piece in pieces])


async def test_a_request_is_answered_as_the_same_one_was(tmp_path: Path) -> None:
    played = router(f"recording:{several(tmp_path / 'r')}", playback=Playback(speed="max"))
    one = played.resolve("m").upstream
    requests = [("m", " one"), ("n", "one"), ("m", "two"), ("m", "one\n")]
    assert [(await ask(one, *each))[1] for each in requests] == [b"1", b"3", b"2", b"4"]
    for model, words, what in (
        ("m", "one", "is at its end: all 2 such exchanges were played"),
        ("m", "three", "has no exchange with the model 'm' and this last input"),
        ("../../secret", "one", "has no exchange with the model '../../secret': it has 'm', 'n'"),
    ):
        status, code, message, _ = await ask(one, model, words)
        assert (status, code) == (404, "not_recorded")
        assert message.startswith(f"the recording of 'upstream' {what}")
        assert str(tmp_path) not in message
    assert [each.id for each in await one.models()] == ["m", "n"]


async def test_in_order_and_again_from_the_beginning(tmp_path: Path) -> None:
    path = several(tmp_path / "r")
    ordered = router(f"recording:{path}", playback=Playback(speed="max", match="order")).resolve("x").upstream
    assert [(await ask(ordered, "x", str(n)))[1] for n in range(4)] == [b"1", b"2", b"3", b"4"]
    assert (await ask(ordered, "x"))[:2] == [404, "not_recorded"]
    endless = router(f"recording:{path}", playback=Playback(speed="max", loop=True)).resolve("m").upstream
    assert [(await ask(endless, "m", "one"))[1] for _ in range(5)] == [b"1", b"4", b"1", b"4", b"1"]


async def test_requests_at_once_get_an_exchange_each(tmp_path: Path) -> None:
    path = made(tmp_path / "r", [("m", "Hi", [(0.0, f"{n}a"), (0.01, f"{n}b")]) for n in range(30)])
    one = router(f"recording:{path}").resolve("m").upstream
    came = await asyncio.gather(*(ask(one, "m") for _ in range(30)))
    whole = {(each[0], b"".join(each[1:])) for each in came}  # on a busy machine two chunks come as one
    assert whole == {("", b"%da%db" % (n, n)) for n in range(30)}


async def test_a_file_that_changed_is_an_error_of_the_upstream(tmp_path: Path) -> None:
    path = several(tmp_path / "r")
    one = router(f"recording:{path}").resolve("m").upstream
    path.write_text("{}")
    status, code, message, _ = await ask(one, "m", "one")
    assert (status, code) == (502, "recording_changed")
    assert str(tmp_path) not in message


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"dialect": "anthropic"}, "has no exchanges in anthropic"),
        ({"dialect": "tongues"}, "has no exchanges in tongues"),
    ],
)
def test_a_recording_that_cannot_be_used(tmp_path: Path, more: Any, said: str) -> None:
    path = several(tmp_path / "r")
    with pytest.raises(SettingsError, match=said):
        router(f"recording:{path}", **more)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = several(tmp_path / "r")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(SettingsError, match=r"line 17: .*the file ends within this line"):
        router(f"recording:{path}")
    with pytest.raises(SettingsError, match="No such file"):
        router(f"recording:{tmp_path}/none")
    client = made(tmp_path / "c", [("m", "Hi", [])], leg="client")
    with pytest.raises(SettingsError, match="no exchanges with an upstream"):
        router(f"recording:{client}")
    two = made(tmp_path / "two", [("m", "Hi", [])])
    line = (
        two.read_text()
        .splitlines()[1]
        .replace('"chat"', '"responses"')
        .replace('"exchange": 1', '"exchange": 2')
    )
    two.write_text(two.read_text() + line + "\n")
    with pytest.raises(SettingsError, match="has exchanges in chat, responses: choose one with `dialect`"):
        router(f"recording:{two}")
    assert router(f"recording:{two}", dialect="responses").resolve("m").dialect.dialect.name == "responses"
    foreign = made(tmp_path / "f", [("m", "Hi", [])], dialect="tongues")
    with pytest.raises(SettingsError, match="'tongues' is not one of"):
        router(f"recording:{foreign}")


async def test_who_stops_at_the_end_that_a_stream_says_has_read_it(tmp_path: Path) -> None:
    """As a run does, which has all of it with `[DONE]`; who leaves before is recorded as that."""
    live = build_router(Settings(record=str(tmp_path)), Sealer(b"k" * 32))
    for model, end in (("demo", b"[DONE]"), ("demo-slow", b"data:")):
        request = UpstreamRequest("/chat/completions", body(model, "400 words"), "r")
        async with live.resolve(model).upstream.open(request) as reply:
            reader = BodyReader(reply)
            while end not in await reader.read():
                pass
    await live.close()
    assert [each.how for each in records(the_only(tmp_path)) if isinstance(each, RecordedEnd)] == [
        "finished",
        "left",
    ]


async def test_the_demo_model_is_recorded_too(tmp_path: Path) -> None:
    live = build_router(Settings(record=str(tmp_path)), Sealer(b"k" * 32))
    one = live.resolve("demo").upstream
    came = [await ask(one, "demo"), await ask(one, "demo-overloaded")]
    await live.close()
    played = (
        router(f"recording:{the_only(tmp_path)}", playback=Playback(speed="max")).resolve("demo").upstream
    )
    assert [await ask(played, "demo"), await ask(played, "demo-overloaded")] == came
    assert len(came[0]) > 1
    assert came[1][0] == 429


def test_a_request_full_of_secrets_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The automaton that finds them in the traffic needs kilobytes for each of their characters: a quarter of
    the most characters takes less than a quarter of the memory."""
    monkeypatch.setattr(masking, "MOST_CHARACTERS", masking.MOST_CHARACTERS // 4)
    tools = [{"type": "mcp", "authorization": f"{at:04}-{'é+/' * 333}"} for at in range(200)]
    body = json.dumps({"model": "m", "tools": tools}).encode()
    request = RecordedRequest(0, 0, dialect="chat")
    target = RecordingTarget(RecordingFile(tmp_path / "r.jsonl"))
    tracemalloc.start()
    try:
        recorder = asyncio.run(recorder_of(target, [KEY], request, body))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 200 * 1024 * 1024 // 4
    recorder.answer(200, {})
    recorder.chunk(f"{KEY} {tools[0]['authorization']}".encode())
    recorder.end("finished")
    shown = (tmp_path / "r.jsonl").read_text()
    assert "[key] [key]" in shown
    assert "0199-" not in shown
