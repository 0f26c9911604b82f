"""Each field of botocore's description of Converse, from a client of it to an upstream and back (N1). A new
field fails here by its name, until it arrives or has a row."""

from typing import Any

import pytest

from tests.support.converse_fields import fields_in_list, frames, returned, sent
from tests.support.sdk_fields import assert_none_is_silent

Json = dict[str, Any]
LISTED = fields_in_list()
REQUEST_ROWS: dict[str, str] = {}
ANSWER_ROWS = {
    "stopReason.=malformed_model_output": "an answer that failed, an exception",
    "stopReason.=malformed_tool_use": "an answer that failed, an exception",
}


def test_n1_each_field_of_requests_arrives() -> None:
    assert_none_is_silent(LISTED["requests"].items(), sent, REQUEST_ROWS, fewest=190)


@pytest.mark.parametrize("form", ["stream", "whole"])
def test_n1_each_field_of_answers_arrives(form: str) -> None:
    def through(answer: Json) -> tuple[Json, list[str]]:
        streamed, whole, report = returned(frames(answer) if form == "stream" else [answer])
        return streamed if form == "stream" else whole, report

    assert_none_is_silent(LISTED["answers"].items(), through, ANSWER_ROWS, fewest=150)
