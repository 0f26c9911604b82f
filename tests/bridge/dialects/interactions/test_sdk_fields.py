"""Each field of google-genai's types, from a client of the Interactions API to an upstream and back (N1). A
new field fails here by its name, until it arrives or has a row."""

from typing import Any

import pytest

from tests.support.interactions_fields import fields_in_list, frames, returned, sent
from tests.support.sdk_fields import assert_none_is_silent

Json = dict[str, Any]
LISTED = fields_in_list()
SECRET = "a secret, which no answer repeats"
NOTHING = "a step that says nothing"
REQUEST_ROWS = {
    "background": "the bridge makes it in the background",
    "store": "the bridge stores the response, and the upstream nothing",
    "previous_interaction_id": "the earlier turns are sent along",
    "steps.model_output.error": "a loss: of a step without content",
    "steps.model_output.type": NOTHING,
    "steps.thought.type": NOTHING,
    "steps.user_input.type": NOTHING,
}
ANSWER_ROWS = {
    "environment.env": SECRET,
    "environment.network.allowlist.credential": SECRET,
    "tools.headers": SECRET,
    "tools.url": "the address of an MCP server, any part of which but the origin may be a key",
    "tools.exa_ai_search_config.api_key": SECRET,
    "tools.parallel_ai_search_config.api_key": SECRET,
    "errors": "of an answer that failed, as its error",
    "previous_interaction_id": "the response's own",
    "usage.total_cached_tokens": "repaired: more than the input",
    "steps.model_output.error": "a loss: the output has none",
    "steps.model_output.type": NOTHING,
    "steps.thought.type": NOTHING,
    "steps.thought.summary.annotations": "a loss: a summary's text has no such field",
}
OWN = ("id", "created", "updated")
"""Fields of an answer that are those of the response."""


def test_n1_each_field_of_requests_arrives() -> None:
    samples = LISTED["requests"].items()
    assert_none_is_silent(samples, sent, REQUEST_ROWS, fewest=400)


@pytest.mark.parametrize("form", ["stream", "whole"])
def test_n1_each_field_of_answers_arrives(form: str) -> None:
    def through(answer: Json) -> tuple[Json, list[str]]:
        streamed, whole, report = returned(frames(answer) if form == "stream" else [answer])
        return streamed if form == "stream" else whole, report

    assert_none_is_silent(LISTED["answers"].items(), through, ANSWER_ROWS, fewest=360, ours=OWN)
