"""The common frame of Codex, Copilot and VS Code is decoded strictly, all others leniently: the events are
those that the lenient reader alone gives. Chat Completions and Responses have tests of their own."""

from contextlib import nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.dialects import codex, copilot, vscode
from openresponses_bridge.protocol.codec import encode
from tests.support.chat import new_machine

TEXT = st.sampled_from(["", "Hi", " ", "é", "\ud83d", "\ude42"])
ID = st.sampled_from(["m", "n", ""])
RESPONSE = "response.output_text"
ODD = st.sampled_from([None, 7, [], {}, "x"])


def app_server(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": "t", "turnId": "u", **params}}


CODEX = st.one_of(
    st.builds(lambda text, id: app_server("item/agentMessage/delta", itemId=id, delta=text), TEXT, ID),
    st.builds(lambda odd: app_server("item/agentMessage/delta", itemId="m", delta=odd), ODD),
    st.builds(lambda odd: app_server("item/agentMessage/delta", itemId="m", delta="a", turnId=odd), ODD),
    st.builds(lambda text: app_server("item/reasoning/textDelta", itemId="r", delta=text), TEXT),
    st.builds(
        lambda id, text: app_server("item/completed", item={"type": "agentMessage", "id": id, "text": text}),
        ID,
        TEXT,
    ),
    st.builds(
        lambda text, id: {
            "method": "codex/event/agent_message_content_delta",
            "params": {"msg": {"type": "agent_message_content_delta", "item_id": id, "delta": text}},
        },
        TEXT,
        ID,
    ),
    st.builds(
        lambda text, id: {"type": "response.output_text.delta", "item_id": id, "delta": text}, TEXT, ID
    ),
    st.just(app_server("turn/started", turn={"id": "u"})),
    st.just(
        app_server("turn/completed", turn={"id": "u", "status": "completed", "items": [], "error": None})
    ),
)
COPILOT = st.one_of(
    st.builds(lambda text, at: {"text": text, "index": at, "delta": {"text": text}}, TEXT, st.integers(0, 1)),
    st.builds(lambda text, odd: {"text": odd, "index": 0, "delta": {"text": text}}, TEXT, ODD),
    st.builds(lambda odd: {"text": "", "index": 0, "delta": {"text": odd}}, ODD),
    st.builds(lambda text: {"text": text, "index": 0, "delta": {"text": text, "thinking": "hm"}}, TEXT),
    st.builds(lambda text: {"text": text}, TEXT),
)
VSCODE = st.one_of(
    st.builds(lambda text: {"type": "LanguageModelTextPart", "value": text}, TEXT),
    st.builds(lambda odd: {"type": "LanguageModelTextPart", "value": odd}, ODD),
    st.builds(lambda odd: {"type": "LanguageModelTextPart", "value": "a", "error": odd}, ODD),
    st.builds(lambda text: {"type": "LanguageModelThinkingPart", "value": text, "id": "r"}, TEXT),
    st.just({"error": {"message": "no"}}),
)


class Strict(NamedTuple):
    """A dialect's frames, and what turns its strict decoding off."""

    inbound: Any
    frames: st.SearchStrategy[Any]
    off: tuple[Any, str, Any]


DIALECTS = {
    "codex": Strict(codex.Inbound, CODEX, (codex.inbound, "read_delta", lambda *given: None)),
    "copilot": Strict(copilot.Inbound, COPILOT, (copilot.inbound, "plain_text", lambda *given: None)),
    "vscode": Strict(vscode.Inbound, VSCODE, (vscode.inbound, "_TEXT_PART", b"none")),
}


def sent(strict: Strict, frames: list[bytes], off: bool) -> tuple[list[list[bytes]], list[str]]:
    machine = new_machine()
    with patch.object(*strict.off) if off else nullcontext():
        inbound = strict.inbound(machine)
        fed = [*(inbound.feed(frame) for frame in frames), inbound.close()]
    return [[encode(event) for event in events] for events in fed], [
        str(case) for case in machine.diagnostics
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_any_stream_leaves_as_when_all_is_read_leniently(dialect: str, data: st.DataObject) -> None:
    strict = DIALECTS[dialect]
    values = data.draw(st.lists(strict.frames, max_size=8))
    frames = [encode(value) for value in values]
    assert sent(strict, frames, off=False) == sent(strict, frames, off=True)
