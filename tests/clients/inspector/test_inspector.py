"""The inspector's page in Chromium."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.inspector_page import cut_off, dropped, frames, picture, send
from tests.support.serving import call, serving
from tests.support.stores import streamed
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, refusal
from tests.support.upstream import call as tool_call

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
SLOW = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in (
        {"type": "recording", "version": 1},
        {"type": "exchange", "exchange": 1, "at": 0, "dialect": "chat", "upstream": "slow"},
        {"type": "answer", "exchange": 1, "at": 0, "status": 200},
        {"type": "chunk", "exchange": 1, "at": 0.0001, "text": chunk(content="a").decode()},
        {"type": "chunk", "exchange": 1, "at": 0.0007, "text": chunk(content="b").decode()},
        {"type": "chunk", "exchange": 1, "at": 12345.0007, "text": chunk("stop").decode() + DONE.decode()},
    )
)
ANSWER = "Both are fine today: Lima has 19 degrees and light cloud, Oslo two degrees and snow. "
FEW, MANY = 1_000, 100_000
WAIT = 0.3  # seconds before the first token


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        thought = [
            step
            for word in ["The", "user", "wants", "two", "places.", "I", "ask", "both."]
            for step in (chunk(reasoning_content=word + " "), 0.03)
        ]
        answer = [step for word in ANSWER.split() for step in (chunk(content=word + " "), 0.02)]
        calls = [
            tool_call(0, "", "get_weather", "c0"),
            0.1,
            tool_call(0, '{"place":"Lima"}'),
            0.2,
            tool_call(1, "", "get_weather", "c1"),
            0.1,
            tool_call(1, '{"place":"Oslo"}'),
        ]
        scripted.scripts["weather"] = Script(
            [WAIT, *thought, 0.3, *answer, 0.2, *calls, chunk("tool_calls"), DONE]
        )
        for name in ("one", "two"):
            scripted.scripts[name] = Script([chunk(content=f"It is {name}."), chunk("stop"), DONE])
        scripted.scripts["breaks"] = Script([chunk(content="It began "), 0.1, "cut"])
        too_long = "The conversation is too long."
        scripted.scripts["refuses"] = refusal(400, message=too_long, code="context_length_exceeded")
        yield scripted


@pytest.fixture(scope="module")
def base(upstream: ScriptedUpstream) -> Iterator[str]:
    upstreams = [UpstreamSettings(url=upstream.url, name="scripted", dialect="chat")]
    with serving(Settings(store="memory:", upstreams=upstreams, max_body_bytes=100_000_000)) as address:
        yield address


def test_a_live_stream_with_thinking_text_and_two_tools(page: Any) -> None:
    send(page, "weather")
    page.get_by_role("button", name="Pause").wait_for()
    page.locator(".status.completed").first.wait_for()
    assert page.locator(".panel.call").count() == 2
    assert "Lima has 19 degrees" in page.locator(".answer").inner_text()
    assert not page.locator(".panel.thinking").evaluate("panel => panel.open")
    assert page.locator(".pin.clean").count() == 1
    first = page.locator("dt:text-is('First token') + dd").inner_text()
    assert re.fullmatch(r"([3-9]\d\d|[12]\d{3}) ms|[1-9]\.\d+ s", first), first
    picture(page, "inspector")
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("tab", name="Snapshot").click()
    page.get_by_label("One event back").click()
    assert page.locator(".tree .changed").count() > 0
    picture(page, "inspector-dark")


def test_a_failing_one(page: Any) -> None:
    send(page, "breaks")
    page.locator(".status.failed").first.wait_for()
    assert page.locator(".panel.failed").count() == 1
    assert page.locator(".pin.clean").count() == 0, "nothing is green beside a failure"
    page.locator(".event.failure").first.wait_for()
    page.get_by_role("button", name="Stored", exact=True).click()
    page.locator(".stored tr.failed .status.failed").first.wait_for()
    row, other = (
        page.locator(f".stored tbody tr{kind} td").first.evaluate(
            "cell => getComputedStyle(cell).backgroundColor"
        )
        for kind in (".failed", ":not(.failed)")
    )
    assert row != other


def test_a_refused_request_shows_its_status_its_code_and_the_answer(page: Any) -> None:
    send(page, "refuses")
    page.locator(".status", has_text="refused").wait_for()
    facts = page.locator(".summary dl").inner_text().split()
    assert facts == ["Status", "400", "Code", "context_length_exceeded"]
    body = json.loads(
        page.get_by_role("region", name="What the server answered").locator(".json").inner_text()
    )
    assert body["error"]["code"] == "context_length_exceeded"
    assert '"refuses"' in page.get_by_role("region", name="What was sent").inner_text()
    assert page.locator(".pin.clean, .timeline, .columns").count() == 0
    page.get_by_role("button", name="Edit and send again").click()
    page.fill("#model", "one")
    page.get_by_role("button", name="Send", exact=True).click()
    page.locator(".status.completed").first.wait_for()


def test_the_address_follows_what_is_shown(page: Any, base: str) -> None:
    here = f"{base}/inspector/index.html"
    assert page.url == here
    send(page, "one")
    page.locator(".status.completed").first.wait_for()
    first = page.locator(".id").inner_text()
    page.wait_for_url(f"{here}#response={first}")
    page.get_by_role("button", name="Stored", exact=True).click()
    page.wait_for_url(f"{here}#view=stored")
    page.get_by_label("Status").select_option("failed")
    page.wait_for_url(f"{here}#view=stored&status=failed")
    page.reload()
    page.get_by_role("heading", name="Stored responses").wait_for()
    assert page.get_by_label("Status").input_value() == "failed"
    page.go_back()  # of a page that is gone: the address is requested again
    page.locator(".status.completed").first.wait_for()
    assert page.locator(".id").inner_text() == first
    page.reload()
    page.locator(".status.completed").first.wait_for()
    assert page.locator(".id").inner_text() == first
    assert page.locator(".opened button").count() == 1
    send(page, "two")
    page.locator(".id", has_not_text=first).wait_for()
    page.locator(".status.completed").first.wait_for()
    second = page.locator(".id").inner_text()
    page.wait_for_url(f"{here}#response={second}")
    page.go_back()  # to the form
    page.get_by_role("button", name="Send", exact=True).wait_for()
    page.go_back()
    page.locator(".id", has_text=first).wait_for()
    assert page.locator(".opened button").count() == 2, "what is open is not asked for again"
    page.go_forward()
    page.go_forward()
    page.locator(".id", has_text=second).wait_for()
    page.goto(f"{here}#response=resp_unknown")
    page.locator(".status", has_text="refused").wait_for()
    assert page.locator(".summary dl").inner_text().split()[:2] == ["Status", "404"]
    assert page.url == f"{here}#response=resp_unknown"


def test_what_is_compared_is_in_the_address(page: Any) -> None:
    for model in ("one", "two"):
        send(page, model)
        page.locator(".status.completed").first.wait_for()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_text("differences.").wait_for()
    page.wait_for_url(re.compile("#view=compare&left=resp_.*&right=resp_.*&subject=snapshot"))
    page.get_by_label("What to compare").select_option("request")
    page.wait_for_url(re.compile("subject=request$"))
    page.reload()
    page.get_by_text("1 difference.").wait_for()
    assert page.locator("#subject").input_value() == "request"


def test_a_stored_one_shows_what_is_known_and_hides_what_is_not(page: Any, base: str) -> None:
    response = call(base, "POST", "/v1/responses", {"model": "one", "input": "Stored"}).json
    page.goto(f"{base}/inspector/index.html#response={response['id']}")
    page.reload()
    page.locator(".status.completed").first.wait_for()
    names = page.locator(".summary dt").all_inner_texts()
    assert {"Model", "Started", "Duration", "Events"} <= set(names)
    assert not {"First token", "Tokens a second"} & set(names)
    assert "–" not in page.locator(".summary dd").all_inner_texts()
    assert page.locator(".event .time").count() == 0
    assert page.get_by_role("tab", name="Request").count() == 1
    assert page.get_by_role("button", name="Compare with the one before").count() == 0
    dropped(page, streamed("Hi", 3)[1].data)
    page.locator(".status.completed").first.wait_for()
    assert page.get_by_role("tab", name="Request").count() == 0
    assert page.get_by_role("button", name="Copy as curl").count() == 0


def test_a_browser_is_led_to_the_page(page: Any, base: str) -> None:
    page.goto(base)
    page.get_by_role("heading", name="Request").first.wait_for()
    assert page.url == f"{base}/inspector/index.html"


def test_a_stored_one_is_scrubbed(page: Any, base: str) -> None:
    response = call(base, "POST", "/v1/responses", {"model": "weather", "input": "Stored"}).json
    page.get_by_role("button", name="Stored", exact=True).click()
    page.fill("#open-id", response["id"])
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator(".status.completed").first.wait_for()
    page.get_by_role("slider", name="Event").fill("0")
    assert page.locator(".answer .text").count() == 0
    page.get_by_label("Events", exact=True).press("End")
    assert "Lima" in page.locator(".answer").inner_text()


def test_a_dropped_capture_with_a_violation_and_hostile_text(page: Any) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\"></script>"
    data = streamed(hostile, 3)[1].data.replace(b'"sequence_number":3', b'"sequence_number":9')
    dropped(page, data)
    page.get_by_label("only with findings").check()
    page.locator(".event .pin.violation").first.click()
    assert page.locator(".findings .violation .asks").count() > 0
    assert page.title() == "Inspector"
    assert page.locator(".answer img").count() == 0
    picture(page, "inspector-violation")


def test_two_are_compared(page: Any) -> None:
    for model, text in (("one", "first"), ("one", "second"), ("two", "third")):
        send(page, model, text)
        page.locator(".status.completed").first.wait_for()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_text("2 differences.").wait_for()  # the model and the text
    assert "It is one." in page.locator(".compare table").inner_text()
    page.get_by_label("Second").select_option("1")
    page.get_by_text("Their responses are the same.").wait_for()
    page.get_by_label("What to compare").select_option("request")
    page.get_by_text("1 difference.").wait_for()


def test_two_of_a_conversation_are_compared_in_one_step(page: Any, base: str) -> None:
    def made(asked: Any, **more: Any) -> dict[str, Any]:
        reply = call(base, "POST", "/v1/responses", {"model": "weather", "input": asked, **more})
        assert reply.status == 200, reply.body
        response: dict[str, Any] = reply.json
        return response

    before = made("Lima and Oslo?")
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "fine"}
        for item in before["output"]
        if item["type"] == "function_call"
    ]
    assert len(results) == 2
    asked = [*results, {"role": "user", "content": "And once more?"}]
    first, second = before["id"], made(asked, previous_response_id=before["id"])["id"]
    page.get_by_role("button", name="Stored", exact=True).click()
    assert page.get_by_role("button", name=f"Compare {first} with the one before").is_disabled()
    page.get_by_role("button", name=f"Compare {second} with the one before").click()
    page.get_by_role("heading", name="Compare").wait_for()
    assert page.locator("#subject").input_value() == "request"
    shown = page.locator(".compare table").inner_text()
    assert "Lima and Oslo?" in shown
    assert "And once more?" in shown
    assert first in shown  # the response that the second one continues
    for subject in ("snapshot", "events", "parts"):
        page.get_by_label("What to compare").select_option(subject)
        page.locator(".compare [role=status]", has_text="difference").wait_for()
        rows = page.locator(".compare tbody tr").all_inner_texts()
        # only usage and the chain differ
        assert all(re.search("usage|previous_response_id|prompt_tokens", row) for row in rows), rows
    page.get_by_label("ignore ids").uncheck()
    page.get_by_label("What to compare").select_option("snapshot")
    page.locator(".compare tbody", has_text=f"{first}").wait_for()
    page.locator(".opened button", has_text=second[:20]).click()
    page.get_by_role("button", name="Compare with the one before").click()
    page.get_by_role("heading", name="Compare").wait_for()
    assert page.locator(".opened button").count() == 2  # they were open


def test_100_000_events_stay_smooth(page: Any) -> None:
    dropped(page, streamed("word ", FEW)[1].data)
    page.get_by_text(f"/ {FEW + 7}").wait_for()
    few = frames(page)
    dropped(page, streamed("word ", MANY)[1].data)
    page.get_by_text(f"/ {MANY + 7}").wait_for(timeout=120_000)
    assert page.locator(".event").count() < 100
    for zoom in (0, 5):
        for _ in range(zoom):
            page.get_by_role("button", name="Zoom in").click()
        measured = frames(page)
        print(f"{FEW} events", few, f"{MANY} events, zoomed {zoom} times", measured)
        assert measured["scroll"]["median"] < 3 * few["scroll"]["median"]
        assert measured["scrub"]["median"] < 5 * few["scrub"]["median"]


def cursor_at(page: Any) -> float:
    """The position of the selected event in the lanes, in pixels."""
    position: float = page.evaluate(_CURSOR)
    return position


_CURSOR = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const canvas = document.querySelector('.lanes canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 1, canvas.width, 1);
  let [sum, count] = [0, 0];
  for (let x = 0; x < canvas.width; x += 1) if (data[4 * x + 3] > 60) { sum += x; count += 1; }
  done(count ? sum / count : -1);
})))"""


def test_lanes_zoom_and_keep_the_event_in_view(page: Any) -> None:
    send(page, "weather")
    page.locator(".figures .status.completed").wait_for()
    lanes = page.get_by_role("group", name="Lanes")

    def seen() -> dict[str, float]:
        view: dict[str, float] = json.loads(lanes.get_attribute("data-seen"))
        return view

    def distance() -> float:
        before = cursor_at(page)
        lanes.press("ArrowRight")
        return cursor_at(page) - before

    page.get_by_role("slider", name="Event").fill("12")
    here, plain = cursor_at(page), distance()
    page.get_by_role("slider", name="Event").fill("12")
    for _ in range(2):
        lanes.press("+")
    page.get_by_role("button", name="Zoom in").click()
    assert seen()["span"] == pytest.approx(1 / 8)
    assert cursor_at(page) == pytest.approx(here, abs=2)  # it stays where it was
    assert distance() == pytest.approx(8 * plain, rel=0.2, abs=4)  # the gaps are still right
    for _ in range(45):
        lanes.press("ArrowRight")
        assert cursor_at(page) > 84
    assert seen()["from"] > 0.2
    page.get_by_role("button", name="Zoom out").click()
    assert seen()["span"] == pytest.approx(1 / 4)
    lanes.press("0")
    assert seen() == {"from": 0, "span": 1}
    page.get_by_label("original timing").uncheck()
    for _ in range(12):
        lanes.press("+")
    assert cursor_at(page) > 84
    assert page.get_by_role("button", name="Zoom in").is_disabled()


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_gap_between_events_is_cut_off(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    send(page, "weather")
    page.locator(".figures .status.completed").wait_for()
    page.locator(".list .events").evaluate("list => { list.scrollTop = 0; }")
    assert "+" in "".join(page.locator(".list .event .time").all_inner_texts())
    assert cut_off(page, ".list .event .time, .list .event .number") == []
    dropped(page, SLOW, "slow.jsonl")
    page.locator(".list .event .time", has_text="+206 min").first.wait_for()
    assert cut_off(page, ".list .event .time, .list .event .number") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_key_is_asked_for_used_and_forgotten(browser: Any) -> None:
    with serving(Settings(store="memory:", api_keys=[hashed("secret-key")])) as keyed:
        page = browser.new_page()
        page.goto(f"{keyed}/inspector")
        page.get_by_role("textbox", name="Key").fill("secret-key")
        page.get_by_role("button", name="Use it").click()
        page.get_by_role("button", name="Key: in memory").wait_for()
        send(page, "demo")
        page.locator(".status.completed").first.wait_for()
        assert (
            page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])").count("secret-key") == 0
        )
        page.get_by_role("button", name="Key: in memory").click()
        page.get_by_role("button", name="Forget the key").click()
        page.get_by_role("button", name="Stored", exact=True).click()
        page.get_by_role("dialog").wait_for()
        page.close()


def test_axe_finds_nothing(page: Any, faults: Callable[[Any], list[str]]) -> None:
    def look(where: str) -> list[str]:
        return [f"{where}: {each}" for each in faults(page)]

    violations = look("request")
    for theme in ("light", "dark"):
        page.get_by_label("Theme").select_option(theme)
        for name in ("Stored", "Capture", "Compare"):
            page.get_by_role("button", name=name, exact=True).click()
            violations += look(f"{name} {theme}")
        send(page, "weather")
        page.locator(".status.completed").first.wait_for()
        page.get_by_role("button", name="Zoom in").click()
        violations += look(f"stream {theme}")
        page.get_by_role("tab", name="Trace").click()
        page.locator(".absent").wait_for()
        violations += look(f"no trace {theme}")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.locator(".compare [role=status]").wait_for()
    violations += look("compared")
    assert violations == []
