"""What a request becomes, field by field and item by item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.gemini import GeminiOptions, to_gemini
from openresponses_bridge.dialects.gemini.carried import CarriedFields, CarriedPart
from openresponses_bridge.dialects.gemini.signatures import Signed, seal_signatures
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer

Json = dict[str, Any]
PLAIN = GeminiOptions()
SKIP = "skip_thought_signature_validator"
PARAMETERS = {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": False}
TOOL = {"type": "function", "name": "f", "description": "Looks.", "parameters": PARAMETERS}
OTHER = TOOL | {"name": "g"}


def sent(
    given: Json, options: GeminiOptions = PLAIN, model: str = "gemini-3-flash", **more: Any
) -> tuple[Json, list[str]]:
    request = decode_request(json.dumps({"model": "m", "input": "Hi", **given}))
    body, diagnostics = to_gemini(request, model=model, options=options, **more)
    return json.loads(json.dumps(body)), [str(case) for case in diagnostics]


def contents(items: list[Json], **more: Any) -> list[tuple[str, list[Json]]]:
    body, _ = sent({"input": items}, **more)
    return [(each["role"], each["parts"]) for each in body["contents"]]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def said(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call(number: int, name: str = "f", arguments: str = "{}") -> Json:
    return {"type": "function_call", "call_id": f"c{number}", "name": name, "arguments": arguments}


def output(number: int, given: Any = "seen", **more: Any) -> Json:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": given, **more}


def called(number: int, name: str = "f", **more: Any) -> Json:
    return {"functionCall": {"id": f"c{number}", "name": name, "args": {}}, **more}


def answered(number: int, name: str = "f", **response: Any) -> Json:
    return {
        "functionResponse": {"id": f"c{number}", "name": name, "response": response or {"output": "seen"}}
    }


def text(*texts: str) -> list[Json]:
    return [{"text": each} for each in texts]


def test_turns_of_one_role_are_one_content() -> None:
    items = [user("a"), user("b"), said("c"), said("d"), user("e")]
    assert contents(items) == [("user", text("a", "b")), ("model", text("c", "d")), ("user", text("e"))]


def test_outputs_of_parallel_calls_are_one_content_behind_the_calls() -> None:
    items = [user("a"), call(1), call(2, "g"), output(2), output(1), user("b")]
    assert contents(items) == [
        ("user", text("a")),
        ("model", [called(1), called(2, "g")]),
        ("user", [answered(1), answered(2, "g"), *text("b")]),
    ]


def test_an_output_that_came_later_stands_behind_its_call() -> None:
    items = [user("a"), call(1), said("b"), user("c"), output(1)]
    assert contents(items) == [
        ("user", text("a")),
        ("model", [called(1), *text("b")]),
        ("user", [answered(1), *text("c")]),
    ]


def test_the_first_content_is_the_users_and_the_last_is_not_the_models() -> None:
    assert contents([said("a")]) == [
        ("user", text("(earlier conversation)")),
        ("model", text("a")),
        ("user", text("Continue.")),
    ]


def test_system_messages_are_the_head_and_later_ones_reminders() -> None:
    items = [{"role": "developer", "content": "b"}, user("c"), {"role": "system", "content": "d"}]
    body, cases = sent({"instructions": "a", "input": items})
    assert body["systemInstruction"] == {"parts": text("a", "b")}
    reminder = "<system-reminder>\nd\n</system-reminder>"
    assert body["contents"] == [{"role": "user", "parts": text("c", reminder)}]
    assert [case.partition(":")[0] for case in cases] == ["repair"]


PNG = "data:image/png;base64,iVBORw0="
PARTS: list[tuple[Json, Json]] = [
    (
        {"type": "input_image", "image_url": PNG},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}},
    ),
    (
        {"type": "input_image", "image_url": "data:image/jpg;base64,AA=="},
        {"inlineData": {"mimeType": "image/jpeg", "data": "AA=="}},
    ),
    (
        {"type": "input_image", "image_url": "https://a.example/b.webp?c=d"},
        {"fileData": {"mimeType": "image/webp", "fileUri": "https://a.example/b.webp?c=d"}},
    ),
    (
        {"type": "input_image", "image_url": "https://a.example/b"},
        {"fileData": {"fileUri": "https://a.example/b"}},
    ),
    (
        {"type": "input_file", "filename": "a.csv", "file_data": "YQ=="},
        {"inlineData": {"mimeType": "text/csv", "data": "YQ=="}},
    ),
    (
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0="},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
    ),
    (
        {"type": "input_file", "filename": "a.pdf", "file_url": "https://a.example/x"},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.example/x"}},
    ),
    ({"type": "input_file", "file_id": "gs://b/c"}, {"fileData": {"fileUri": "gs://b/c"}}),
    (
        {"type": "input_video", "video_url": "https://a.example/b.mp4"},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://a.example/b.mp4"}},
    ),
]


@pytest.mark.parametrize(("part", "expected"), PARTS)
def test_images_and_files_are_parts(part: Json, expected: Json) -> None:
    assert contents([{"role": "user", "content": [part]}]) == [("user", [expected])]


@pytest.mark.parametrize("url", ["data:image/png,abc", "data:;base64,", "data:"])
def test_a_data_url_without_base64_is_refused_with_its_place(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        contents([{"role": "user", "content": [{"type": "input_image", "image_url": url}]}])
    assert caught.value.param == "input[0].content[0].image_url"


def test_images_of_outputs_stand_in_them_or_behind_them() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}}
    items = [user("a"), call(1), output(1, [{"type": "input_image", "image_url": PNG}])]
    (_, _, (_, parts)) = contents(items)
    assert parts[0]["functionResponse"]["parts"] == [image]
    (_, _, (_, parts)) = contents(items, model="gemini-2.5-pro")
    assert parts[1:] == [{"text": "Attached to the output of tool call c1:"}, image]


def test_a_failed_call_has_an_error() -> None:
    (*_, (_, parts)) = contents([user("a"), call(1), output(1, "no", status="incomplete")])
    assert parts == [answered(1, error="no")]


def test_arguments_that_are_no_object_are_wrapped() -> None:
    (_, (_, parts), _) = contents([user("a"), call(1, arguments="{no"), output(1)])
    assert parts[0]["functionCall"]["args"] == {"INVALID_JSON": "{no"}


def test_calls_of_others_get_the_placeholder_on_the_first_of_a_content() -> None:
    items = [user("a"), call(1), call(2), output(1), output(2), call(3), output(3)]
    turns = contents(items, options=GeminiOptions(missing_signature=SKIP))
    signed = [part.get("thoughtSignature") for role, parts in turns if role == "model" for part in parts]
    assert signed == [SKIP, None, SKIP]


def sealed(*signed: Signed) -> Json:
    encrypted = seal_signatures(Sealer(), signed)
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": encrypted}


def test_signatures_of_another_text_are_put_behind_it() -> None:
    items = [user("a"), said("edited"), sealed(Signed("S", "text", 3, 90)), user("b")]
    (_, (_, parts), _) = contents(items)
    assert parts == [{"text": "edited"}, {"text": "", "thoughtSignature": "S"}]


def test_signatures_find_their_calls_by_id() -> None:
    items = [user("a"), sealed(Signed("S", "next", call_id="c2")), call(1), call(2), output(1), output(2)]
    (_, (_, parts), _) = contents(items)
    assert parts == [called(1), called(2, thoughtSignature="S")]


@pytest.mark.parametrize(
    "encrypted", ["gAAAA", "orb1.p.gemini-signatures.AAAA", "orb1.p.chat-carried.AA", "."]
)
def test_reasoning_of_others_is_a_loss(encrypted: str) -> None:
    theirs = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": encrypted}
    body, cases = sent({"input": [user("a"), theirs, said("b"), user("c")]})
    assert len(body["contents"]) == 3
    assert [case.partition(":")[0] for case in cases] == ["loss"]


def test_functions_have_their_schema_or_the_subset() -> None:
    body, cases = sent({"tools": [TOOL]})
    (declared,) = body["tools"][0]["functionDeclarations"]
    assert declared == {"name": "f", "description": "Looks.", "parametersJsonSchema": PARAMETERS}
    assert cases == []
    body, cases = sent({"tools": [TOOL]}, GeminiOptions(schemas="parameters"))
    (declared,) = body["tools"][0]["functionDeclarations"]
    assert declared["parameters"] == {"type": "object", "properties": {"a": {"enum": [1]}}}
    assert len(cases) == 2


HOSTED = [
    ({"type": "web_search"}, {"googleSearch": {}}),
    ({"type": "web_search_preview_2025_03_11"}, {"googleSearch": {}}),
    ({"type": "code_interpreter", "container": {"type": "auto"}}, {"codeExecution": {}}),
    ({"type": "gemini:urlContext"}, {"urlContext": {}}),
    (
        {"type": "gemini:google_search", "timeRangeFilter": {"a": 1}},
        {"googleSearch": {"timeRangeFilter": {"a": 1}}},
    ),
]


@pytest.mark.parametrize(("tool", "expected"), HOSTED)
def test_server_tools_have_googles_names(tool: Json, expected: Json) -> None:
    body, cases = sent({"tools": [tool]})
    assert (body["tools"], cases) == ([expected], [])
    body, _ = sent({"tools": [TOOL, tool]})
    assert body["tools"][1] == expected
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}


def test_older_models_take_functions_or_server_tools() -> None:
    body, cases = sent({"tools": [TOOL, {"type": "web_search"}]}, model="gemini-2.5-flash")
    assert [list(each) for each in body["tools"]] == [["functionDeclarations"]]
    assert cases == ["loss: tools[1]: googleSearch can't stand beside functions at this model"]


NAMED = {"type": "function", "name": "f"}
CHOICES: list[tuple[Any, Json | None]] = [
    ("auto", {"mode": "AUTO"}),
    ("none", {"mode": "NONE"}),
    ("required", {"mode": "ANY"}),
    (NAMED, {"mode": "ANY", "allowedFunctionNames": ["f"]}),
    (
        {"type": "allowed_tools", "mode": "required", "tools": [NAMED]},
        {"mode": "ANY", "allowedFunctionNames": ["f"]},
    ),
    ({"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}, {"mode": "AUTO"}),
]


@pytest.mark.parametrize(("choice", "expected"), CHOICES)
def test_choices_are_modes(choice: Any, expected: Json) -> None:
    body, _ = sent({"tools": [TOOL, OTHER], "tool_choice": choice})
    assert body["toolConfig"]["functionCallingConfig"] == expected
    narrowed = isinstance(choice, dict) and choice.get("mode") == "auto"
    assert len(body["tools"][0]["functionDeclarations"]) == (1 if narrowed else 2)


def test_a_tool_that_is_not_there_can_not_be_chosen() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        sent({"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}})
    assert caught.value.param == "tool_choice.name"


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
GENERATION: list[tuple[Json, Json]] = [
    (
        {"max_output_tokens": 90, "temperature": 0.5, "top_p": 0.9, "top_k": 3},
        {"maxOutputTokens": 90, "temperature": 0.5, "topP": 0.9, "topK": 3},
    ),
    ({"stop": "END", "seed": 7}, {"stopSequences": ["END"], "seed": 7}),
    ({"presence_penalty": 0.5, "frequency_penalty": 1}, {"presencePenalty": 0.5, "frequencyPenalty": 1.0}),
    ({"top_logprobs": 2}, {"responseLogprobs": True, "logprobs": 2}),
    ({"text": {"format": {"type": "json_object"}}}, {"responseMimeType": "application/json"}),
    (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
        {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
    ),
]


@pytest.mark.parametrize(("given", "expected"), GENERATION)
def test_settings_of_the_answer_are_its_generation_config(given: Json, expected: Json) -> None:
    body, cases = sent(given)
    assert (body["generationConfig"], cases) == (expected, [])


LEVELS: list[tuple[str, str, Json]] = [
    ("gemini-3-flash", "low", {"thinkingLevel": "LOW"}),
    ("gemini-3-flash", "max", {"thinkingLevel": "HIGH"}),
    ("gemini-3-pro-preview", "medium", {"thinkingLevel": "HIGH"}),
    ("gemini-3.1-pro-preview", "medium", {"thinkingLevel": "MEDIUM"}),
    ("models/gemini-flash-latest", "minimal", {"thinkingLevel": "MINIMAL"}),
    ("gemini-2.5-flash", "medium", {"thinkingBudget": 8192}),
    ("google/gemini-2.5-pro", "xhigh", {"thinkingBudget": 32768}),
    ("gemini-2.5-flash-lite", "minimal", {"thinkingBudget": 1024}),
]


@pytest.mark.parametrize(("model", "effort", "expected"), LEVELS)
def test_effort_is_a_level_or_a_budget(model: str, effort: str, expected: Json) -> None:
    body, _ = sent({"reasoning": {"effort": effort}}, model=model)
    assert body["generationConfig"]["thinkingConfig"] == expected | {"includeThoughts": True}


def test_thinking_is_turned_off_where_that_is_possible() -> None:
    off = {"reasoning": {"effort": "none"}}
    for model, expected in (
        ("gemini-2.5-flash", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", {"thinkingBudget": 1024}),
        ("gemini-3-pro", {"thinkingLevel": "LOW"}),
    ):
        assert sent(off, model=model)[0]["generationConfig"] == {"thinkingConfig": expected}
    assert "generationConfig" not in sent(off, model="gemini-2.0-flash")[0]
    assert sent({"reasoning": {"effort": "high"}}, model="gemma-3-27b-it")[1] == [
        "loss: reasoning.effort: the model does not think"
    ]


def test_choices_are_candidates_where_the_server_gives_several() -> None:
    assert sent({}, GeminiOptions(candidates=True), choices=3)[0]["generationConfig"] == {"candidateCount": 3}
    assert "generationConfig" not in sent({}, choices=3)[0]


def test_what_may_pass_passes_and_overrides_nothing() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]
    fields: Json = {
        "safetySettings": safety,
        "contents": [],
        "generationConfig": {"responseModalities": ["IMAGE"]},
    }
    body, cases = sent(fields | {"temperature": 1}, GeminiOptions(passes=frozenset({"*"})))
    assert body["safetySettings"] == safety
    assert body["contents"] == [{"role": "user", "parts": text("Hi")}]
    assert body["generationConfig"] == {"temperature": 1.0, "responseModalities": ["IMAGE"]}
    assert cases == ["loss: contents: is not known"]
    assert "safetySettings" not in sent(fields)[0]
    odd, cases = sent({"generationConfig": 7}, GeminiOptions(passes=frozenset({"*"})))
    assert ("generationConfig" in odd, len(cases)) == (False, 1)
    extra = GeminiOptions(extra={"safetySettings": safety, "generationConfig": {"topK": 4}})
    assert sent({"top_k": 2}, extra)[0]["generationConfig"] == {"topK": 2}


def test_what_a_client_of_this_api_has_brought_is_restored() -> None:
    carried = CarriedFields(
        body={"cachedContent": "cachedContents/1"},
        generation={"thinkingConfig": {"thinkingBudget": 7}, "responseModalities": ["TEXT"]},
        tool_config={"functionCallingConfig": {"streamFunctionCallArguments": True}},
        parts={"0.0": CarriedPart("text", {}, {"partMetadata": {"a": 1}})},
        items=1,
    )
    item = {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    request = decode_request(json.dumps({"input": [item], "tools": [TOOL], "tool_choice": "auto"}))
    client_request = CreateResponse(
        model="gemini-3-flash",
        input=request.input,
        tools=request.tools,
        tool_choice=request.tool_choice,
        native=carried.native(),
    )
    body, diagnostics = to_gemini(client_request)
    assert list(diagnostics) == []
    assert body["cachedContent"] == "cachedContents/1"
    assert body["generationConfig"] == carried.generation
    assert body["contents"][0]["parts"] == [{"text": "Hi", "partMetadata": {"a": 1}}]
    assert body["toolConfig"] == {
        "functionCallingConfig": {"mode": "AUTO", "streamFunctionCallArguments": True}
    }


def test_a_conversation_of_thousands_of_calls_is_one_request() -> None:
    items = [user("a")]
    for number in range(2_000):
        items += [call(number), output(number)]
    assert len(contents(items)) == 4_001
