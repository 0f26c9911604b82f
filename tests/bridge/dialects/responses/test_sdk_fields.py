"""Every field of the types of OpenAI's SDK and of the published document, from a client of Responses to an
upstream of that API and back (law N1). A new field fails here by its name, until it arrives or has a row."""

from __future__ import annotations

from functools import partial
from typing import Any, get_type_hints

import pytest
from openai.types import responses
from openai.types.beta import beta_response
from openai.types.beta import beta_response_input_item_param as beta_items
from openai.types.beta import response_create_params as beta
from openai.types.responses import response_create_params as stable
from openai.types.responses import response_input_item_param as items

from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.protocol.codec import encode
from tests.support.machines import machine
from tests.support.responses_fields import (
    ANSWER,
    ANSWER_ROWS,
    NAMED,
    NAMED_OF_ANSWERS,
    OURS,
    REQUEST_ROWS,
    THOUGHT,
    answered,
    answers,
    bodies,
    through,
)
from tests.support.schema_fields import SchemaFields
from tests.support.sdk_fields import assert_none_is_silent
from tests.support.typed_fields import TypedFields

Json = dict[str, Any]
NEEDED: dict[str, Json] = {
    f"{prefix}ToolChoiceAllowedParam": {"tools": [{"type": "function", "name": "look"}]}
    for prefix in ("", "Beta")
}
OF_REQUESTS = get_type_hints(beta.ResponseCreateParamsBase).keys()
PUBLISHED_ROWS = {
    "completed_at": ANSWER_ROWS["completed_at"],
    **{
        f"output.message.content.{kind}": "an answer's message has texts and refusals"
        for kind in (
            "input_text", "summary_text", "reasoning_text", "input_image", "input_file", "input_video",
        )
    },
    "output.message.content.text": "read as output_text",
    **{
        f"output.reasoning.{within}.{kind}": "the text of such a part is read, and what is beside it is lost"
        for within, own in (("content", "reasoning_text"), ("summary", "summary_text"))
        for kind in (
            "input_text", "output_text", "text", "refusal", "input_image", "input_file",
            *{"reasoning_text", "summary_text"} - {own},
        )
    },
}  # fmt: skip
"""The document allows any part in any item."""


@pytest.mark.untraced
def test_n1_each_field_of_a_request_arrives() -> None:
    typed = TypedFields(NEEDED, {}, NAMED, whole=True)
    bases = (stable.ResponseCreateParamsBase, beta.ResponseCreateParamsBase)
    unions = (items.ResponseInputItemParam, beta_items.BetaResponseInputItemParam)
    samples = bodies(
        (sample for kind in bases for sample in typed.of(kind)),
        (sample for union in unions for sample in typed.of(union)),
    )
    assert_none_is_silent(samples, through, REQUEST_ROWS, fewest=1500)


def test_n1_each_published_field_of_a_request_arrives() -> None:
    typed = SchemaFields(NAMED)
    samples = bodies(typed.of("CreateResponseBody"), typed.of("ItemParam"))
    rows = {name: REQUEST_ROWS[name] for name in ("stream_options",)}
    assert_none_is_silent(samples, through, rows, fewest=100)


@pytest.mark.untraced
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_n1_each_field_of_an_answer_comes_back(streamed: bool) -> None:
    typed = TypedFields({}, {}, NAMED_OF_ANSWERS, whole=True)
    kinds = (responses.Response, beta_response.BetaResponse)
    instances = (sample for kind in kinds for sample in typed.of(kind))
    samples = answers(instances, OF_REQUESTS, streamed=streamed)
    assert_none_is_silent(samples, partial(answered, streamed=streamed), ANSWER_ROWS, ours=OURS, fewest=1500)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.untraced
def test_n1_each_published_field_of_an_answer_comes_back(streamed: bool) -> None:
    needed = {"Message": ANSWER["output"][0], "ReasoningBody": THOUGHT}
    typed = SchemaFields(NAMED_OF_ANSWERS | {"role": "assistant"}, needed)
    samples = answers(typed.of("ResponseResource"), OF_REQUESTS, streamed=streamed)
    assert_none_is_silent(samples, partial(answered, streamed=streamed), PUBLISHED_ROWS, ours=OURS, fewest=60)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "input_image", "image_url": "u", "detail": "low"}, {"loss": 1}),
        ({"type": "text", "text": "so"}, {"repair": 1}),
        (
            {"type": "output_text", "text": "so", "annotations": [{"type": "url_citation", "url": "u",
             "start_index": 0, "end_index": 1, "title": "t"}], "logprobs": []},
            {"loss": 1, "repair": 1},
        ),
    ],
)  # fmt: skip
def test_parts_of_reasoning_that_are_of_other_kinds_are_reported(part: Json, said: dict[str, int]) -> None:
    stream = machine("openai")
    inbound = Inbound(stream)
    inbound.feed(encode({**ANSWER, "output": [{**THOUGHT, "content": [part]}]}))
    inbound.close()
    kinds = [case.kind for case in stream.diagnostics if case.where == "output_item.reasoning"]
    assert {kind: kinds.count(kind) for kind in kinds} == said
