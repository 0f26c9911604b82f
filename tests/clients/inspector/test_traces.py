"""Traces in the inspector's page: the messages on the wire, beside the events that resulted from them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.observation.recordings.reader import read_recording
from openresponses_server.observation.recordings.records import Chunk
from openresponses_server.settings import Retries, Settings, Tracing, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.inspector_page import cut_off, dropped, frames, open_stored, picture, send
from tests.support.serving import call, serving
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, refusal

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

WORDS = ["Lima ", "has ", "nineteen ", "degrees, ", "Oslo ", "two."]
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script>\u202etxt.exe"


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        steps = [step for word in WORDS for step in (chunk(content=word), 0.4)]  # read one by one
        scripted.scripts["words"] = Script([0.1, *steps, chunk("stop"), DONE])
        scripted.scripts["busy"] = refusal(503)
        scripted.scripts["spare"] = Script([chunk(content="From the spare."), DONE])
        scripted.scripts["hostile"] = Script([chunk(content=HOSTILE), 0.05, chunk("stop"), DONE])
        yield scripted


@pytest.fixture(scope="module")
def base(upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    first = UpstreamSettings(
        url=upstream.url,
        name="first",
        dialect="chat",
        retries=Retries(times=1, first_wait=0.01),
        failover=["second/spare"],
    )
    second = UpstreamSettings(url=upstream.url, name="second", dialect="chat", models=["spare"])
    trace = Tracing(folder=str(tmp_path_factory.mktemp("traces")))
    settings = Settings(store="memory:", upstreams=[first, second], trace=trace, max_body_bytes=100_000_000)
    with serving(settings) as address:
        yield address


def made(base: str, model: str, text: str = "Hi", **more: Any) -> str:
    """The id of a new stored response."""
    reply = call(base, "POST", "/v1/responses", {"model": model, "input": text, "stream": True, **more})
    response_id: str = reply.events[0]["response"]["id"]
    return response_id


def open_trace(page: Any) -> None:
    page.get_by_role("tab", name="Trace").click()
    page.get_by_label("What passed").wait_for()


def at_event(page: Any, word: str) -> None:
    page.get_by_label("Events", exact=True).press("Home")
    page.locator(".list .event", has_text=word).first.click()


def test_the_four_records_beside_the_events(page: Any, base: str) -> None:
    open_stored(page, made(base, "words"))
    open_trace(page)
    for name, words in {
        "what the client sent": "POST /v1/responses",
        "what was sent upstream": "/chat/completions",
        "what the upstream sent": "chunk 1 ·",
        "what was sent back": "status 200",
    }.items():
        page.locator(".traced select").select_option(name)
        page.locator(".traced .events", has_text=words).wait_for()
    page.locator(".traced select").select_option("everything")
    for number, word in enumerate(WORDS, 1):
        at_event(page, word.strip())
        page.get_by_text(f"came from chunk {number} of first: all that was read").wait_for()
        marked = page.locator(".passage.origin")
        assert word.strip() in marked.inner_text()
        assert word.strip() in page.locator(".passage.sent").inner_text()
        assert word.strip() in page.locator(".passage-shown pre").inner_text()
    page.locator(".passage.answered", has_text="Lima").first.click()
    assert "⟦data: {" in page.locator(".passage-shown pre").inner_text().replace("\n", "")
    page.get_by_role("button", name="To its event").click()
    page.get_by_text("came from chunk 1 of first").wait_for()
    at_event(page, "degrees")
    page.get_by_text("came from chunk 4 of first").wait_for()
    picture(page, "inspector-trace")


def test_a_stored_response_gets_its_times_from_its_trace(page: Any, base: str) -> None:
    open_stored(page, made(base, "words"))
    assert page.locator("dt:text-is('First token')").count() == 0
    open_trace(page)
    first = page.locator("dt:text-is('First token') + dd").inner_text()
    assert first.endswith("s"), first
    gaps = page.locator(".list .event.text .time").all_inner_texts()
    assert sum(text.startswith("+") for text in gaps) >= len(WORDS) - 1


def test_what_came_at_once_is_told_apart_by_its_text(
    page: Any, base: str, upstream: ScriptedUpstream
) -> None:
    many = [chunk(content=f"word{number} ") for number in range(30)]
    upstream.scripts["at once"] = Script([b"".join(many[:15]), b"".join(many[15:]), chunk("stop"), DONE])
    open_stored(page, made(base, "at once"))
    open_trace(page)
    at_event(page, "word3")
    page.locator(".belongs", has_text="Event 7").wait_for()
    caption = page.locator(".belongs").inner_text()
    assert re.search(r"came from chunk|is nearest in time to chunk", caption), caption
    shown = page.locator(".passage-shown pre").inner_text()
    assert ("word3" in shown) or "nearest" in caption


def test_retries_failover_and_repairs_are_pinned_to_events(page: Any, base: str) -> None:
    open_stored(page, made(base, "busy"))
    open_trace(page)
    page.locator(".passage .pin.failover").wait_for()
    traced = page.locator(".traced .events")
    traced.filter(has_text=re.compile("status 503.*status 503")).wait_for()
    traced.filter(has_text="second → server").wait_for()
    assert traced.inner_text().count("status 503") == 2
    for kind in ("retry", "failover", "repair"):
        page.locator(f".list .event .pin.{kind}, .figures .pin.{kind}").first.wait_for()
    page.get_by_label("only with findings").check()
    page.locator(".list .event").first.click()
    page.get_by_role("tab", name="Event", exact=True).click()
    assert "is asked again" in page.locator(".findings").inner_text()
    assert "is asked instead of first" in page.locator(".findings").inner_text()
    page.get_by_role("tab", name="Trace").click()
    page.locator(".traced").wait_for()
    page.get_by_role("button", name="Reload").click()
    page.get_by_label("What passed").wait_for()
    assert page.locator(".figures .pin.retry").inner_text().startswith("1 ")  # not pinned twice


def test_an_answer_that_was_not_streamed_is_found_by_its_text(page: Any, base: str) -> None:
    reply = call(base, "POST", "/v1/responses", {"model": "words", "input": "Hi"})
    open_stored(page, reply.json["id"])
    open_trace(page)
    at_event(page, "degrees")
    page.get_by_text("may be of chunk 4 of first").wait_for()


def test_a_request_of_the_page_is_traced_too(page: Any) -> None:
    send(page, "words")
    page.locator(".figures .status.completed").wait_for()
    open_trace(page)
    at_event(page, "Oslo")
    page.get_by_text("came from chunk 5 of first").wait_for()
    assert "Oslo" in page.locator(".passage.sent").inner_text()


def test_a_trace_is_for_its_owner_and_for_whom_asked(browser: Any, tmp_path: Path) -> None:
    keys = [hashed("key-one"), hashed("key-two")]
    trace = Tracing(folder=str(tmp_path), when="asked")
    with serving(Settings(store="memory:", api_keys=keys, trace=trace)) as keyed:
        asking = {"authorization": "Bearer key-one", "openresponses-trace": "1"}
        body = {"model": "demo", "input": "Hi"}
        traced = call(keyed, "POST", "/v1/responses", body, asking).json["id"]
        page = browser.new_page()
        for key, response_id, is_there in (("key-one", traced, True), ("key-two", traced, False)):
            page.goto("about:blank")
            page.goto(f"{keyed}/inspector/index.html#response={response_id}")
            page.get_by_role("textbox", name="Key").fill(key)
            page.get_by_role("button", name="Use it").click()
            open_stored_again(page, response_id)
            if is_there:
                page.get_by_role("tab", name="Trace").click()
                page.get_by_label("What passed").wait_for()
            else:
                page.locator(".figures", has_text="response_not_found").wait_for()
            status = page.evaluate(
                "([path, authorization]) => fetch(path, {headers: {authorization}}).then(r => r.status)",
                [f"/v1/responses/{response_id}/trace", f"Bearer {key}"],
            )
            assert status == (200 if is_there else 404)
        for is_traced in (False, True):
            page.get_by_role("button", name="Request", exact=True).click()
            page.get_by_text("Conversation and more fields").click()
            page.get_by_label("ask for a trace").set_checked(is_traced)
            send(page, "demo")
            page.locator(".figures .status.completed").wait_for()
            page.get_by_role("tab", name="Trace").click()
            shown = page.get_by_label("What passed") if is_traced else page.locator(".absent")
            shown.wait_for()
        page.close()


def open_stored_again(page: Any, response_id: str) -> None:
    page.get_by_role("button", name="Stored", exact=True).click()
    page.fill("#open-id", response_id)
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator(".figures .status:not(.live)").wait_for()


def test_without_a_trace_the_page_says_how_one_gets_one(browser: Any) -> None:
    with serving(Settings(store="memory:")) as plain:
        page = browser.new_page()
        page.goto(f"{plain}/inspector")
        send(page, "demo")
        page.locator(".figures .status.completed").wait_for()
        page.get_by_role("tab", name="Trace").click()
        page.locator(".absent", has_text="serve --trace").wait_for()
        page.close()


def test_a_trace_is_saved_as_a_recording_without_secrets(
    page: Any, base: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    secret = "sk-abcdefghijklmnopqrstuvwx"
    frame = chunk(content=f"It is {secret}, keep it.")
    cut = frame.index(b"ghijkl")
    upstream.scripts["leaky"] = Script([frame[:cut], 0.05, frame[cut:], chunk("stop"), DONE])
    open_stored(page, made(base, "leaky", f"My key is {secret}"))
    open_trace(page)
    with page.expect_download() as started:
        page.get_by_role("button", name="Save as a recording").click()
    file = tmp_path / started.value.suggested_filename
    started.value.save_as(file)
    text = file.read_text()
    assert secret not in text
    recording = read_recording(file)
    sent = b"".join(
        each.data
        for exchange in recording.exchanges
        if exchange.asked.leg == "upstream"
        for each in recording.records(exchange)
        if isinstance(each, Chunk)
    )
    assert b"It is [masked], keep it." in sent
    assert secret[:10].encode() not in sent
    dropped(page, file.read_bytes(), file.name)
    page.locator(".answer", has_text="It is [masked], keep it.").wait_for()


def test_a_dropped_trace_and_a_recording_are_shown(page: Any, base: str, tmp_path: Path) -> None:
    response = made(base, "words")
    dropped(page, call(base, "GET", f"/v1/responses/{response}/trace").body, "trace.jsonl")
    page.locator(".figures .status.completed").wait_for()
    assert page.locator("dt:text-is('Duration') + dd").inner_text() not in ("–", "0 ms")
    open_trace(page)
    at_event(page, "nineteen")
    page.get_by_text("came from chunk 3 of first, with which it was whole").wait_for()
    file = tmp_path / "made.jsonl"
    command = [
        sys.executable,
        "-m",
        "openresponses_server",
        "record",
        "Say hello",
        "Count to two",
        "-o",
        str(file),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    dropped(page, file.read_bytes(), file.name)
    page.locator(".figures .status.completed").wait_for()
    assert page.locator(".list .event", has_text="in_progress").count() >= 2
    open_trace(page)
    page.locator(".traced .events", has_text="chunk 1 ·").wait_for()


def test_what_strangers_wrote_stays_text(page: Any, base: str) -> None:
    open_stored(page, made(base, "hostile", HOSTILE))
    open_trace(page)
    shown = page.locator(".traced").inner_text()
    assert "\u202e" not in shown
    assert "\\u202e" in shown
    begun = {"type": "recording", "version": 1, "created_at": HOSTILE, "generator": HOSTILE}
    exchange = {"exchange": 1, "dialect": "chat", "upstream": HOSTILE, "address": "javascript:alert(1)"}
    answer = chunk(content=HOSTILE * 3).decode() + chunk("stop").decode() + DONE.decode()
    lines = [
        begun,
        {
            "type": "exchange",
            "at": 0.1,
            **exchange,
            "path": HOSTILE,
            "model": HOSTILE,
            "body": {HOSTILE: HOSTILE},
        },
        {"type": "answer", "exchange": 1, "at": 0.2, "status": 200, "headers": {HOSTILE: HOSTILE}},
        {"type": "chunk", "exchange": 1, "at": 0.3, "text": answer},
        {
            "type": "note",
            "at": 0.3,
            "kind": "repair",
            "where": HOSTILE,
            "what": HOSTILE * 99,
            "times": 10**15,
        },
        {"type": "note", "at": 0.3, "kind": HOSTILE, "where": "__proto__", "what": "constructor"},
        {"type": "note", "at": 9e15, "kind": "end", "where": "completed"},
        *({"type": "note", "at": 0.3, "kind": "loss", "what": f"{at}"} for at in range(5_000)),
        {"type": "end", "exchange": 1, "at": 0.4, "how": "cut", "code": HOSTILE, "reason": HOSTILE},
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    dropped(page, data, f"{HOSTILE}.jsonl")
    page.locator(".figures .status.completed").wait_for()
    open_trace(page)
    page.get_by_label("What passed").press("Home")
    for row in range(12):
        page.locator(".passage").nth(row).click()
    page.get_by_label("What passed").press("End")
    page.locator(".passage-shown", has_text="9000000000000000").wait_for()
    assert page.title() == "Inspector"
    assert page.locator("main img, main iframe, main a").count() == 0
    assert "\u202e" not in page.locator("main").inner_text()


def test_axe_finds_nothing_in_a_trace(page: Any, base: str, faults: Callable[[Any], list[str]]) -> None:
    open_stored(page, made(base, "busy"))
    open_trace(page)
    for theme in ("light", "dark"):
        page.get_by_label("Theme").select_option(theme)
        for kind in ("status 503", "is asked again", "chunk 1"):
            page.locator(".passage", has_text=kind).first.click()
            assert faults(page) == [], (theme, kind)
        page.set_viewport_size({"width": 390, "height": 900})
        assert faults(page) == [], theme
        page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_trace_has_room(page: Any, base: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_stored(page, made(base, "words"))
    open_trace(page)
    at_event(page, "degrees")
    page.locator(".passage.origin").wait_for()
    assert cut_off(page, ".passage .time, .passage .mark") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box, row = page.locator(".traced .events").bounding_box(), page.locator(".passage.origin").bounding_box()
    assert box["y"] - 1 <= row["y"]
    assert row["y"] + row["height"] <= box["y"] + box["height"] + 1


def test_a_long_trace_stays_smooth(page: Any) -> None:
    count = 20_000
    lines: list[dict[str, Any]] = [
        {"type": "recording", "version": 1},
        {"type": "exchange", "exchange": 1, "at": 0, "dialect": "chat", "upstream": "u"},
        {"type": "answer", "exchange": 1, "at": 0, "status": 200},
    ]
    sent = [chunk(content="word ").decode()] * count + [
        chunk(content="x" * 3_000_000).decode(),
        DONE.decode(),
    ]
    for number, text in enumerate(sent, 1):
        lines.append({"type": "chunk", "exchange": 1, "at": number / 100, "text": text})
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    dropped(page, data, "long.jsonl")
    page.locator(".figures .status:not(.live)").wait_for(timeout=120_000)
    without = frames(page)
    open_trace(page)
    page.locator(".belongs", has_text=f"chunk {count + 2}").wait_for()
    assert page.locator(".passage").count() < 100
    with_trace = frames(page, ".traced .events")
    print("without the trace", without, "with it", with_trace)
    assert with_trace["scroll"]["median"] < 3 * without["scroll"]["median"]
    assert with_trace["scrub"]["median"] < 3 * without["scrub"]["median"]
