"""Every field of the types in the TypeScript SDKs goes from a client of each API to an upstream of that API
and back (law N1), according to the same tables as the fields of the Python SDKs. A field that only the
TypeScript SDKs or newer ones have fails here with its name."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat_fields, gemini_fields, messages_fields, responses_fields
from tests.support.gemini_fields import alike, as_answer, is_ours, missing, parts_joined, returned, sent
from tests.support.schema_fields import SchemaFields
from tests.support.sdk_fields import assert_none_is_silent
from tests.support.typed_fields import Sample

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
Json = dict[str, Any]
Documents = Mapping[str, Mapping[str, Json]]
MESSAGES = "@anthropic-ai/sdk/resources/messages/messages"
BETA_MESSAGES = "@anthropic-ai/sdk/resources/beta/messages/messages"
GEMINI = "@google/genai"
CHAT = "openai/resources/chat/completions/completions"
RESPONSES = "openai/resources/responses/responses"
BETA_RESPONSES = "openai/resources/beta/responses/responses"
WANTED = {
    MESSAGES: ["MessageCreateParamsBase", "ContentBlockParam", "Message"],
    BETA_MESSAGES: [
        "MessageCreateParamsBase", "BetaContentBlockParam", "BetaSystemMessageParam", "BetaMessage",
    ],
    GEMINI: ["GenerateContentConfig", "Tool", "Part", "GenerateContentResponse"],
    CHAT: [
        "ChatCompletionCreateParamsBase", "ChatCompletionMessageParam",
        "ChatCompletion", "ChatCompletionChunk",
    ],
    RESPONSES: ["ResponseCreateParamsBase", "ResponseInputItem", "Response"],
    BETA_RESPONSES: ["ResponseCreateParamsBase", "BetaResponseInputItem", "BetaResponse"],
}  # fmt: skip
OF_CHAT = {
    "ChatCompletionAllowedTools": {"mode": "auto", "tools": [chat_fields.TOOL_NAMED]},
    "ChatCompletionAssistantMessageParam": {"role": "assistant", "content": "so"},
    "ChatCompletionTokenLogprob": chat_fields.TOKEN,
}
OF_RESPONSES = {
    f"{prefix}ToolChoiceAllowed": {"tools": [{"type": "function", "name": "look"}]} for prefix in ("", "Beta")
}
BOTH = [False, True]


def run(node: Path, program: str, *arguments: str, given: str = "") -> str:
    shutil.copy(Path(__file__).parent / "js" / program, node / program)
    command = ["node", program, *arguments]
    done = subprocess.run(
        command, cwd=node, input=given, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def documents(node: Path) -> Documents:
    """The types of each module, as schemas by name."""
    schemas: Documents = json.loads(run(node, "types.mjs", json.dumps(WANTED)))
    return schemas


def joined(*samples: Iterable[Sample]) -> Iterator[Sample]:
    for each in samples:
        yield from each


def test_n1_each_field_of_a_messages_request_arrives(documents: Documents) -> None:
    fields = partial(SchemaFields, messages_fields.NAMED)
    stable, beta = (fields(document=documents[each]) for each in (MESSAGES, BETA_MESSAGES))
    samples = messages_fields.bodies(
        joined(stable.of("MessageCreateParamsBase"), beta.of("MessageCreateParamsBase")),
        joined(stable.of("ContentBlockParam"), beta.of("BetaContentBlockParam")),
        beta.of("BetaSystemMessageParam"),
    )
    rows = {**messages_fields.REQUEST_ROWS, "output_format": "sent as output_config.format, its newer name"}
    assert_none_is_silent(samples, messages_fields.through, rows, fewest=2500)


@pytest.mark.parametrize("from_stream", BOTH, ids=["whole upstream", "streamed upstream"])
@pytest.mark.parametrize("to_stream", BOTH, ids=["whole", "streamed"])
def test_n1_each_field_of_a_message_comes_back(
    documents: Documents, from_stream: bool, to_stream: bool
) -> None:
    named = messages_fields.NAMED_OF_ANSWERS
    stable, beta = (SchemaFields(named, document=documents[each]) for each in (MESSAGES, BETA_MESSAGES))
    assert_none_is_silent(
        messages_fields.answers(joined(stable.of("Message"), beta.of("BetaMessage"))),
        partial(messages_fields.answered, from_stream=from_stream, to_stream=to_stream),
        messages_fields.ANSWER_ROWS,
        ours=messages_fields.OURS,
        fewest=800,
    )


def test_n1_each_field_that_google_s_sdk_sends_arrives(node: Path, documents: Documents) -> None:
    fields = partial(SchemaFields, needed=gemini_fields.NEEDED, document=documents[GEMINI])
    samples = list(
        gemini_fields.asked(
            fields(gemini_fields.NAMED, ready=gemini_fields.READY_IN_CONFIG).of("GenerateContentConfig"),
            fields(gemini_fields.NAMED).of("Tool"),
            fields(gemini_fields.NAMED_IN_PARTS).of("Part"),
        )
    )
    lines = [json.dumps({"contents": contents, "config": config}) for _, contents, config in samples]
    bodies = [
        json.loads(line) for line in run(node, "google_bodies.mjs", given="\n".join(lines)).splitlines()
    ]
    lost: dict[str, list[str]] = {}
    for (field, _, _), raw in zip(samples, bodies, strict=True):
        body = {name: value for name, value in raw.items() if value != {}}
        if not is_ours("requests", field):
            actual, report = sent(body)
            if losses := [*missing(alike(body), actual), *report]:
                lost[field] = losses
    assert lost == {}
    assert len(samples) > 300


def test_n1_each_field_of_a_gemini_answer_comes_back(documents: Documents) -> None:
    fields = SchemaFields(gemini_fields.NAMED, gemini_fields.NEEDED, document=documents[GEMINI])
    answers = list(gemini_fields.answers(fields.of("GenerateContentResponse")))
    lost: dict[str, list[str]] = {}
    for field, value in answers:
        answer = as_answer(deepcopy(value))
        if not is_ours("answers", field):
            *actual, report = returned([answer])
            expected = parts_joined(answer)
            if losses := [
                *(path for each in actual for path in missing(expected, parts_joined(each))),
                *report,
            ]:
                lost[field] = losses
    assert lost == {}
    assert len(answers) > 170


def test_n1_each_field_of_a_chat_request_arrives(documents: Documents) -> None:
    fields = SchemaFields(chat_fields.NAMED, OF_CHAT, document=documents[CHAT])
    samples = chat_fields.bodies(
        fields.of("ChatCompletionCreateParamsBase"), fields.of("ChatCompletionMessageParam")
    )
    assert_none_is_silent(
        samples, chat_fields.through, chat_fields.REQUEST_ROWS, alike=chat_fields.alike, fewest=80
    )


@pytest.mark.parametrize("from_stream", BOTH, ids=["whole upstream", "streamed upstream"])
@pytest.mark.parametrize("to_stream", BOTH, ids=["whole", "streamed"])
def test_n1_each_field_of_a_completion_comes_back(
    documents: Documents, from_stream: bool, to_stream: bool
) -> None:
    fields = SchemaFields(chat_fields.NAMED_OF_ANSWERS, OF_CHAT, document=documents[CHAT])
    assert_none_is_silent(
        chat_fields.answers(joined(fields.of("ChatCompletion"), fields.of("ChatCompletionChunk"))),
        partial(chat_fields.answered, from_stream=from_stream, to_stream=to_stream),
        chat_fields.ANSWER_ROWS,
        ours=chat_fields.OURS,
        fewest=80,
    )


def test_n1_each_field_of_a_responses_request_arrives(documents: Documents) -> None:
    stable, beta = (
        SchemaFields(responses_fields.NAMED, OF_RESPONSES, document=documents[each])
        for each in (RESPONSES, BETA_RESPONSES)
    )
    samples = responses_fields.bodies(
        joined(stable.of("ResponseCreateParamsBase"), beta.of("ResponseCreateParamsBase")),
        joined(stable.of("ResponseInputItem"), beta.of("BetaResponseInputItem")),
    )
    assert_none_is_silent(samples, responses_fields.through, responses_fields.REQUEST_ROWS, fewest=1500)


@pytest.mark.parametrize("streamed", BOTH, ids=["whole", "streamed"])
def test_n1_each_field_of_a_response_comes_back(documents: Documents, streamed: bool) -> None:
    named = responses_fields.NAMED_OF_ANSWERS
    stable, beta = (SchemaFields(named, document=documents[each]) for each in (RESPONSES, BETA_RESPONSES))
    of_requests = documents[BETA_RESPONSES]["ResponseCreateParamsBase"]["properties"]
    samples = responses_fields.answers(
        joined(stable.of("Response"), beta.of("BetaResponse")), of_requests, streamed=streamed
    )
    assert_none_is_silent(
        samples,
        partial(responses_fields.answered, streamed=streamed),
        responses_fields.ANSWER_ROWS,
        ours=responses_fields.OURS,
        fewest=1500,
    )
