"""Every field of the types of Anthropic's SDK, from a client of Messages to an upstream of the API and back
(law N1). A field that is new in the SDK fails here by its name, until it arrives or has a row."""

from __future__ import annotations

from functools import partial
from typing import get_args

import pytest
from anthropic.types import beta
from anthropic.types import message_create_params as stable
from anthropic.types.beta import beta_content_block_param
from anthropic.types.beta import message_create_params as params
from anthropic.types.shared import ErrorType

from openresponses_bridge.dialects.anthropic_messages.client.ending import error_body
from tests.support.messages_fields import (
    ANSWER_ROWS,
    NAMED,
    NAMED_OF_ANSWERS,
    OURS,
    REQUEST_ROWS,
    answered,
    answers,
    bodies,
    through,
)
from tests.support.sdk_fields import assert_none_is_silent
from tests.support.typed_fields import TypedFields

READY = {
    "BetaBase64PDFSourceParam": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
    "BetaPlainTextSourceParam": {"type": "text", "media_type": "text/plain", "data": "text"},
}


@pytest.mark.untraced
def test_n1_each_field_of_a_request_arrives() -> None:
    typed = TypedFields({}, READY, NAMED, whole=True)
    bases = (stable.MessageCreateParamsBase, params.MessageCreateParamsBase)
    cases = bodies(
        (sample for kind in bases for sample in typed.of(kind)),
        typed.of(beta_content_block_param.BetaContentBlockParam),
        typed.of(beta.BetaSystemMessageParam),
    )
    assert_none_is_silent(cases, through, REQUEST_ROWS, fewest=2500)


@pytest.mark.untraced
@pytest.mark.parametrize("from_stream", [False, True], ids=["whole upstream", "streamed upstream"])
@pytest.mark.parametrize("to_stream", [False, True], ids=["whole", "streamed"])
def test_n1_each_field_of_an_answer_comes_back(from_stream: bool, to_stream: bool) -> None:
    typed = TypedFields({}, {}, NAMED_OF_ANSWERS, whole=True)
    through = partial(answered, from_stream=from_stream, to_stream=to_stream)
    assert_none_is_silent(answers(typed.of(beta.BetaMessage)), through, ANSWER_ROWS, ours=OURS, fewest=700)


@pytest.mark.parametrize("kind", get_args(ErrorType))
def test_n1_each_type_of_an_error_comes_back(kind: str) -> None:
    assert error_body(None, kind, "no")["error"] == {"type": kind, "message": "no"}
