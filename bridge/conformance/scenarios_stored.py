"""Stored responses: retrieve, delete, page, cancel, resume."""

from __future__ import annotations

from typing import Final

from bridge.conformance.exchange import Answer, Ask, Wait
from bridge.conformance.scenario import (
    Broken,
    NotOffered,
    Play,
    Target,
    expect,
    expect_refusal,
    expect_stream,
    expect_whole,
    need_route,
    need_support,
    scenario,
)
from bridge.conformance.scenarios_answers import LONG_STORY

_LEAVE_AFTER: Final = 6  # events; created, in_progress, the item, the part and some text
_POLLS: Final = 20
_POLL_SECONDS: Final = 0.25
_ENDED: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})


def _stored(response_id: str, tail: str = "", method: str = "GET") -> Ask:
    return Ask(path=f"/responses/{response_id}{tail}", method=method)


@scenario("OpenAI's API reference")
def stored_retrieve(target: Target) -> Play:
    """A stored response is retrieved as it ended."""
    response = expect_whole((yield target.create(store=True)), target)
    answer = yield _stored(response["id"])
    need_route(answer, "retrieving")
    expect(expect_whole(answer, target) == response, "the retrieved response differs from the answer")


@scenario("OpenAI's API reference")
def stored_not_stored(target: Target) -> Play:
    """With `store` false nothing can be retrieved."""
    response = expect_whole((yield target.create(store=False)), target)
    answer = yield _stored(response["id"])
    if answer.status in (405, 501):
        raise NotOffered(f"retrieving: status {answer.status}")
    expect_refusal(answer, 404)


@scenario("OpenAI's API reference")
def stored_delete(target: Target) -> Play:
    """A deleted response is gone."""
    response = expect_whole((yield target.create(store=True)), target)
    answer = yield _stored(response["id"], method="DELETE")
    need_route(answer, "deleting")
    told = answer.json if isinstance(answer.json, dict) else {}
    expect(answer.status == 200 and told.get("deleted") is True, "the deletion is not confirmed")
    expect_refusal((yield _stored(response["id"])), 404)


@scenario("OpenAI's API reference")
def stored_input_items(target: Target) -> Play:
    """The input items of a stored response are listed, each with an id."""
    response = expect_whole((yield target.create(store=True)), target)
    answer = yield _stored(response["id"], "/input_items")
    need_route(answer, "input_items")
    page = answer.json if isinstance(answer.json, dict) else {}
    data = page.get("data")
    expect(
        answer.status == 200 and isinstance(data, list) and len(data) == 1, "the list is not the one message"
    )
    expect(all(isinstance(item.get("id"), str) for item in data or []), "an input item has no id")
    expect(page.get("object") == "list", f"object is {page.get('object')!r}")


@scenario("OpenAI's API reference")
def cancel_background(target: Target) -> Play:
    """A background response is queued or in progress at once, and ends when it is cancelled."""
    begun = yield target.create(background=True, store=True, input=f"Slowly: {LONG_STORY}")
    need_support(begun, "background")
    expect(begun.status == 200, f"status {begun.status}")
    response = begun.response
    expect(response.get("status") in {"queued", "in_progress"}, f"status is {response.get('status')!r}")
    answer = yield _stored(response["id"], "/cancel", "POST")
    need_route(answer, "cancelling")
    expect(answer.status == 200, f"cancelling: status {answer.status}")
    for _ in range(_POLLS):
        current = (yield _stored(response["id"])).response.get("status")
        if current in _ENDED:
            break
        yield Wait(_POLL_SECONDS)
    expect(current in {"cancelled", "incomplete"}, f"after cancelling the status is {current!r}")


@scenario("OpenAI's API reference")
def cancel_unknown(target: Target) -> Play:
    """Cancelling what does not exist is refused."""
    answer = yield _stored("resp_00000000conformance", "/cancel", "POST")
    if answer.status in (405, 501) or (answer.status == 404 and not answer.error):
        raise NotOffered(f"cancelling: status {answer.status}")
    expect_refusal(answer, 404)


@scenario("HTTP")
def cancel_leaving(target: Target) -> Play:
    """A client that leaves within a stream does no harm: the next request is served."""
    answer = yield Ask(
        body=target.request(input=LONG_STORY, stream=True, store=False), leave_after=_LEAVE_AFTER
    )
    expect(answer.status == 200, f"status {answer.status}")
    expect_whole((yield target.create()), target)


@scenario("OpenAI's API reference")
def resume_from_where_it_broke(target: Target) -> Play:
    """After a broken connection the events after the last one seen follow, without gap or repeat."""
    asked = target.request(input=LONG_STORY, stream=True, store=True)
    before = yield Ask(body=asked, leave_after=_LEAVE_AFTER)
    seen = before.events
    expect(seen, "no event before the break")
    response_id = str((seen[0].get("response") or {}).get("id"))
    after = yield _resumed(response_id, seen[-1]["sequence_number"])
    _need_resuming(after)
    whole = Answer(status=200, headers=after.headers, body=_joined(before, after))
    expect_stream(whole, target, "completed", "incomplete")


@scenario("OpenAI's API reference")
def resume_finished(target: Target) -> Play:
    """A finished response streams again, event for event what it was."""
    first = yield target.create(stream=True, store=True)
    response = expect_stream(first, target)
    again = yield _resumed(response["id"], None)
    _need_resuming(again)
    expect(again.events == first.events, "the events differ from those sent first")
    tail = yield _resumed(response["id"], 3)
    expect(tail.events == first.events[4:], "starting_after=3 does not begin with event 4")


def _resumed(response_id: str, starting_after: int | None) -> Ask:
    after = "" if starting_after is None else f"&starting_after={starting_after}"
    return _stored(response_id, f"?stream=true{after}")


def _need_resuming(answer: Answer) -> None:
    need_route(answer, "resuming")
    need_support(answer, "resuming")
    if answer.media_type == "application/json" and answer.status == 200:
        raise NotOffered("resuming: the response comes as JSON")
    if answer.status != 200:
        raise Broken(f"resuming: status {answer.status}")


def _joined(before: Answer, after: Answer) -> bytes:
    """The bytes of the whole frames seen before the break, and those that came after it."""
    head, end, _ = before.body.rpartition(b"\n\n")
    return head + end + after.body
