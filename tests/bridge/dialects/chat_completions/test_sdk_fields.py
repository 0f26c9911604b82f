"""Every field of the types of OpenAI's SDK, from a client of Chat to its own API and back (law N1).
A field that is new in the SDK fails here by its name, until it arrives or has a row."""

from __future__ import annotations

from functools import partial

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat import chat_completion_message_param as messages
from openai.types.chat import completion_create_params as params

from tests.support.chat_fields import (
    ANSWER_ROWS,
    NAMED,
    NAMED_OF_ANSWERS,
    OURS,
    REQUEST_ROWS,
    TOKEN,
    TOOL_NAMED,
    alike,
    answered,
    answers,
    bodies,
    through,
)
from tests.support.sdk_fields import assert_none_is_silent
from tests.support.typed_fields import TypedFields

NEEDED = {
    "ChatCompletionAllowedToolsParam": {"mode": "auto", "tools": [TOOL_NAMED]},
    "ChatCompletionAssistantMessageParam": {"role": "assistant", "content": "so"},
}


def test_n1_each_field_of_a_request_arrives() -> None:
    typed = TypedFields(NEEDED, {}, NAMED, whole=True)
    bases = typed.of(params.CompletionCreateParamsBase)
    samples = bodies(bases, typed.of(messages.ChatCompletionMessageParam))
    assert_none_is_silent(samples, through, REQUEST_ROWS, alike=alike, fewest=80)


@pytest.mark.parametrize("from_stream", [False, True], ids=["whole upstream", "streamed upstream"])
@pytest.mark.parametrize("to_stream", [False, True], ids=["whole", "streamed"])
def test_n1_each_field_of_an_answer_comes_back(from_stream: bool, to_stream: bool) -> None:
    typed = TypedFields({"ChatCompletionTokenLogprob": TOKEN}, {}, NAMED_OF_ANSWERS, whole=True)
    kinds = (ChatCompletion, ChatCompletionChunk)
    samples = answers(sample for kind in kinds for sample in typed.of(kind))
    through = partial(answered, from_stream=from_stream, to_stream=to_stream)
    assert_none_is_silent(samples, through, ANSWER_ROWS, ours=OURS, fewest=80)
