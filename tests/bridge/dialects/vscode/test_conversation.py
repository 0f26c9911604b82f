"""The digest of a conversation: the same for what was sent and for what is stored of it."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.vscode import conversation_digest
from openresponses_bridge.protocol.codec import decode_request

CALL = {"type": "function_call", "call_id": "c", "name": "find"}
SAID = {"type": "message", "role": "assistant"}


def digest(*items: Any) -> str:
    request = decode_request(json.dumps({"model": "m", "input": list(items)}))
    assert isinstance(request.input, list)
    return conversation_digest(request.input)


def test_an_assistants_text_is_one_however_it_is_written() -> None:
    parts = [{"type": "output_text", "text": "He"}, {"type": "output_text", "text": "llo"}]
    assert digest({**SAID, "content": "Hello"}) == digest({**SAID, "content": parts})
    assert digest({**SAID, "content": "He"}, {**SAID, "content": "llo"}) == digest(
        {**SAID, "content": "Hello"}
    )


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ('{"a":1,"b":2}', '{"b": 2, "a": 1}', True),
        ('{"a":1}', '{"a":2}', False),
        ("no JSON", "no JSON", True),
        ("no JSON", "none", False),
        ("[" * 5000, "[" * 5001, False),
    ],
)
def test_arguments_are_compared_by_what_they_say(first: str, second: str, same: bool) -> None:
    assert (digest({**CALL, "arguments": first}) == digest({**CALL, "arguments": second})) is same


def test_a_condensed_history_counts() -> None:
    def condensed(text: str) -> dict[str, str]:
        return {"type": "compaction", "encrypted_content": text}

    assert digest(condensed("a")) == digest(condensed("a")) != digest(condensed("b"))


def test_what_is_said_can_not_be_cut_another_way() -> None:
    def user(text: str) -> dict[str, str]:
        return {"type": "message", "role": "user", "content": text}

    assert digest(user("a"), user("b")) != digest(user("ab"))
    assert digest({**SAID, "content": "a"}, user("b")) != digest(user("a"), {**SAID, "content": "b"})
