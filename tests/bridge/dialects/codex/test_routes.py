"""The table of three generations' notifications: each row has a handler, and nothing else has one."""

from typing import Any

import pytest

from openresponses_bridge.dialects.codex import DIALECT, Generation, Inbound
from openresponses_bridge.dialects.codex.app_server import AppServer
from openresponses_bridge.dialects.codex.legacy import Legacy
from openresponses_bridge.dialects.codex.proxy import ProxyReader
from openresponses_bridge.dialects.codex.routes import ROUTES, Action
from openresponses_bridge.dialects.codex.turn import TurnEmitter
from openresponses_bridge.dialects.codex.types import notification_of
from tests.support.checked_inbound import CheckedInbound, Frame
from tests.support.codex import ended, legacy, notify, proxied
from tests.support.machines import machine

READERS: dict[Generation, type[Any]] = {
    Generation.LEGACY: Legacy,
    Generation.APP_SERVER: AppServer,
    Generation.RESPONSE: ProxyReader,
}
ROWS = [(generation, name) for generation, rows in ROUTES.items() for name in rows]


def wrapped(generation: Generation, name: str, **params: Any) -> dict[str, Any]:
    if generation is Generation.LEGACY:
        return {"method": f"codex/event/{name}", "params": {"msg": {"type": name, **params}}}
    if generation is Generation.RESPONSE:
        return {"type": name, **params}
    return {"method": name, "params": params}


def rows(generation: Generation, action: Action) -> set[str]:
    return {name for name, route in ROUTES[generation].items() if route.action is action}


@pytest.mark.parametrize("generation", READERS, ids=lambda each: each.name)
def test_what_is_read_has_a_handler_and_nothing_else_has(generation: Generation) -> None:
    reader = READERS[generation](TurnEmitter(machine()))
    assert set(reader.handlers) == rows(generation, Action.READ)


@pytest.mark.parametrize(("generation", "name"), ROWS)
def test_every_row_is_reached_and_nothing_in_it_is_unknown(generation: Generation, name: str) -> None:
    frame = wrapped(generation, name)
    notification = notification_of(frame)
    assert notification is not None
    assert (notification.generation, notification.name) == (generation, name)
    stream = CheckedInbound(Inbound, [frame])
    assert not [note for note in stream.notes("ignored") if "unknown" in note]
    route = ROUTES[generation][name]
    if route.action is Action.SHOWN:
        assert len(stream.extensions(route.kind)) == 1
    if route.action is Action.IGNORED:
        assert len(stream.events) == len(CheckedInbound(Inbound).events)


@pytest.mark.parametrize(("generation", "name"), [row for row in ROWS if row[0] is Generation.APP_SERVER])
def test_requests_are_asked_or_said_to_be_unanswered(generation: Generation, name: str) -> None:
    route = ROUTES[generation][name]
    if route.action not in (Action.ASKED, Action.UNANSWERED):
        return
    frame = wrapped(generation, name) | {"id": 7}
    stream = CheckedInbound(Inbound, [frame])
    approvals = stream.extensions("codex:approval_request")
    assert [each["request_id"] for each in approvals] == ([7] if route.action is Action.ASKED else [])
    assert len(stream.notes("warning")) == (route.action is Action.UNANSWERED)
    del frame["id"]
    assert CheckedInbound(Inbound, [frame]).notes("ignored") == [f"{name}: a request without an id"]


@pytest.mark.parametrize(
    "frames",
    [
        [notify("item/novel", n=n) for n in range(50)] + [ended()],
        [legacy("novel", n=n) for n in range(50)] + [legacy("task_complete")],
        [proxied("novel", n=n) for n in range(50)] + [proxied("completed", response={})],
    ],
)
def test_an_unknown_name_is_noted_once_and_counted(frames: list[Frame]) -> None:
    stream = CheckedInbound(Inbound, frames)
    (case,) = stream.inbound.diagnostics.of("ignored")
    assert (case.what, case.times, stream.status) == ("unknown notification", 50, "completed")


def test_an_unknown_request_is_noted_as_unanswered() -> None:
    stream = CheckedInbound(Inbound, [{"method": "item/novel/ask", "id": 1, "params": {}}, ended()])
    unanswered = "item/novel/ask: a request of the upstream that is not answered"
    assert stream.notes("warning") == [unanswered, "output: completed without any"]


def test_names_that_an_upstream_chose_are_short_and_printable_in_notes() -> None:
    many = [proxied("x" * 100_000 + str(n)) for n in range(3)] + [
        proxied("a\r\nx-injected: 1"),
        proxied("b\0"),
    ]
    stream = CheckedInbound(Inbound, [*many, proxied("completed", response={})])
    notes = {(case.where, case.times) for case in stream.inbound.diagnostics.of("ignored")}
    assert notes == {("response." + "x" * 55, 3), ("a name that can't be printed", 2)}


@pytest.mark.parametrize(
    "first",
    [
        {"method": "turn/started", "params": {}},
        {"dir": "in", "msg": {"method": "turn/started", "params": {}}},
        legacy("task_started"),
        {"id": "0", "msg": {"type": "agent_message_delta", "delta": "Hi"}},
        {"type": "agent_message_delta", "delta": "Hi"},
        {"type": "agentMessageDelta", "delta": "Hi"},
        {"type": "task_started"},
        proxied("output_text.delta", delta="Hi"),
        proxied("output_item.added", outputItem={"type": "function_call"}),
        proxied("created", response={}),
        proxied("created"),
        proxied("completed", response={"status": "completed", "output": []}),
    ],
)
def test_a_capture_is_recognised_by_any_generations_first_frame(first: dict[str, Any]) -> None:
    assert DIALECT.capture.recognises(first)


@pytest.mark.parametrize(
    "first",
    [
        {"type": "response.created", "sequence_number": 0, "response": {}},
        {"type": "response.created", "response": {"id": "resp_1", "object": "response"}},
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": "Hi"},
        {"type": "message_start", "message": {}},
        {"type": "error", "error": {"message": "m"}},
        {"type": "LanguageModelTextPart", "value": "Hi"},
        {"type": "novelty"},
        {"type": "response.create"},
        {"type": 3},
        {"msg": "Hi"},
        {},
    ],
)
def test_what_other_dialects_begin_with_is_not_codex(first: dict[str, Any]) -> None:
    assert not DIALECT.capture.recognises(first)
