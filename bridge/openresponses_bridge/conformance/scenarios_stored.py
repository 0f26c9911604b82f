"""Stored responses: retrieve, delete, page, cancel, resume."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.conformance.scenario import (
    Broken,
    Delay,
    HttpRequest,
    NotOffered,
    Play,
    ServerAnswer,
    ServerUnderTest,
    expect,
    expect_marker,
    expect_refusal,
    expect_stream,
    expect_whole,
    item_faults,
    items,
    need_route,
    need_support,
    scenario,
    text_of,
)
from openresponses_bridge.conformance.scenarios_answers import LONG_STORY

_LEAVE_AFTER: Final = 6  # events: created, in_progress, the item, the part and some text
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, *[0.5] * 60)  # seconds between two looks at a response in progress
_UNKNOWN: Final = "resp_00000000conformance"
_RUNNING: Final = frozenset({"queued", "in_progress"})


def _stored(response_id: str, tail: str = "", method: str = "GET") -> HttpRequest:
    return HttpRequest(path=f"/responses/{response_id}{tail}", method=method)


def _need_stored(answer: ServerAnswer, response: dict[str, Any], what: str) -> None:
    """Raise NotOffered if the server has no such endpoint, or reports that the response is not stored."""
    message = str(answer.error.get("message"))
    named = response["id"] in message and "/responses/" not in message  # else the message is about the path
    if answer.status == 404 and named and response.get("store") is True:
        raise Broken(f"{what}: status 404 for a response that says store: true")
    need_route(answer, what)


@scenario("OpenAI's API reference", "full")
def stored_retrieve(target: ServerUnderTest) -> Play:
    """A stored response can be retrieved, equal to the answer."""
    response = expect_whole((yield target.create(store=True)), target)
    answer = yield _stored(response["id"])
    _need_stored(answer, response, "retrieving")
    expect(expect_whole(answer, target) == response, "the retrieved response differs from the answer")


@scenario("OpenAI's API reference", "full")
def stored_as_streamed(target: ServerUnderTest) -> Play:
    """The stored form of a streamed response equals that in its last event."""
    response = expect_stream((yield target.create(store=True, stream=True)), target)
    answer = yield _stored(response["id"])
    _need_stored(answer, response, "retrieving")
    expect(expect_whole(answer, target) == response, "the retrieved response differs from the streamed one")


@scenario("OpenAI's API reference", "full")
def stored_not_stored(target: ServerUnderTest) -> Play:
    """A response with `store` false can't be retrieved."""
    stored = expect_whole((yield target.create(store=True)), target)
    _need_stored((yield _stored(stored["id"])), stored, "retrieving")
    response = expect_whole((yield target.create(store=False)), target)
    expect_refusal((yield _stored(response["id"])), 404)


@scenario("OpenAI's API reference", "full")
def stored_unknown(target: ServerUnderTest) -> Play:
    """An unknown response is refused with 404."""
    stored = expect_whole((yield target.create(store=True)), target)
    _need_stored((yield _stored(stored["id"])), stored, "retrieving")
    expect_refusal((yield _stored(_UNKNOWN)), 404)
    expect_refusal((yield _stored(_UNKNOWN, "/input_items")), 404)


@scenario("OpenAI's API reference", "full")
def stored_delete(target: ServerUnderTest) -> Play:
    """A deleted response can't be retrieved."""
    response = expect_whole((yield target.create(store=True)), target)
    answer = yield _stored(response["id"], method="DELETE")
    _need_stored(answer, response, "deleting")
    confirmed = answer.json if isinstance(answer.json, dict) else {}
    expect(answer.status == 200 and confirmed.get("deleted") is True, "the deletion is not confirmed")
    expect(confirmed.get("id") == response["id"], f"deleted was {confirmed.get('id')!r:.80}")
    expect_refusal((yield _stored(response["id"])), 404)


@scenario("OpenAI's API reference", "full")
def stored_input_items(target: ServerUnderTest) -> Play:
    """The input items of a stored response are listed, each with an id."""
    response = expect_whole((yield target.create(store=True)), target)
    page = _page((yield _stored(response["id"], "/input_items")), response)
    expect(_texts(page) == [target.request()["input"]], "the list is not the one message that was sent")


@scenario("OpenAI's API reference", "full")
def stored_input_items_order(target: ServerUnderTest) -> Play:
    """Input items are listed newest first, or in the requested order, in pages."""
    texts = ["Say one.", "Say two.", "Say three."]
    messages = [{"type": "message", "role": "user", "content": each} for each in texts]
    response = expect_whole((yield target.create(store=True, input=messages)), target)
    pages = {}
    for order in ("", "?order=desc", "?order=asc"):
        pages[order] = _page((yield _stored(response["id"], f"/input_items{order}")), response)
    expect(_texts(pages["?order=asc"]) == texts, "order=asc is not the order in which they were sent")
    expect(_texts(pages["?order=desc"]) == texts[::-1], "order=desc is not the reverse of it")
    expect(_texts(pages[""]) == texts[::-1], "without `order` the newest does not come first")
    first = pages["?order=asc"]["data"][0]["id"]
    tail = f"/input_items?order=asc&limit=1&after={first}"
    rest = _page((yield _stored(response["id"], tail)), response)
    expect(_texts(rest) == texts[1:2], "after the first item, one at a time, does not come the second")
    expect(rest.get("has_more") is True, f"has_more is {rest.get('has_more')!r} with one more to come")


def _page(answer: ServerAnswer, response: dict[str, Any]) -> dict[str, Any]:
    """Return a page of input items, each with an id of its own."""
    _need_stored(answer, response, "input_items")
    page = answer.json if isinstance(answer.json, dict) else {}
    data = page.get("data")
    expect(answer.status == 200 and isinstance(data, list), f"status {answer.status}, `data` {data!r:.80}")
    expect(page.get("object") == "list", f"object is {page.get('object')!r}")
    ids = [item.get("id") for item in page["data"]]
    expect(all(isinstance(each, str) for each in ids), "an input item has no id")
    expect(len(set(ids)) == len(ids), "two input items have one id")
    return page


def _texts(page: dict[str, Any]) -> list[str]:
    """Return the text of each message."""
    contents = [item.get("content") for item in page["data"]]
    return ["".join(part.get("text", "") for part in content or ()) for content in contents]


@scenario("OpenAI's API reference", "full")
def stored_background(target: ServerUnderTest) -> Play:
    """A background response can be retrieved while it is in progress, and completes."""
    begun = yield target.create(background=True, store=True)
    need_support(begun, "background")
    expect(begun.status == 200, f"status {begun.status}")
    response = begun.response
    for pause in _PAUSES:
        answer = yield _stored(response["id"])
        _need_stored(answer, response, "retrieving")
        if answer.response.get("status") not in _RUNNING:
            break
        yield Delay(pause)
    done = expect_whole(answer, target)
    expect(done["id"] == response["id"], f"the retrieved response has the id {done['id']!r}")
    expect(text_of(done), "the output has no text")


@scenario("OpenAI's API reference", "full")
def cancel_background(target: ServerUnderTest) -> Play:
    """A background response is queued or in progress at first, and ends when it is cancelled."""
    begun = yield target.create(background=True, store=True, input=f"Slowly: {LONG_STORY}")
    need_support(begun, "background")
    expect(begun.status == 200, f"status {begun.status}")
    response = begun.response
    expect(response.get("status") in _RUNNING, f"status is {response.get('status')!r}")
    answer = yield _stored(response["id"], "/cancel", "POST")
    need_route(answer, "cancelling")
    expect(answer.status == 200, f"cancelling: status {answer.status}")
    cancelled = answer.response.get("id")
    expect(cancelled == response["id"], f"cancelling is answered with the response {cancelled!r:.80}")
    for pause in _PAUSES:
        current = (yield _stored(response["id"])).response.get("status")
        if current not in _RUNNING:
            break
        yield Delay(pause)
    expect(current in {"cancelled", "incomplete"}, f"after cancelling the status is {current!r}")


@scenario("OpenAI's API reference", "full")
def cancel_unknown(target: ServerUnderTest) -> Play:
    """Cancelling an unknown response is refused."""
    answer = yield _stored(_UNKNOWN, "/cancel", "POST")
    if answer.status in (405, 501) or (answer.status == 404 and not answer.error):
        raise NotOffered(f"cancelling: status {answer.status}")
    expect_refusal(answer, 404)


@scenario("HTTP", "full")
def cancel_leaving(target: ServerUnderTest) -> Play:
    """A client that disconnects during a stream does not affect the next request."""
    answer = yield HttpRequest(
        body=target.request(input=LONG_STORY, stream=True, store=False), leave_after=_LEAVE_AFTER
    )
    expect(answer.status == 200, f"status {answer.status}")
    expect_whole((yield target.create()), target)


@scenario("OpenAI's API reference", "full")
def resume_from_where_it_broke(target: ServerUnderTest) -> Play:
    """After a disconnect a client gets the events after the last one that it received, without gap or
    repetition."""
    body = target.request(input=LONG_STORY, stream=True, store=True)
    before = yield HttpRequest(body=body, leave_after=_LEAVE_AFTER)
    seen = before.events
    expect(seen, "no event before the break")
    response_id = str((seen[0].get("response") or {}).get("id"))
    after = yield _resumed(response_id, seen[-1]["sequence_number"])
    _need_resuming(after)
    whole = ServerAnswer(status=200, headers=after.headers, body=_joined(before, after))
    expect_stream(whole, target, "completed", "incomplete")


@scenario("OpenAI's API reference", "full")
def resume_finished(target: ServerUnderTest) -> Play:
    """An ended response can be streamed again, with the same events."""
    first = yield target.create(stream=True, store=True)
    response = expect_stream(first, target)
    again = yield _resumed(response["id"], None)
    _need_resuming(again)
    expect(again.events == first.events, "the events differ from those sent first")
    expect_stream(again, target)
    tail = yield _resumed(response["id"], 3)
    expect(tail.media_type == "text/event-stream", f"content-type is {tail.media_type!r}")
    expect_marker(tail, target)
    expect(tail.events == first.events[4:], "starting_after=3 does not begin with event 4")


def _resumed(response_id: str, starting_after: int | None) -> HttpRequest:
    after = "" if starting_after is None else f"&starting_after={starting_after}"
    return _stored(response_id, f"?stream=true{after}")


def _need_resuming(answer: ServerAnswer) -> None:
    need_route(answer, "resuming")
    need_support(answer, "resuming")
    if answer.media_type == "application/json" and answer.status == 200:
        raise NotOffered("resuming: the response comes as JSON")
    if answer.status != 200:
        raise Broken(f"resuming: status {answer.status}")


def _joined(before: ServerAnswer, after: ServerAnswer) -> bytes:
    """Return the bytes of the whole frames before the disconnect, and those of the frames after it."""
    head, end, _ = before.body.rpartition(b"\n\n")
    return head + end + after.body


_PATH = "/responses/compact"
_HISTORY = [
    {"type": "message", "role": "user", "content": "We agreed to launch on Tuesday."},
    {"type": "message", "role": "assistant", "content": "Understood: the launch is on Tuesday."},
]
_FIELDS = ("input_tokens", "output_tokens", "total_tokens")


def _window(answer: ServerAnswer, target: ServerUnderTest) -> dict[str, Any]:
    """Return the compacted window, which must match the schema CompactResource."""
    need_route(answer, "compaction")
    need_support(answer, "compaction")
    expect(answer.status == 200, f"status {answer.status}")
    window = answer.json if isinstance(answer.json, dict) else {}
    expect(window.get("object") == "response.compaction", f"object is {window.get('object')!r}")
    expect(isinstance(window.get("id"), str), "there is no id")
    expect(isinstance(window.get("created_at"), int), "created_at is not an integer")
    usage = window.get("usage") or {}
    expect(all(isinstance(usage.get(name), int) for name in _FIELDS), "usage does not count tokens")
    output = window.get("output")
    for index, item in enumerate(output if isinstance(output, list) else []):
        faults = item_faults(item, target.wire)
        expect(not faults, f"output[{index}] leaves the schema: {'; '.join(map(str, faults[:3]))}")
    expect(items(window, "compaction"), "the output has no compaction item")
    return window


@scenario("Compaction", "full")
def compaction_window(target: ServerUnderTest) -> Play:
    """A conversation is compacted into a window with a compaction item."""
    _window((yield HttpRequest(path=_PATH, body={"model": target.model, "input": _HISTORY})), target)


@scenario("schema CompactResponseMethodPublicBody", "full")
def compaction_without_model(target: ServerUnderTest) -> Play:
    """Compaction without a model is refused."""
    answer = yield HttpRequest(path=_PATH, body={"input": _HISTORY})
    need_route(answer, "compaction")
    expect_refusal(answer, 400, 422)


@scenario("Compaction", "full")
def compaction_new_chain(target: ServerUnderTest) -> Play:
    """The window and a new message are valid input of a new response."""
    window = _window((yield HttpRequest(path=_PATH, body={"model": target.model, "input": _HISTORY})), target)
    question = {"type": "message", "role": "user", "content": "When is the launch?"}
    answer = yield target.create(input=[*window["output"], question], store=False)
    text = text_of(expect_whole(answer, target))
    expect("tuesday" in text.lower(), f"what was agreed is not known in the new chain: {text!r:.120}")


_NAME = "My name is Alice."


@scenario("Items")
def turns_output_is_input(target: ServerUnderTest) -> Play:
    """A response's output items are valid input of the next request, unchanged."""
    first = {"type": "message", "role": "user", "content": _NAME}
    response = expect_whole((yield target.create(input=[first], store=False)), target)
    question = {"type": "message", "role": "user", "content": "What is my name?"}
    answer = yield target.create(input=[first, *response["output"], question], store=False)
    text = text_of(expect_whole(answer, target))
    expect("alice" in text.lower(), "the earlier turn is not known in the second")


@scenario("previous_response_id", "full")
def turns_previous_response(target: ServerUnderTest) -> Play:
    """previous_response_id continues a stored response, without its instructions."""
    first = expect_whole((yield target.create(input=_NAME, instructions="Be brief.")), target)
    follow = yield target.create(input="What is my name?", previous_response_id=first["id"], stream=True)
    need_support(follow, "previous_response_id")
    if follow.status == 404:
        raise NotOffered("the server stores no responses")
    response = expect_stream(follow, target)
    expect(response.get("previous_response_id") == first["id"], "previous_response_id is not echoed")
    expect(response.get("instructions") is None, "the earlier turn's instructions came back")
    expect("alice" in text_of(response).lower(), "the earlier turn is not known in the second")


@scenario("previous_response_id", "full")
def turns_unknown_previous_response(target: ServerUnderTest) -> Play:
    """An unknown previous_response_id is refused."""
    answer = yield target.create(previous_response_id="resp_00000000conformance")
    error = expect_refusal(answer, 400, 404)
    expect(error.get("message"), "the refusal says nothing")


@scenario("previous_response_id", "full")
def turns_not_stored(target: ServerUnderTest) -> Play:
    """A response with `store` false can't be continued by its id."""
    first = expect_whole((yield target.create(store=False)), target)
    expect_refusal((yield target.create(previous_response_id=first["id"])), 400, 404)
