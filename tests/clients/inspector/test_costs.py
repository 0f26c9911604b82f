"""The inspector's page in Chromium: the costs of a response, and that none are shown if they are unknown."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openresponses_server.settings import Price, PriceTier, Settings, UpstreamSettings
from tests.support.inspector_page import dropped, open_stored, picture, send
from tests.support.serving import call, serving
from tests.support.stores import streamed
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
ROUNDS = "openresponses-bridge:rounds"
UNKNOWN = "not known"


def counted(content: str, given: int, output: int) -> Script:
    usage = {"prompt_tokens": given, "completion_tokens": output, "total_tokens": given + output}
    last = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
    return Script([chunk(content=content), chunk("stop"), b"data: %b\n\n" % json.dumps(last).encode(), DONE])


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with ScriptedUpstream() as upstream:
        upstream.scripts["m"] = counted("Hello.", 300, 20)
        upstream.scripts["free"] = counted("Hello.", 300, 20)
        upstream.scripts["unpriced"] = counted("Hello.", 300, 20)
        tier = PriceTier(above=200, input=2.0, output=20.0)
        settings = Settings(
            store="memory:",
            upstreams=[UpstreamSettings(url=upstream.url, dialect="chat")],
            prices={
                "m": Price(input=1.0, output=10.0, tiers=(tier,)),
                "free": Price(input=0.0, output=0.0),
            },
        )
        with serving(settings) as address:
            yield address


def shows(page: Any, wanted: str) -> None:
    """Wait until the page shows exactly this cost."""
    page.locator(".figures .status:not(.live)").wait_for()
    page.locator(f"dt:text-is('Cost') + dd >> text=/^{re.escape(wanted)}$/").wait_for()


def with_usage(usage: dict[str, Any], model: str = "m") -> bytes:
    """A capture whose response ends with this usage."""
    lines = []
    for frame in streamed("Hi", 3)[1].data.split(b"\n\n")[:-1]:
        head, _, data = frame.partition(b"data: ")
        event = json.loads(data) if data.startswith(b"{") else None
        if event is not None and "response" in event:
            event["response"]["model"] = model
            if event["type"] == "response.completed":
                event["response"]["usage"] = usage
        lines.append(frame if event is None else head + b"data: " + json.dumps(event).encode())
    return b"".join(each + b"\n\n" for each in lines)


def usage_of(given: int, output: int, **more: Any) -> dict[str, Any]:
    return {
        "input_tokens": given,
        "output_tokens": output,
        "total_tokens": given + output,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
        **more,
    }


def round_of(given: int, output: int) -> dict[str, int]:
    parts = dict.fromkeys(("cached_tokens", "reasoning_tokens", "cache_write_tokens"), 0)
    return {"input_tokens": given, "output_tokens": output, "total_tokens": given + output, **parts}


def test_a_live_one_and_a_stored_one_have_their_cost(page: Any, base: str) -> None:
    send(page, "m")
    shows(page, "$0.001")
    response_id = call(base, "POST", "/v1/responses", {"model": "m", "input": "x"}).json["id"]
    open_stored(page, response_id)
    shows(page, "$0.001")
    send(page, "free")
    shows(page, "$0")


def test_what_is_not_known_is_said_so_and_never_nothing(page: Any, base: str) -> None:
    send(page, "unpriced")
    shows(page, UNKNOWN)
    dropped(page, with_usage(usage_of(300, 20), model="<b>nobody</b>"))
    shows(page, UNKNOWN)
    page.route("**/inspector/v1/cost", lambda route: route.abort())
    send(page, "m")
    shows(page, UNKNOWN)


def test_each_round_of_a_capture_has_its_cost(page: Any, faults: Callable[[Any], list[str]]) -> None:
    rounds = [round_of(150, 10), round_of(300, 20)]
    dropped(page, with_usage(usage_of(450, 30, estimated=True, **{ROUNDS: rounds})))
    shows(page, "≈ $0.00125 in 2 rounds")
    page.locator(".rounds summary").click()
    assert page.locator(".rounds li").all_inner_texts() == [
        "$0.00025 150 in, 10 out",
        "$0.001 300 in, 20 out",
    ]
    assert faults(page) == []
    picture(page, "inspector-costs")


HOSTILE: dict[str, Any] = {
    "markup": {
        "cost_usd": "<img src=x onerror=alert(1)>",
        "rounds": ["<b>1</b>", "<script>alert(1)</script>"],
    },
    "a number": {"cost_usd": 0, "rounds": [0, 0]},
    "nothing": {},
    "null": None,
    "a text": "0",
    "no number": {"cost_usd": "NaN", "rounds": []},
    "negative": {"cost_usd": "-1", "rounds": []},
    "long": {"cost_usd": "1" * 100_000, "rounds": []},
    "an exponent": {"cost_usd": "1e9", "rounds": []},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_answer_that_is_no_cost_is_not_shown_as_one(page: Any, case: str) -> None:
    dialogs: list[str] = []

    def refuse(dialog: Any) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    page.route("**/inspector/v1/cost", lambda route: route.fulfill(json=HOSTILE[case]))
    rounds = [{"input_tokens": "<i>1</i>", "output_tokens": []}, round_of(1, 1)]
    dropped(page, with_usage(usage_of(450, 30, **{ROUNDS: rounds})))
    shows(page, UNKNOWN)
    assert page.locator(".figures img, .figures script, .figures i, .figures b").count() == 0
    assert dialogs == []


def test_hostile_rounds_beside_a_cost_stay_text(page: Any) -> None:
    answer = {"cost_usd": "1.5", "rounds": ["1", "<b>x</b>"]}
    page.route("**/inspector/v1/cost", lambda route: route.fulfill(json=answer))
    rounds = [{"input_tokens": "<i>1</i>", "output_tokens": []}, None]
    dropped(page, with_usage(usage_of(450, 30, **{ROUNDS: rounds})))
    shows(page, "$1.5 in 2 rounds")
    page.locator(".rounds summary").click()
    assert page.locator(".rounds li").all_inner_texts() == ["$1 – in, – out", "not known – in, – out"]
