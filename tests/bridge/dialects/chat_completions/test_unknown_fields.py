"""Fields that no SDK knows yet, from a server of Chat Completions to its clients (law N1)."""

from __future__ import annotations

from typing import Any

import pytest

from openresponses_bridge.dialects.anthropic_messages import Outbound as MessagesOutbound
from openresponses_bridge.dialects.chat_completions import Inbound, Outbound, completion
from openresponses_bridge.dialects.chat_completions import encode as encode_chunks
from openresponses_bridge.protocol.codec import decode_json, encode
from tests.support.machines import machine, plain

Json = dict[str, Any]
OF_TOMORROW: Json = {"provider_fields": {"a": [1, None]}, "grade": 0.5}


def chunk(delta: Json, **choice: Any) -> Json:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **choice}]}


SAID: Json = {"role": "assistant", "content": "so"}
WHOLE: Json = {
    "object": "chat.completion",
    "choices": [{"index": 0, "finish_reason": "stop", "message": SAID | OF_TOMORROW}],
}
FRAMES = {
    "whole": [WHOLE],
    "begun with it": [chunk(SAID | OF_TOMORROW), chunk({}, finish_reason="stop")],
    "ended with it": [chunk(SAID | {"grade": 0.1}), chunk(OF_TOMORROW, finish_reason="stop")],
}


def read(frames: list[Json]) -> tuple[Any, list[Any]]:
    stream = machine(unknown_fields=False)
    inbound = Inbound(stream)
    events = [event for frame in frames for event in inbound.feed(encode(frame))]
    return stream, events + inbound.feed(b"[DONE]") + inbound.close()


@pytest.mark.parametrize("form", FRAMES)
def test_n1_an_unknown_field_of_the_message_comes_back(form: str) -> None:
    stream, events = read(FRAMES[form])
    message = plain(completion(stream.snapshot))["choices"][0]["message"]
    assert message == {**SAID, "refusal": None, **OF_TOMORROW}
    outbound = Outbound()
    chunks = [each for event in events for each in outbound.feed(event)]
    sent = [decode_json(line[6:]) for line in encode_chunks(chunks).splitlines() if line]
    delta: Json = {}
    for each in sent:
        delta |= each["choices"][0]["delta"]
    assert delta.items() >= OF_TOMORROW.items()
    assert sent[-1]["choices"][0]["finish_reason"] == "stop"


def test_n1_to_a_client_of_another_api_it_is_a_loss() -> None:
    _, events = read([WHOLE])
    outbound = MessagesOutbound()
    assert b"grade" not in encode([chunk for event in events for chunk in outbound.feed(event)])
    lost = [case.where for case in outbound.diagnostics.of("loss")]
    assert lost == ["message.provider_fields", "message.grade"]


def test_a_status_of_success_in_each_chunk_is_no_reason_to_read_it_twice() -> None:
    status = {"status_code": 0, "status_msg": ""}
    stream = machine()
    inbound = Inbound(stream)
    for number in range(20):
        inbound.feed(encode(chunk({"content": f"{number} "}) | {"base_resp": status}))
    assert inbound.template.fed > 10
    assert stream.snapshot.output_text == "".join(f"{number} " for number in range(20))
    inbound.feed(encode(chunk({"content": "x"}) | {"base_resp": status | {"status_code": 1002}}))
    assert plain(stream.snapshot)["status"] == "failed"
