"""The table of refusals: the words of servers, and their meaning."""

from __future__ import annotations

import re
from typing import Any

import pytest

from openresponses_bridge.dialects.base import (
    UPSTREAM_ERROR,
    Cause,
    cause_of,
    payload_of,
    refusal_for,
    reported_error,
)
from openresponses_bridge.dialects.base.refusals import (
    STATUS_OF,
    STATUSES,
    TABLE,
    Row,
    _pattern,
    code_for,
)

NUMBERS = {"{limit}": "4,096", "{given}": "5000", "{field}": "'store'", "…": " or so "}


def said(row: Row) -> str:
    text = row.words
    for name, example in NUMBERS.items():
        text = text.replace(name, example)
    return text


def status_of(row: Row) -> int:
    return (row.statuses or STATUSES.get(row.cause) or (400,))[0]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.cause}-{row.words or row.codes[0]}")
def test_each_row_is_found(row: Row) -> None:
    """By its words among others, in any case, and by each of its codes."""
    if row.words:
        text = f"<400> Invalid: {said(row)}, it said."
        for words in (said(row), text, said(row).upper().replace("'STORE'", "'store'")):
            refusal = refusal_for(row.cause, status_of(row), (None, None), words)
            assert refusal is not None
            if "{limit}" in row.words:
                assert refusal.limit == 4096
            if "{given}" in row.words:
                assert refusal.given == 5000
            if "{field}" in row.words:
                assert refusal.fields == ("store",)
    for code in row.codes:
        for codes in ((code, None), (None, code.upper())):
            refusal = refusal_for(row.cause, status_of(row), codes, "x")
            assert refusal is not None
            assert refusal.is_certain


def test_each_row_says_who_where_and_what() -> None:
    for row in TABLE:
        assert row.provider
        assert row.seen
        assert bool(row.words) != bool(row.codes)
        assert row.words.count("…") <= 2


# what servers say, in our own numbers → (status, value, cause, limit)
TOO_LONG: dict[str, tuple[int, Any, int | None]] = {
    "a gateway's raw": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": '{"error": {"message": "This model\'s maximum context length is 9000 tokens", '
                    '"code": "context_length_exceeded"}}'
                },
            }
        },
        9000,
    ),
    "Ollama": (400, {"error": "prompt too long; exceeded max context length by 12 tokens"}, None),
    "Copilot": (
        400,
        {
            "error": {
                "message": "prompt token count of 910 exceeds the limit of 900",
                "code": "model_max_prompt_tokens_exceeded",
            }
        },
        900,
    ),
    "Moonshot": (
        400,
        {"error": {"message": "Your request exceeded model token limit: 900 (requested: 910)"}},
        900,
    ),
    "MiniMax": (400, {"error": {"message": "invalid params, context window exceeds limit (2013)"}}, None),
    "MiniMax, in an answer": (
        400,
        {"base_resp": {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit"}},
        None,
    ),
    "Bedrock": (400, {"message": "Input is too long for requested model."}, None),
    "Poolside": (
        400,
        {"error": {"message": "Input length 910 exceeds the maximum allowed input length of 900 tokens."}},
        900,
    ),
    "Perplexity": (
        400,
        {
            "error": {
                "message": "It is too much.",
                "type": "too_many_prompt_tokens",
                "code": 400,
            }
        },
        None,
    ),
    "DashScope": (
        400,
        {"error": {"message": "<400> InternalError.Algo: Range of input length should be [1, 900]"}},
        900,
    ),
    "Z.ai": (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, None),
    "LM Studio": (
        400,
        {"error": "the model is loaded with context length of only 900 tokens, which is not enough."},
        900,
    ),
    "Together": (
        422,
        {"error": {"message": "`inputs` tokens + `max_new_tokens` must be <= 900. Given: 910 `inputs`"}},
        900,
    ),
    "TGI": (
        422,
        {"error": "`inputs` must have less than 900 tokens. Given: 910"},
        900,
    ),
    "llama.cpp": (
        400,
        {"error": {"code": 400, "message": "too much", "type": "exceed_context_size_error", "n_ctx": 900}},
        900,
    ),
    "a body that is too large": (413, {"error": {"message": "Request too large for model m"}}, None),
    "Anthropic's 413": (
        413,
        {"error": {"type": "request_too_large", "message": "It has 33 MB"}},
        None,
    ),
}


@pytest.mark.parametrize("case", TOO_LONG)
def test_an_input_that_is_too_long_in_every_wording(case: str) -> None:
    status, value, limit = TOO_LONG[case]
    error = reported_error(value)
    assert error is not None
    refusal = cause_of(status, error.codes, error.message or "")
    assert refusal is not None
    assert refusal.cause is Cause.TOO_LONG
    assert code_for(error.code, refusal) == "context_length_exceeded"
    detailed = refusal_for(Cause.TOO_LONG, status, error.codes, error.message or "", error.fields)
    assert detailed is not None
    assert detailed.limit == limit


@pytest.mark.parametrize(
    ("status", "codes", "message", "cause"),
    [
        (429, (None, None), "Extra usage is required for long context requests.", Cause.ASKS_TOO_MUCH),
        (429, (None, None), "Request too large for m on tokens per min", Cause.ASKS_TOO_MUCH),
        (402, (None, None), "You requested 9 tokens, but can only afford 3", Cause.ASKS_TOO_MUCH),
        (None, ("1008", None), "insufficient balance", Cause.MONEY),
        (400, ("Arrearage", None), "Access denied.", Cause.MONEY),
        (429, ("insufficient_quota", None), "x", Cause.MONEY),
        (400, ("INVALID_ARGUMENT", "API_KEY_INVALID"), "API key not valid.", Cause.KEY),
        (400, (None, None), "Incorrect API key provided: xa***. You can obtain one.", Cause.KEY),
        (400, (None, None), "User location is not supported for the API use.", Cause.REGION),
        (400, (None, None), "Model Not Exist", Cause.MODEL),
        (429, ("1302", None), "slow", Cause.RATE),
        (400, (None, None), "a number is out of range", None),
        (200, (None, None), "", None),
    ],
)
def test_what_other_refusals_are_about(
    status: int | None, codes: tuple[str | None, str | None], message: str, cause: Cause | None
) -> None:
    refusal = cause_of(status, codes, message)
    assert (refusal.cause if refusal else None) is cause
    if cause is not None:
        assert 400 <= STATUS_OF[cause] < 600


def test_words_that_a_request_may_have_put_there_are_not_certain() -> None:
    """A server repeats the name of a field that it does not know."""
    whole = "Your credit balance is too low to access the Anthropic API. "
    whole += "Please go to Plans & Billing to upgrade or purchase credits."
    certain, repeated = (
        refusal_for(Cause.MONEY, 400, (None, None), text)
        for text in (whole, f"{whole}: Extra inputs are not permitted")
    )
    assert certain is not None
    assert repeated is not None
    assert (certain.is_certain, repeated.is_certain) == (True, False)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("Unknown parameter: 'input[3].extra'.", ("input[3].extra",)),
        ('Unknown name "a": Cannot find field.\nUnknown name "b" at \'x\': Cannot find field.', ("a", "b")),
        ("messages.2.assistant.reasoning: property 'messages.2.assistant.reasoning' is unsupported",) * 1
        + (("messages.2.assistant.reasoning",),),
        ("tools[0]: unknown variant `advisor_1`", ("tools[0]",)),
        ("n: Extra inputs are not permitted; m: Extra inputs are not permitted", ("n", "m")),
    ],
)
def test_all_fields_that_are_named(message: str, fields: tuple[str, ...]) -> None:
    refusal = refusal_for(Cause.FIELD, 400, (None, None), message)
    assert refusal is not None
    assert refusal.fields == fields


def test_every_pattern_stands_for_a_bounded_number_of_characters() -> None:
    """So that looking for it takes time linear in the message."""
    for row in TABLE:
        if row.words:
            assert 0 < re._parser.parse(_pattern(row.words).pattern).getwidth()[1] < 700, row.words  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "message",
    ["The region is busy.", "A parse error at location 5.", "The plan was not made: try another tier."],
)
def test_vague_words_say_nothing_where_there_is_no_status(message: str) -> None:
    """They are plain beside a status that has few meanings; within a stream there is none."""
    assert cause_of(403, (None, None), message) is not None
    assert cause_of(None, (None, None), message) is None
    assert payload_of({"message": message}).code == UPSTREAM_ERROR


def test_a_limit_over_time_within_a_stream_is_no_input_that_is_too_long() -> None:
    words = "Request too large for m on tokens per min: Limit 30000, Requested 40000."
    assert payload_of({"message": words}).code == "rate_limit_exceeded"
