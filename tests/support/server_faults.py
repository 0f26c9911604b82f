"""Faults that a server under test may have, each with the scenarios that have to fail because of it; and
legal variants of a server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from openresponses_bridge.conformance.scenario import HttpRequest, ServerAnswer, Step, WebSocketMessage
from tests.support.rewritten_answers import (
    DONE,
    JSON,
    SSE,
    Condition,
    Edit,
    Exchange,
    Object,
    Rewrite,
    always,
    at,
    body,
    both,
    data,
    earlier,
    events,
    failed_turn,
    mentions,
    of_type,
    path_of,
    put,
    refused,
    served,
    served_stream,
    served_whole,
    streamed,
    when,
    whole,
)

_IDS = re.compile(rb"resp_[0-9a-f]{32}")
EVERY = "every scenario whose answers are changed"


class Fault(NamedTuple):
    """A fault of a server."""

    name: str
    rewrite: Rewrite
    """Changes a correct answer into one with this fault."""
    fails: str = EVERY
    """The ids of the scenarios that have to fail, or `EVERY`."""
    but: str = ""
    """With `EVERY`, the ids of the scenarios that pass nevertheless."""


def set_to(**fields: Any) -> Edit:
    return lambda found: found.update(fields)


def without(name: str) -> Edit:
    return lambda found: found.pop(name, None)


def each(name: str, edit: Edit, kind: str | None = None) -> Edit:
    """Edit the objects in this list; with a type, only those of that type."""

    def change(found: Object) -> None:
        for member in found.get(name) or ():
            if kind is None or member.get("type") == kind:
                edit(member)

    return change


def within(name: str, edit: Edit) -> Edit:
    """Edit the object in this field, if there is one."""

    def change(found: Object) -> None:
        if found.get(name):
            edit(found[name])

    return change


def texts(change: Callable[[str], str]) -> Edit:
    """Change the texts of the output's messages."""
    part: Edit = lambda found: found.update(text=change(found["text"]))  # noqa: E731
    return each("output", each("content", part), "message")


def if_status(status: str, edit: Edit) -> Edit:
    return lambda found: edit(found) if found.get("status") == status else None


def calls(change: Callable[[list[Object]], list[Object]]) -> Edit:
    """Change the calls in the output."""

    def edit(found: Object) -> None:
        made = [item for item in found["output"] if item["type"] == "function_call"]
        if made:
            found["output"] = [item for item in found["output"] if item not in made] + change(made)

    return edit


def one_call_more(found: Object) -> None:
    call = {"id": "fc_1", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
    found["output"].append({"type": "function_call", "status": "completed", **call})


def last(edit: Edit) -> Callable[[list[Object]], None]:
    """Edit the response of the last event."""
    return lambda found: within("response", edit)(found[-1]) if found else None


def every(edit: Edit) -> Callable[[list[Object]], Any]:
    """Edit the response of every event that has one."""
    return lambda found: [within("response", edit)(event) for event in found]


def drop(kind: str) -> Callable[[list[Object]], None]:
    """Remove the events of this type; the numbers stay consecutive."""

    def edit(found: list[Object]) -> None:
        left = [event for event in found if event["type"] != kind]
        if len(left) < len(found):
            for number, event in enumerate(left, found[0]["sequence_number"]):
                event["sequence_number"] = number
            found[:] = left

    return edit


def first(kind: str, edit: Edit) -> Callable[[list[Object]], Any]:
    """Edit the first event of this type."""
    return lambda found: [edit(event) for event in list(of_type(kind, found))[:1]]


def swapped(found: list[Object]) -> None:
    found[0], found[1] = found[1], found[0]


def repeated(found: list[Object]) -> None:
    for event in list(of_type("response.output_item.done", found))[:1]:
        found.insert(found.index(event), event)


def one_lost(found: list[Object]) -> None:
    del found[4:5]


def numbered(by: int) -> Callable[[list[Object]], None]:
    def edit(found: list[Object]) -> None:
        for event in found:
            if "sequence_number" in event:
                event["sequence_number"] += by

    return edit


def cut_short(found: list[Object]) -> None:
    if found[-1]["type"] == "response.completed":
        del found[-1]


TEXT = "response.output_text.delta"
ARGUMENTS = "response.function_call_arguments"


def error_of(status: int, message: str = "No.", code: str | None = None) -> ServerAnswer:
    error = {"type": "error", "code": code, "message": message, "param": "input"}
    return ServerAnswer(status=status, headers=JSON, body=json.dumps({"error": error}).encode())


def error_turn(code: str) -> ServerAnswer:
    error = {"type": "error", "code": code, "message": "No.", "param": None}
    envelope = {"type": "error", "status": 400, "error": error}
    return ServerAnswer(status=101, messages=[json.dumps(envelope).encode()])


def with_media_type(media_type: str) -> Rewrite:
    return put(headers={"content-type": media_type})


def earlier_answer(condition: Callable[[Step, ServerAnswer], object]) -> Rewrite:
    """Answer with the latest earlier answer that fulfils this condition."""

    def rewrite(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
        return next((known for made, known in reversed(before) if condition(made, known)), answer)

    return rewrite


def id_in(step: Step) -> str:
    return step.path.partition("?")[0].split("/")[2] if isinstance(step, HttpRequest) else ""


def made(store: bool | None = None) -> Rewrite:
    """Answer with the earlier answer that made the response for which the step asks; with `store`, only if
    that response was stored (True) or not (False)."""

    def rewrite(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
        for asking, known in before:
            if path_of(asking) == "POST /responses" and known.response.get("id") == id_in(step):
                return known if store is None or known.response["store"] is store else answer
        return answer

    return rewrite


def not_found(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
    return error_of(404, f"No response {id_in(step)}.")


def as_whole(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
    """Answer with the response of a stream, as JSON."""
    return ServerAnswer(status=200, headers=JSON, body=json.dumps(answer.response).encode())


def from_one_before(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
    """Begin with the event before the first one, which the client has seen already."""
    number = answer.events[0]["sequence_number"] - 1
    seen = [event for _, known in before for event in known.events if event["sequence_number"] == number]
    frame = f"event: {seen[0]['type']}\ndata: {json.dumps(seen[0])}\n\n"
    return replace(answer, body=frame.encode() + answer.body)


def one_id(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
    """Give all responses the same id, wherever an id appears."""
    return data(lambda text: _IDS.sub(b"resp_1", text))(step, answer, before)


def without_last_message(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
    return replace(answer, messages=answer.messages[:-1])


def marked_before(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
    """Begin the next turn with the [DONE] that belongs to the end of the previous one."""
    return replace(answer, messages=[b"[DONE]", *answer.messages])


def ask_with(name: str) -> Condition:
    return mentions(f'"{name}": ')


def spoken(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    return isinstance(step, WebSocketMessage) and not failed_turn(step, answer, before)


def again(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    """Return whether a turn is not the first one."""
    return bool(answer.messages) and any(isinstance(each, WebSocketMessage) for each, _ in before)


COMPACT = at("POST /responses/compact")
STORED = at("GET /responses/ID")
RESUMED = mentions("stream=true")
INPUT_ITEMS = at("GET /responses/ID/input_items")
CANCEL = at("POST /responses/ID/cancel")
LIST = "stored.input-items stored.input-items-order"
CALLED = "tools.call tools.forced tools.result"
LEFT = "cancel.leaving"  # it doesn't look at the stream that it leaves
BEGUN = "stored.background cancel.background"  # they look at little of a response that has only begun
WINDOWS = "compaction.window compaction.new-chain"
SAYING = (
    "transport.whole schema.json-output tools.none tools.result turns.output-is-input stored.retrieve "
    "compaction.new-chain"
)
CUT = "order.incomplete order.incomplete-whole"

FAULTS = [
    # how answers travel
    Fault(
        "a whole answer is not typed as JSON", when(served_whole, with_media_type("text/plain")), but=BEGUN
    ),
    Fault("a stream is not typed as one", when(served_stream, with_media_type("text/plain")), but=LEFT),
    Fault("a stream is answered whole", when(served_stream, as_whole), but=LEFT),
    Fault("no [DONE]", when(served_stream, data(lambda text: text.replace(DONE, b"")))),
    Fault("[DONE] comes early", when(served_stream, data(lambda text: DONE + text)), but=LEFT),
    Fault(
        "lines end with CR LF",
        when(served_stream, data(lambda text: text.replace(b"\n", b"\r\n"))),
        "transport.line-ends resume.from-where-it-broke",
    ),
    Fault(
        "frames have no names",
        when(served_stream, data(lambda text: text.replace(b"event: ", b": "))),
        but=LEFT,
    ),
    Fault(
        "a frame has another name",
        when(served_stream, data(lambda text: text.replace(b"event: response.in", b"event: in"))),
        but=LEFT,
    ),
    Fault(
        "an event is not JSON",
        when(served_stream, data(lambda text: text.replace(b'{"type":', b'{"type"', 1))),
        but=LEFT,
    ),
    Fault("models have no ids", when(at("GET /models"), body(each("data", without("id"))))),
    Fault("models come in no list", when(at("GET /models"), body(set_to(object="models")))),
    Fault("an empty object is answered", when(served_whole, put(body=b"{}"))),
    Fault("everything is answered with 500", when(served, put(status=500)), but="resume.from-where-it-broke"),
    # what responses hold
    Fault("usage is missing", whole(without("usage")), but=BEGUN),
    Fault("usage is not a sum", whole(within("usage", set_to(total_tokens=1)))),
    Fault("usage is not a sum in streams", streamed(last(within("usage", set_to(total_tokens=1))))),
    Fault(
        "created_at is a float",
        whole(lambda found: found.update(created_at=found["created_at"] + 0.5)),
        but=BEGUN,
    ),
    Fault("completed before it was created", whole(if_status("completed", set_to(completed_at=1)))),
    Fault("the status is not published", whole(set_to(status="done")), but="stored.background"),
    Fault("items have no ids", whole(each("output", without("id")))),
    Fault("items are of an unknown type", whole(each("output", set_to(type="note")))),
    Fault("two items have one id", whole(lambda found: found.update(output=found["output"] * 2))),
    Fault(
        "every response has one id",
        when(lambda step, *_: isinstance(step, HttpRequest), one_id),
        "schema.ids",
    ),
    Fault("instructions are not echoed", whole(set_to(instructions=None)), "schema.echo"),
    Fault("metadata is not echoed", whole(set_to(metadata={})), "schema.echo"),
    Fault("max_output_tokens is not echoed", whole(set_to(max_output_tokens=None)), "schema.echo"),
    Fault("store is not echoed", whole(set_to(store=True)), "schema.echo"),
    Fault(
        "the format is not echoed",
        whole(within("text", set_to(format={"type": "text"}))),
        "schema.json-output",
    ),
    Fault(
        "the format is not kept", when(mentions("json_schema"), whole(texts(lambda text: f"It is {text}")))
    ),
    Fault("messages are empty", whole(each("output", set_to(content=[]), "message")), SAYING),
    Fault("the output is empty", whole(set_to(output=[])), f"{SAYING} tools.call tools.forced"),
    Fault("a form of input is refused", when(mentions('"developer"'), always(error_of(400)))),
    Fault("images are answered with 500", when(mentions("input_image"), put(status=500))),
    # the order of events
    Fault("in_progress comes first", streamed(swapped), but=LEFT),
    Fault("no response.created", streamed(drop("response.created")), but=LEFT),
    Fault("no response.in_progress", streamed(drop("response.in_progress")), but=LEFT),
    Fault("no output_item.added", streamed(drop("response.output_item.added")), but=LEFT),
    Fault("no output_item.done", streamed(drop("response.output_item.done"))),
    Fault("no content_part.done", streamed(drop("response.content_part.done"))),
    Fault("no terminal event", streamed(cut_short)),
    Fault("an event comes twice", streamed(repeated)),
    Fault("an event is lost", streamed(one_lost), but=LEFT),
    Fault("numbers begin at 1", streamed(numbered(1)), but=LEFT),
    Fault("a delta differs from the text", streamed(first(TEXT, set_to(delta="?"))), but=LEFT),
    Fault("a delta is of another item", streamed(first(TEXT, set_to(item_id="msg_other"))), but=LEFT),
    Fault("a delta is at another place", streamed(first(TEXT, set_to(output_index=3))), but=LEFT),
    Fault("the last text differs from the deltas", streamed(last(texts(lambda text: f"{text}!")))),
    Fault("the last response has another id", streamed(last(set_to(id="resp_other")))),
    Fault("the last response is in progress", streamed(last(set_to(status="in_progress")))),
    Fault(
        "what was cut is completed", streamed(last(if_status("incomplete", set_to(status="completed")))), CUT
    ),
    Fault(
        "what was cut has no reason",
        streamed(last(if_status("incomplete", set_to(incomplete_details=None)))),
        CUT,
    ),
    Fault(
        "what was cut has another reason",
        streamed(last(if_status("incomplete", set_to(incomplete_details={"reason": "content_filter"})))),
        "order.incomplete",
    ),
    Fault(
        "cut and whole, it is completed",
        whole(if_status("incomplete", set_to(status="completed", incomplete_details=None))),
    ),
    Fault(
        "cut and whole, its item is completed",
        whole(if_status("incomplete", each("output", set_to(status="completed")))),
    ),
    # tools
    Fault(
        "another function is called",
        whole(calls(lambda made: [{**call, "name": "get_rain"} for call in made])),
        f"{CALLED} tools.allowed",
    ),
    Fault("no function is called", whole(calls(lambda made: [])), CALLED),
    Fault(
        "arguments are not JSON",
        whole(calls(lambda made: [{**call, "arguments": "{a"} for call in made])),
        CALLED,
    ),
    Fault(
        "calls have no call_id", whole(calls(lambda made: [{**call, "call_id": ""} for call in made])), CALLED
    ),
    Fault(
        "a call comes twice",
        whole(calls(lambda made: [*made, {**made[0], "id": "fc_2"}])),
        f"{CALLED} tools.allowed tools.one-at-a-time",
    ),
    Fault("tools are not echoed", whole(set_to(tools=[])), "tools.call tools.allowed"),
    Fault(
        "tools lose their descriptions",
        whole(each("tools", set_to(description=None))),
        "tools.call tools.allowed",
    ),
    Fault(
        "tools lose their parameters",
        whole(each("tools", set_to(parameters=None))),
        "tools.call tools.allowed",
    ),
    Fault("tool_choice is not echoed", whole(set_to(tool_choice="auto")), "tools.call"),
    Fault(
        "parallel_tool_calls is not echoed", whole(set_to(parallel_tool_calls=True)), "tools.one-at-a-time"
    ),
    Fault("streamed arguments differ", streamed(first(f"{ARGUMENTS}.done", set_to(arguments="{}")))),
    Fault("arguments have no deltas", streamed(drop(f"{ARGUMENTS}.delta"))),
    Fault("a tool's answer is not looked at", when(ask_with("output"), whole(texts(lambda _: "Well.")))),
    Fault(
        "a tool is called though none may be", when(mentions('"tool_choice": "none"'), whole(one_call_more))
    ),
    Fault("a tool is called that is not allowed", when(mentions("allowed_tools"), whole(one_call_more))),
    # turns
    Fault(
        "history in the input is lost",
        when(mentions('"role": "assistant", "content": [{'), whole(texts(lambda _: "Well."))),
    ),
    Fault(
        "history by id is lost",
        when(ask_with("previous_response_id"), data(lambda text: text.replace(b"Alice", b"Nobod"))),
    ),
    Fault("previous_response_id is not echoed", streamed(every(set_to(previous_response_id=None)))),
    Fault(
        "instructions are carried over",
        when(ask_with("previous_response_id"), events(every(set_to(instructions="Be brief.")))),
        "turns.previous-response",
    ),
    Fault(
        "an unknown previous response is ignored",
        when(both(refused, ask_with("previous_response_id")), put(status=200)),
    ),
    # errors
    Fault(
        "errors are HTML",
        when(refused, put(headers={"content-type": "text/html"}, body=b"<h1>No</h1>")),
        but="cancel.unknown",
    ),
    Fault("errors are texts", when(refused, put(body=b'{"error":"No."}')), but="cancel.unknown"),
    Fault("errors have no message", when(refused, body(within("error", without("message"))))),
    Fault("errors have no type", when(refused, body(within("error", without("type"))))),
    Fault("errors have a number as code", when(refused, body(within("error", set_to(code=400))))),
    Fault(
        "errors name no field",
        when(refused, body(within("error", set_to(param=None)))),
        "errors.wrong-type errors.out-of-range",
    ),
    Fault("all that is wrong is 500", when(refused, put(status=500))),
    Fault(
        "a wrong request is answered with a stream",
        when(both(refused, ask_with("stream")), put(status=200, headers=SSE, body=DONE)),
    ),
    Fault("an unknown model is answered with 500", when(mentions("no-such-model"), put(status=500))),
    Fault(
        "an output without its call is taken",
        when(both(refused, mentions("call_conformance_none")), put(status=200)),
    ),
    Fault(
        "malformed JSON is taken",
        when(
            both(refused, lambda step, answer, before: getattr(step, "body", None) == b'{"model": '),
            put(status=200),
        ),
    ),
    Fault(
        "a refusal leaves the server ill",
        when(lambda step, answer, before: any(known.status == 400 for _, known in before), put(status=503)),
    ),
    # what is stored
    Fault(
        "another text is stored",
        when(STORED, body(texts(lambda text: f"{text}!"))),
        "stored.retrieve stored.as-streamed",
    ),
    Fault(
        "another text is stored of a stream",
        when(both(STORED, earlier('"stream": true')), body(texts(lambda text: f"{text}!"))),
    ),
    Fault(
        "metadata is not stored",
        when(STORED, body(set_to(metadata={"a": "b"}))),
        "stored.retrieve stored.as-streamed",
    ),
    Fault(
        "nothing that is stored is found",
        when(STORED, not_found),
        but="stored.delete resume.from-where-it-broke resume.finished",
    ),
    Fault("what is not stored is found", when(STORED, made(store=False))),
    Fault("what is unknown is found", when(both(refused, mentions("resp_00000000")), put(status=200))),
    Fault("what was deleted is found", when(both(STORED, earlier("DELETE")), made())),
    Fault(
        "what was deleted is found empty", when(both(STORED, earlier("DELETE")), put(status=200, body=b"{}"))
    ),
    Fault("a deletion is not confirmed", when(at("DELETE /responses/ID"), body(set_to(deleted=False)))),
    Fault("another response is deleted", when(at("DELETE /responses/ID"), body(set_to(id="resp_other")))),
    Fault("input items have no ids", when(INPUT_ITEMS, body(each("data", without("id"))))),
    Fault(
        "input items have one id",
        when(INPUT_ITEMS, body(each("data", set_to(id="item_1")))),
        "stored.input-items-order",
    ),
    Fault("input items have another text", when(INPUT_ITEMS, body(each("data", set_to(content=[]))))),
    Fault(
        "input items come the other way round",
        when(INPUT_ITEMS, body(lambda found: found.get("data", []).reverse())),
    ),
    Fault(
        "a page begins anew",
        when(mentions("after="), earlier_answer(lambda step, answer: path_of(step).endswith("items"))),
    ),
    Fault("a page is said to be the last", when(mentions("after="), body(set_to(has_more=False)))),
    Fault(
        "background responses never end",
        when(both(STORED, earlier('"background": true')), body(set_to(status="in_progress"))),
    ),
    Fault(
        "background responses fail",
        when(both(STORED, earlier('"background": true')), body(set_to(status="failed"))),
    ),
    Fault(
        "background responses are whole at once",
        when(ask_with("background"), body(set_to(status="completed"))),
        "cancel.background",
    ),
    # cancelling and resuming
    Fault(
        "what was cancelled is completed",
        when(both(STORED, earlier("/cancel")), body(set_to(status="completed"))),
    ),
    Fault("another response is cancelled", when(CANCEL, body(set_to(id="resp_other"))), "cancel.background"),
    Fault("cancelling fails", when(CANCEL, put(status=500))),
    Fault("what is unknown is cancelled", when(both(CANCEL, refused), put(status=200))),
    Fault(
        "a client that leaves breaks the server",
        when(
            lambda step, answer, before: (
                served(step, answer, before) and any(known.left for _, known in before)
            ),
            put(status=503),
        ),
    ),
    Fault("starting_after is one too early", when(mentions("starting_after="), from_one_before)),
    Fault("starting_after is one too late", when(mentions("starting_after="), events(one_lost))),
    Fault(
        "starting_after is not looked at",
        when(mentions("starting_after=3"), earlier_answer(lambda step, answer: True)),
    ),
    Fault(
        "a stream is not the same again",
        when(RESUMED, data(lambda text: text.replace(b'"delta":"', b'"delta":" '))),
    ),
    Fault("a stream has no [DONE] again", when(RESUMED, data(lambda text: text.replace(DONE, b"")))),
    Fault("resuming fails", when(RESUMED, put(status=500))),
    # WebSockets
    Fault("turns end with [DONE]", when(again, marked_before), but="websocket.eviction"),
    Fault("turns have no end", when(spoken, without_last_message)),
    Fault("numbers go on from turn to turn", when(both(again, spoken), events(numbered(9)))),
    Fault("every turn has one response id", when(spoken, one_id), "websocket.turns"),
    Fault("deltas of a turn are out of order", when(spoken, events(first(TEXT, set_to(sequence_number=99))))),
    Fault("the second turn fails", when(both(again, spoken), always(error_turn("server_error")))),
    Fault("a connection ends without a word", when(at("SAY"), put(messages=[]))),
    Fault(
        "a connection forgets its latest response",
        when(
            both(spoken, ask_with("previous_response_id")), always(error_turn("previous_response_not_found"))
        ),
    ),
    Fault(
        "a connection knows what another said",
        when(
            lambda step, answer, before: (
                failed_turn(step, answer, before) and getattr(step, "socket", 0) == 1
            ),
            earlier_answer(lambda step, answer: True),
        ),
    ),
    Fault(
        "a failed continuation is not forgotten",
        when(
            lambda step, answer, before: failed_turn(step, answer, before) and len(before) == 2,
            earlier_answer(lambda step, answer: answer.response),
        ),
    ),
    Fault(
        "an unknown response is continued",
        when(
            both(failed_turn, mentions("resp_00000000")),
            always(ServerAnswer(status=101, messages=[b'{"type":"response.completed"}'])),
        ),
    ),
    Fault("errors of turns have no status", when(failed_turn, events(lambda found: found[-1].pop("status")))),
    Fault(
        "errors of turns have no code",
        when(failed_turn, events(lambda found: found[-1]["error"].pop("code"))),
    ),
    Fault(
        "errors of turns have another code",
        when(failed_turn, events(lambda found: found[-1]["error"].update(code="no"))),
        but="websocket.bad-message",
    ),
    # compaction
    Fault("a window has no compaction", when(COMPACT, body(lambda found: found.get("output", [{}]).pop()))),
    Fault("a window is another object", when(COMPACT, body(set_to(object="response"))), WINDOWS),
    Fault("a window has no usage", when(COMPACT, body(set_to(usage=None))), WINDOWS),
    Fault("a window has no time", when(COMPACT, body(set_to(created_at="now"))), WINDOWS),
    Fault(
        "a compaction is empty",
        when(COMPACT, body(each("output", without("encrypted_content"), "compaction"))),
    ),
    Fault(
        "a window's messages have no status",
        when(COMPACT, body(each("output", without("status"), "message"))),
    ),
    Fault("a compaction without a model is taken", when(both(COMPACT, refused), put(status=200))),
    Fault(
        "a window stands for nothing", when(mentions("encrypted_content"), whole(texts(lambda _: "Well.")))
    ),
]


class Variant(NamedTuple):
    """A server that answers differently and correctly: no scenario fails."""

    name: str
    change: Rewrite
    skips: tuple[str, ...] = ()
    """The scenarios, or their areas, that are skipped."""


BARE = ServerAnswer(status=404, headers=JSON, body=b'{"detail":"Not Found"}')
NO_ROUTE = ServerAnswer(status=405, headers=JSON, body=b'{"detail":"Method Not Allowed"}')


def spaced(step: Step, answer: ServerAnswer, before: list[Exchange]) -> ServerAnswer:
    """Write the same JSON with line ends."""
    document = answer.json
    return (
        replace(answer, body=json.dumps(document, indent=2).encode())
        if isinstance(document, dict)
        else answer
    )


def is_response(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    return answer.status == 200 and not answer.messages and answer.response.get("object") == "response"


def everywhere(edit: Edit) -> Rewrite:
    """Edit each response, both whole and in events."""
    in_body, in_events = when(is_response, body(edit)), when(served_stream, events(every(edit)))
    return lambda step, answer, before: in_events(step, in_body(step, answer, before), before)


def is_stored(step: Step, answer: ServerAnswer, before: list[Exchange]) -> bool:
    return "/responses/ID" in path_of(step)


CONTINUED = "turns.previous-response"
ABOUT_STORED = ("stored", "resume", "cancel.unknown", "cancel.background")
VARIANTS = [
    Variant("JSON is written with spaces", when(lambda step, answer, before: not answer.messages, spaced)),
    Variant("frames are kept alive", when(served_stream, data(lambda text: b": still here\n\n" + text))),
    Variant("types have parameters", when(served_whole, with_media_type("Application/JSON; charset=utf-8"))),
    Variant("a wrong type is a 422", when(both(refused, mentions('"input": 5')), put(status=422))),
    Variant("errors have no code", when(refused, body(within("error", set_to(code=None))))),
    Variant("responses have fields of their own", everywhere(set_to(cost=0.5))),
    Variant("usage is not counted", everywhere(set_to(usage=None))),
    Variant("there is no list of models", when(at("GET /models"), always(BARE)), ("transport.models",)),
    Variant("stored responses have no routes", when(is_stored, always(BARE)), ABOUT_STORED),
    Variant("stored responses have no methods", when(is_stored, always(NO_ROUTE)), ABOUT_STORED),
    Variant(
        "nothing is run in the background",
        when(ask_with("background"), always(error_of(400))),
        ("stored.background", "cancel.background"),
    ),
    Variant(
        "images are refused", when(mentions("input_image"), always(error_of(400))), ("schema.image-input",)
    ),
    Variant("tools are refused", when(ask_with("tools"), always(error_of(400))), ("tools",)),
    Variant(
        "formats are refused", when(mentions("json_schema"), always(error_of(400))), ("schema.json-output",)
    ),
    Variant(
        "there is no WebSocket",
        when(lambda step, *_: isinstance(step, WebSocketMessage), always(ServerAnswer(status=426))),
        ("websocket",),
    ),
    Variant("nothing is compacted", when(COMPACT, always(BARE)), ("compaction",)),
    Variant(
        "every model is served", when(mentions("no-such-model"), put(status=200)), ("errors.unknown-model",)
    ),
    Variant(
        "what was cancelled has a status of its own",
        when(both(STORED, earlier("/cancel")), body(if_status("incomplete", set_to(status="cancelled")))),
    ),
]
