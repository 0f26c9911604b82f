"""The table of mutants: a valid stream of each wire, spoiled in one way a row, and the rule that catches it.

Each goes through the command as server-sent events, held to its wire by name and by `auto`.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner, Result

from openresponses_bridge.conformance import RULES, StreamValidator
from openresponses_bridge.conformance.published import WireName
from openresponses_bridge.protocol.codec import decode_event
from openresponses_cli.commands.cli import main
from tests.support.scripts import CITATION, USAGE, Event, Script, renumber
from tests.support.shared import shared_files

PUBLISHED_DELTA, OPENAI_DELTA = "response.reasoning.delta", "response.reasoning_text.delta"
Edit = Callable[[list[Event]], list[Event]]
SEARCH = {"action": {"type": "search", "query": "q"}}
TOLD = {"code": "server_error", "message": "it broke"}
FAULT = {"type": "server_error", "param": None, **TOLD}


def published() -> list[Event]:
    script = Script(queued=True)
    script.reasoning(raw=["hm", "m."], summaries=[["One", "."], ["Two."]])
    script.message(("output_text", ["Hel", "lo"]), ("refusal", ["No", "."]), citations=[CITATION] * 2)
    script.calls(['{"a"', ":1}"], ["{", "}"]).extension()
    return script.whole({"type": "openai:web_search_call", **SEARCH}, "openai:search").finish()


def openai() -> list[Event]:
    script = Script(queued=True)
    for event in script.reasoning(raw=["hm", "m."], summaries=[["One", "."], ["Two."]]).events:
        event["type"] = event["type"].replace("response.reasoning.d", "response.reasoning_text.d")
    script.message(("output_text", ["Hel", "lo"]), ("refusal", ["No", "."]), citations=[CITATION] * 2)
    script.calls(['{"a"', ":1}"], ["{", "}"]).extension().custom_call("sel", "ect")
    return script.whole({"type": "web_search_call", **SEARCH}, "response.web_search_call.searching").finish()


STREAMS = {"openresponses": published, "openai": openai}


def at(events: list[Event], kind: str, nth: int) -> int:
    return [index for index, event in enumerate(events) if event["type"].removeprefix("response.") == kind][
        nth
    ]


def dropped(kind: str, nth: int = 0) -> Edit:
    def edit(events: list[Event]) -> list[Event]:
        del events[at(events, kind, nth)]
        return renumber(events)

    return edit


def twice(kind: str, nth: int = 0) -> Edit:
    def edit(events: list[Event]) -> list[Event]:
        index = at(events, kind, nth)
        return renumber([*events[: index + 1], *deepcopy(events[index:])])

    return edit


def swapped(kind: str, nth: int = 0) -> Edit:
    """With the event after it."""

    def edit(events: list[Event]) -> list[Event]:
        index = at(events, kind, nth)
        events[index], events[index + 1] = events[index + 1], events[index]
        return renumber(events)

    return edit


def put(kind: str, nth: int = 0, **changes: Any) -> Edit:
    """Fields set, a path written with `__`; KeyError takes one away."""

    def edit(events: list[Event]) -> list[Event]:
        for path, value in changes.items():
            holder: Any = events[at(events, kind, nth)]
            *parents, last = (int(key) if key.isdigit() else key for key in path.split("__"))
            for key in parents:
                holder = holder[key]
            if value is KeyError:
                del holder[last]
            else:
                holder[last] = value
        return events

    return edit


def end(**changes: Any) -> Edit:
    return put("completed", **{f"response__{path}": value for path, value in changes.items()})


def ended_as(kind: str, **changes: Any) -> Edit:
    def edit(events: list[Event]) -> list[Event]:
        events[-1]["type"] = f"response.{kind}"
        events[-1]["response"] |= {"status": kind, "completed_at": None, **changes}
        return events

    return edit


def reversed_output(events: list[Event]) -> list[Event]:
    events[-1]["response"]["output"].reverse()
    return events


def cut_within(events: list[Event]) -> list[Event]:
    """The first call is done as incomplete, and others follow."""
    for event in events:
        if event["type"] == "response.output_item.done" and event["output_index"] == 2:
            event["item"]["status"] = "incomplete"
    return events


# rule, what is wrong, edit
BOTH: list[tuple[str, str, Edit]] = [
    ("stream.first_created", "no created", dropped("created")),
    ("stream.in_progress_present", "no in_progress", dropped("in_progress")),
    ("stream.lifecycle_order", "created twice", twice("created")),
    ("stream.lifecycle_order", "in_progress twice", twice("in_progress")),
    ("stream.no_terminal", "no completed", dropped("completed")),
    ("stream.one_terminal", "completed twice", twice("completed")),
    ("stream.after_terminal", "a delta after the end", lambda events: renumber([*events, events[-2]])),
    ("seq.start_zero", "numbers from 1",
     lambda events: [{**e, "sequence_number": n} for n, e in enumerate(events, 1)]),
    ("seq.increment", "a number twice", put("output_text.delta", 1, sequence_number=3)),
    ("schema", "a number as text", put("output_text.delta", 1, sequence_number="21")),
    ("schema", "no item_id", put("output_text.delta", item_id=KeyError)),
    ("schema", "no delta", put("output_text.delta", delta=None)),
    ("schema", "no temperature", end(temperature=KeyError)),
    ("schema", "created_at as a float", put("created", response__created_at=1.5)),
    ("schema", "no annotations", put("content_part.done", 1, part__annotations=KeyError)),
    ("event.unknown_type", "response.foo", put("output_text.delta", 1, type="response.foo")),
    ("error.followed_by_failed", "an error before the end",
     lambda events: renumber([*events[:-1], {"type": "error", "error": FAULT}, events[-1]])),
    ("status.event_matches", "completed as in_progress", end(status="in_progress")),
    ("status.event_matches", "created as completed", put("created", response__status="completed")),
    ("response.same_id", "another response", end(id="resp_2")),
    ("response.same_facts", "created_at changes", end(created_at=1_700_000_001)),
    ("response.same_facts", "another predecessor", end(previous_response_id="resp_0")),
    ("response.completed_at", "completed, never", end(completed_at=None)),
    ("response.completed_at", "completed while queued", put("queued", response__completed_at=1_700_000_009)),
    ("response.completed_after_created", "completed before created", end(completed_at=1_600_000_000)),
    ("response.error_iff_failed", "an error in success", end(error=TOLD)),
    ("response.error_iff_failed", "a failure without one", ended_as("failed")),
    ("response.incomplete_details_iff", "incomplete for nothing", ended_as("incomplete")),
    ("response.incomplete_details_iff", "a reason in success", end(incomplete_details={"reason": "x"})),
    ("response.starts_empty", "output from the start",
     put("created", response__output=[{"type": "x:y", "id": "z"}])),
    ("usage.sum", "a total that is not the sum", end(usage=USAGE | {"total_tokens": 9})),
    ("usage.negative", "less than no tokens", end(usage=USAGE | {"output_tokens": -1, "total_tokens": 2})),
    ("usage.part_of_whole", "more cached than sent",
     end(usage=USAGE | {"input_tokens_details": {"cached_tokens": 9}})),
    ("terminal.output_equals_items", "an item lost",
     lambda events: end(output=events[-1]["response"]["output"][1:])(events)),
    ("terminal.output_equals_items", "another order", reversed_output),
    ("terminal.output_equals_items", "another text", end(output__1__content__0__text="Hullo")),
    ("item.added_first", "no item added", dropped("output_item.added", 1)),
    ("item.unclosed", "an item never done", dropped("output_item.done", 1)),
    ("item.closed_once", "an item done twice", twice("output_item.done")),
    ("item.after_closed", "a delta after its item", swapped("content_part.done", 2)),
    ("item.added_in_progress", "added as completed", put("output_item.added", 2, item__status="completed")),
    ("item.added_empty", "added with arguments", put("output_item.added", 2, item__arguments="{}")),
    ("item.closed_status", "done in progress", put("output_item.done", 0, item__status="in_progress")),
    ("item.index_dense", "an index left out", put("output_item.added", 4, output_index=9)),
    ("item.id_unique", "an id twice", put("output_item.added", 3, item__id="fc_2")),
    ("item.id_stable", "a delta of another id", put("output_text.delta", 1, item_id="msg_9")),
    ("item.type_stable", "another type in the end", put("output_item.done", 4, item__type="acme:see")),
    ("item.incomplete_response", "completed with a cut call", cut_within),
    ("item.present", "no item", put("output_item.done", 4, item=None)),
    ("message.role_assistant", "a message of the user", put("output_item.added", 1, item__role="user")),
    ("call.id_unique", "a call_id twice", put("output_item.added", 3, item__call_id="call_2")),
    ("call.identity_stable", "another name in the end", put("output_item.done", 2, item__name="see")),
    ("call.arguments_sum", "a piece of arguments lost", dropped("function_call_arguments.delta", 1)),
    ("call.arguments_done", "no arguments.done", dropped("function_call_arguments.done")),
    ("call.after_done", "arguments.done twice", twice("function_call_arguments.done")),
    ("call.done_matches", "other arguments in the item", put("output_item.done", 2, item__arguments="{}")),
    ("call.kind_of_item", "text for a call",
     put("function_call_arguments.delta", 0, item_id="msg_1", output_index=1)),
    ("part.backed", "no part added", dropped("content_part.added", 1)),
    ("part.added_empty", "a part with text", put("content_part.added", 1, part__text="Hel")),
    ("part.index_dense", "a part's index left out", put("content_part.added", 2, content_index=4)),
    ("part.done_before_closed", "no text.done", dropped("output_text.done")),
    ("part.after_done", "text after its done", swapped("refusal.delta", 1)),
    ("part.unclosed", "no part.done", dropped("content_part.done", 2)),
    ("part.kind_of_event", "a refusal as text", put("refusal.delta", type="response.output_text.delta")),
    ("part.kind_of_item", "a refusal in reasoning",
     put("content_part.added", part={"type": "refusal", "refusal": ""})),
    ("part.kind_stable", "done as another part",
     put("content_part.done", 1, part={"type": "refusal", "refusal": "Hello"})),
    ("delta.sum_text", "a piece of text lost", dropped("output_text.delta")),
    ("delta.sum_text", "a piece twice", twice("output_text.delta")),
    ("delta.sum_text", "a summary lost", dropped("reasoning_summary_text.delta")),
    ("delta.sum_part", "another text in the part", put("content_part.done", 1, part__text="Hullo")),
    ("delta.sum_item", "another text in the item",
     put("output_item.done", 1, item__content__0__text="Hullo")),
    ("annotation.index_dense", "a citation lost", dropped("output_text.annotation.added")),
    ("annotation.in_part", "another citation in the part",
     put("content_part.done", 1, part__annotations=[CITATION])),
]  # fmt: skip
ONE: dict[str, list[tuple[str, str, Edit]]] = {
    "openresponses": [
        ("event.unknown_type", "reasoning of the other wire",
         put("reasoning.delta", 1, type=OPENAI_DELTA)),
        ("schema", "a hosted item without its prefix",
         put("output_item.added", 4, item__type="web_search_call")),
        ("event.unknown_type", "progress of the other wire",
         put("openai:search", type="response.web_search_call.searching")),
        ("schema", "an effort that is not published",
         put("created", response__reasoning={"effort": "max", "summary": None})),
        ("item.has_status", "an item without status", put("output_item.done", 4, item__status=KeyError)),
        ("status.event_matches", "cancelled", ended_as("incomplete", status="cancelled")),
    ],
    "openai": [
        ("event.unknown_type", "reasoning of the other wire",
         put("reasoning_text.delta", 1, type=PUBLISHED_DELTA)),
        ("call.arguments_sum", "a piece of input lost", dropped("custom_tool_call_input.delta")),
        ("call.arguments_done", "no input.done", dropped("custom_tool_call_input.done")),
        ("item.added_empty", "added with input", put("output_item.added", 4, item__input="select")),
        ("item.added_first", "progress before its item", swapped("output_item.added", 5)),
    ],
}  # fmt: skip
MUTANTS = [
    pytest.param(wire, rule, edit, id=f"{wire}-{name}")
    for wire in STREAMS
    for rule, name, edit in [*BOTH, *ONE[wire]]
]


def validate(events: list[Event], wire: str, done: bool = True) -> Result:
    frames = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    marker = "data: [DONE]\n\n" if done else ""
    return CliRunner().invoke(main, ["validate", "--wire", wire], input=(frames + marker).encode())


def caught(result: Result) -> set[str]:
    assert result.exit_code == (1 if result.stdout else 0), result.stderr
    return {line.partition(":")[0] for line in result.stdout.splitlines()}


@pytest.mark.untraced
@pytest.mark.parametrize(("wire", "rule", "edit"), MUTANTS)
def test_every_mutant_is_caught(wire: str, rule: str, edit: Edit) -> None:
    mutant = edit(json.loads(json.dumps(STREAMS[wire]())))
    assert rule in caught(validate(mutant, wire))
    assert rule in caught(validate(mutant, "auto"))


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all fields and elements of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*above, key)
        yield from places(each, (*above, key))


def spoiled(stream: list[Event]) -> Iterator[list[Event]]:
    """The stream with one of its fields missing or of a wrong type, each value at every sixth field."""
    fields = [(nth, path) for nth, event in enumerate(stream) for path in places(event)]
    for count, (nth, (*parents, last)) in enumerate(fields):
        events = [*stream]
        events[nth] = json.loads(json.dumps(stream[nth]))
        holder: Any = events[nth]
        for key in parents:
            holder = holder[key]
        value = (KeyError, None, "zz", 7, [], {})[count % 6]
        if value is not KeyError:
            holder[last] = value
        elif isinstance(holder, dict):
            del holder[last]
        else:
            holder.pop(last)
        yield events


def judged(events: list[Any], wire: WireName) -> list[str]:
    validator = StreamValidator(wire)
    for event in events:
        validator.feed(event)
    validator.close()
    return [str(each) for each in validator.violations]


@pytest.mark.untraced
@pytest.mark.parametrize("wire", STREAMS)
def test_a_decoded_event_is_judged_as_its_json(wire: WireName) -> None:
    stream = json.loads(json.dumps(STREAMS[wire]()))
    table = [edit(deepcopy(stream)) for _, _, edit in [*BOTH, *ONE[wire]]]
    mutants = [*table, *spoiled(stream)]
    assert len(mutants) > 500
    decoded = cache(decode_event)  # mutants differ in few events
    for mutant in mutants:
        texts = [json.dumps(event) for event in mutant]
        assert judged([decoded(text) for text in texts], wire) == judged(texts, wire)


@pytest.mark.parametrize("wire", ["openresponses", "auto"])
def test_the_published_stream_without_done_is_caught(wire: str) -> None:
    assert caught(validate(published(), wire, done=False)) == {"stream.done_marker"}


@pytest.mark.parametrize("name", STREAMS)
def test_the_streams_themselves_are_clean(name: str) -> None:
    assert caught(validate(STREAMS[name](), name)) == set()
    assert caught(validate(STREAMS[name](), "auto")) == set()
    assert caught(validate(openai(), "auto", done=False)) == set()


def test_each_stream_is_refused_on_the_other_wire() -> None:
    assert "event.unknown_type" in caught(validate(published(), "openai"))
    assert {"event.unknown_type", "schema"} <= caught(validate(openai(), "openresponses"))


def test_the_table_has_a_row_for_every_rule_of_a_stream() -> None:
    elsewhere = {
        "event.json", "sse.event_name", "stream.after_done", "stream.done_marker", "item.incomplete_last",
        "terminal.unclosed_incomplete", "websocket.error_envelope",
    }  # fmt: skip
    rows = {rule for rule, *_ in [*BOTH, *(row for rows in ONE.values() for row in rows)]}
    assert rows <= set(RULES)
    assert set(RULES) - rows <= elsewhere
    assert len(MUTANTS) >= 52


FOLDERS = ("responses", "responses-inline", "openresponses", "chat", "chat-irespdelta", "anthropic", "codex")
RECORDINGS = [each for folder in FOLDERS for each in shared_files(folder, "*.txt", "*.sse", "*.jsonl")]


@pytest.mark.untraced
@pytest.mark.parametrize("recording", RECORDINGS)
@pytest.mark.parametrize(("sink", "wire"), [("responses", "openresponses"), ("openai", "openai")])
def test_every_recording_replays_to_a_clean_stream(recording: Any, sink: str, wire: str) -> None:
    """None has a fault of its own that replaying would have to leave in."""
    replayed = CliRunner().invoke(main, ["replay", str(recording), "--from", "auto", "--to", sink])
    assert replayed.exit_code == 0
    for chosen in (wire, "auto"):
        result = CliRunner().invoke(main, ["validate", "--wire", chosen], input=replayed.stdout_bytes)
        assert (result.exit_code, result.stdout) == (0, "")
