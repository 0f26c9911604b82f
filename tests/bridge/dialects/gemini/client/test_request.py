"""What a client of `generateContent` sends → a request of ours."""

import json
from base64 import b64encode, urlsafe_b64encode
from contextlib import suppress
from typing import Any

import pytest

from openresponses_bridge.dialects.base import seal_reasoning
from openresponses_bridge.dialects.gemini import answer_options, from_gemini
from openresponses_bridge.dialects.gemini.carried import CarriedPart, carried_by
from openresponses_bridge.dialects.gemini.signatures import Signed, open_signatures
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol import input_items as it
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import InputTextContent, OutputTextParam, SummaryTextContent
from openresponses_bridge.protocol.tools import AllowedToolChoice, FunctionToolChoice
from openresponses_bridge.seal import Sealer
from tests.support.shared import shared_files

SEALER = Sealer()
HELLO: Any = {"role": "user", "parts": [{"text": "Hello"}]}
PIXEL = b"\xff\xfa\x00\xbe\xef"
WRONG: tuple[Any, ...] = (
    *(None, True, 5, 2**70, 1.5, 1e308, "", "x", "\ud800", "a\r\nb"),
    *([], ["x"], [None], [[]], {}, {"a": 1}, {"text": []}, [{"text": 7}]),
)


def read(*contents: Any, **fields: Any) -> Any:
    return from_gemini({"contents": list(contents), **fields}, SEALER)[0]


def model(*parts: Any) -> Any:
    return {"role": "model", "parts": list(parts)}


def user(*parts: Any) -> Any:
    return {"role": "user", "parts": list(parts)}


def called(name: str = "f", **more: Any) -> Any:
    return {"functionCall": {"name": name, "args": {"a": 1}, **more}}


def answered(name: str = "f", **more: Any) -> Any:
    return {"functionResponse": {"name": name, "response": {"result": "r"}, **more}}


def refused(*contents: Any, **fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(*contents, **fields)
    return caught.value


def losses(*contents: Any, **fields: Any) -> list[str]:
    request, diagnostics = from_gemini({"contents": list(contents), **fields}, SEALER)
    return [*(each.where for each in diagnostics.of("loss")), *request.native.names]


def kinds(request: Any) -> list[str]:
    return [item.type for item in request.input]


def test_texts_of_both_roles_and_an_instruction() -> None:
    request = read(
        {"parts": [{"text": "a"}, {"text": "b"}]},
        model({"text": "c"}),
        HELLO,
        systemInstruction={"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
    )
    assert request.instructions == "Be brief.\n\nBe kind."
    assert [item.role for item in request.input] == ["user", "assistant", "user"]
    assert request.input[0].content == [InputTextContent("a"), InputTextContent("b")]
    assert read(HELLO, systemInstruction="Be brief.").instructions == "Be brief."
    assert request.store is False


@pytest.mark.parametrize(
    "body",
    [
        {"contents": {"parts": {"text": "Hello"}}, "system_instruction": {"parts": {"text": "s"}}},
        {"contents": [{"parts": [{"text": "Hello"}]}], "systemInstruction": {"parts": [{"text": "s"}]}},
    ],
)
def test_one_object_stands_for_a_list_of_one(body: Any) -> None:
    request, _ = from_gemini(body)
    assert (request.instructions, request.input[0].content) == ("s", [InputTextContent("Hello")])


def test_both_spellings_of_every_name() -> None:
    camel = {
        "contents": [model({"functionCall": {"name": "f", "args": {"a_b": 1}}, "thoughtSignature": "c2ln"})],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"maxOutputTokens": 9, "topK": 40.0, "thinkingConfig": {"thinkingBudget": 0}},
    }
    snake = {
        "contents": [
            model({"function_call": {"name": "f", "args": {"a_b": 1}}, "thought_signature": "c2ln"})
        ],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}},
        "generation_config": {"max_output_tokens": 9, "top_k": 40, "thinking_config": {"thinking_budget": 0}},
    }
    one, two = from_gemini(camel, SEALER)[0], from_gemini(snake, SEALER)[0]
    assert encode(one.input) == encode(two.input)
    assert one.tool_choice == two.tool_choice == FunctionToolChoice("f")
    assert (one.max_output_tokens, one.top_k, one.reasoning) == (9, 40, two.reasoning)
    assert json.loads(one.input[-1].arguments) == {"a_b": 1}


def test_the_chunks_of_a_stream_as_contents_are_one_turn() -> None:
    request = read(
        HELLO, model({"text": "Hel"}), model({"text": "lo"}), model(called(id="c")), user(answered())
    )
    assert kinds(request) == ["message", "message", "function_call", "function_call_output"]
    assert request.input[1].content == [OutputTextParam("Hello")]


def test_calls_are_answered_by_id_else_by_name_in_order() -> None:
    request = read(
        HELLO,
        model(called(id="x"), called("g"), called("g")),
        user(answered("g"), answered(id="x"), answered("g", id="made-by-the-client")),
    )
    call_ids = [item.call_id for item in request.input if isinstance(item, it.FunctionCallParam)]
    output_ids = [item.call_id for item in request.input if isinstance(item, it.FunctionCallOutputParam)]
    assert call_ids[0] == "x"
    assert len(set(call_ids)) == 3
    assert output_ids == [call_ids[1], "x", call_ids[2]]


def test_a_made_id_is_none_that_the_client_gave() -> None:
    request = read(HELLO, model(called(id="call_1"), called("g")), user(answered(id="call_1"), answered("g")))
    assert request.input[2].call_id == request.input[4].call_id != "call_1"


def test_an_answer_without_a_call_is_refused() -> None:
    error = refused(HELLO, user(answered("g")))
    assert (error.code, error.param) == ("unpaired_tool_call", "contents[1].parts[0].functionResponse.name")


@pytest.mark.parametrize(
    ("response", "text", "failed"),
    [
        ({"output": "o"}, "o", False),
        ({"result": "o"}, "o", False),
        ({"error": "o"}, "o", True),
        ({"error": {"code": 1}}, '{"error":{"code":1}}', True),
        ({"result": 3}, '{"result":3}', False),
        ({"output": "o", "more": 1}, '{"output":"o","more":1}', False),
        ({}, "{}", False),
    ],
)
def test_what_a_function_gave(response: Any, text: str, failed: bool) -> None:
    part = {"functionResponse": {"name": "f", "response": response}}
    item = read(HELLO, model(called()), user(part)).input[-1]
    assert (item.output, item.status == "incomplete") == (text, failed)


def test_files_of_a_function_and_what_it_said() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": b64encode(PIXEL).decode()}}
    item = read(HELLO, model(called()), user(answered(parts=[image]))).input[-1]
    assert [part.type for part in item.output] == ["input_text", "input_image"]


@pytest.mark.parametrize(
    "encoded", [b64encode(PIXEL), urlsafe_b64encode(PIXEL), urlsafe_b64encode(PIXEL).rstrip(b"=")]
)
@pytest.mark.parametrize(
    ("media", "kind"),
    [
        ("image/png", "input_image"),
        ("video/mp4", "input_video"),
        ("audio/wav", "input_audio"),
        ("application/pdf", "input_file"),
        ("text/plain", "input_file"),
    ],
)
def test_data_in_either_alphabet(encoded: bytes, media: str, kind: str) -> None:
    request = read(user({"inlineData": {"mimeType": media, "data": encoded.decode()}}))
    (part,) = request.input[0].content
    assert part.type == kind
    assert b64encode(PIXEL).decode() in encode(part).decode()


@pytest.mark.parametrize(
    ("uri", "media", "field"),
    [
        ("https://a.example/b.png", "image/png", "image_url"),
        ("data:image/png;base64,AA==", "image/png", "image_url"),
        ("https://a.example/b.mp4", "video/mp4", "video_url"),
        ("https://youtu.be/abc", None, "video_url"),
        ("https://a.example/b.pdf", "application/pdf", "file_url"),
        ("data:application/pdf;base64,AA==", "application/pdf", "file_data"),
    ],
)
def test_a_file_at_an_address(uri: str, media: str | None, field: str) -> None:
    (part,) = read(user({"fileData": {"fileUri": uri, "mimeType": media}})).input[0].content
    assert getattr(part, field) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "ftp://a.example/x",
        "",
    ],
)
def test_a_file_that_can_t_be_read_here_is_refused(uri: str) -> None:
    error = refused(user({"fileData": {"fileUri": uri, "mimeType": "image/png"}}))
    assert error.param == "contents[0].parts[0].fileData.fileUri"


def test_thoughts_and_google_s_signatures_keep_their_places() -> None:
    request = read(
        HELLO,
        model(
            {"text": "Hm.", "thought": True, "thoughtSignature": "dGhvdWdodA=="},
            {"text": "So:", "thoughtSignature": "dGV4dA=="},
            {**called(id="c"), "thoughtSignature": "Y2FsbA=="},
        ),
        user(answered()),
    )
    assert kinds(request)[1:5] == ["reasoning", "message", "reasoning", "reasoning"]
    signatures = [
        open_signatures(SEALER, item.encrypted_content) for item in request.input if item.type == "reasoning"
    ]
    assert signatures == [
        [Signed("dGhvdWdodA==", "thought", 0, 3)],
        [Signed("dGV4dA==", "text", 0, 3)],
        [Signed("Y2FsbA==", "next", call_id="c")],
    ]
    assert request.input[1].summary == [SummaryTextContent("Hm.")]


def test_a_signature_alone_on_an_empty_part() -> None:
    request = read(HELLO, model({"text": "So"}, {"text": "", "thoughtSignature": "c2ln"}), HELLO)
    assert open_signatures(SEALER, request.input[2].encrypted_content) == [Signed("c2ln", "text", 2, 0)]


@pytest.mark.parametrize("alphabet", ["standard", "for URLs", "without padding"])
def test_another_upstream_s_reasoning_is_opened_however_it_was_encoded(alphabet: str) -> None:
    reasoning = {"id": "rs_1", "summary": ["Hm.\xff\xbe"], "encrypted_content": "opaque>>>???"}
    signature = seal_reasoning(SEALER, [reasoning])
    if alphabet != "standard":
        signature = signature.replace("+", "-").replace("/", "_")
    if alphabet == "without padding":
        signature = signature.rstrip("=")
    thought = {"text": "Hm.", "thought": True}
    for part in ({**called(), "thoughtSignature": signature}, {"text": "a", "thoughtSignature": signature}):
        request = read(
            HELLO, model(thought, part), *([user(answered())] if "functionCall" in part else [HELLO])
        )
        item = request.input[1]
        assert (item.type, item.id, item.encrypted_content) == ("reasoning", "rs_1", "opaque>>>???")
        assert kinds(request).count("reasoning") == 1, "the thought is in it"


def test_an_envelope_of_another_owner_is_a_loss() -> None:
    reasoning = {"id": "rs_1", "summary": [], "encrypted_content": "e"}
    signature = seal_reasoning(SEALER.bound("another"), [reasoning])
    assert losses(HELLO, model({"text": "a", "thoughtSignature": signature}), HELLO) == ["thoughtSignature"]


def test_parts_of_google_s_own_tools_stay_as_they_came() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"}
    request = read(HELLO, model(code, {"tool_call": {"tool_type": "FILE_SEARCH", "args": {"a_b": 1}}}))
    assert kinds(request)[1:] == ["gemini:executableCode", "gemini:toolCall"]
    assert request.input[1].raw["part"] == code
    assert request.input[2].raw["part"] == {"toolCall": {"toolType": "FILE_SEARCH", "args": {"a_b": 1}}}


def test_functions_with_either_kind_of_schema_and_google_s_tools() -> None:
    declared = [
        {
            "name": "f",
            "description": "d",
            "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
        },
        {"name": "g", "parametersJsonSchema": {"type": "object", "additionalProperties": False}},
        {"name": "h"},
    ]
    tools = [
        {"functionDeclarations": declared},
        {"googleSearch": {}},
        {"codeExecution": {}},
        {"url_context": {}},
    ]
    parsed_tools = read(HELLO, tools=tools).tools
    assert parsed_tools[0].parameters == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert parsed_tools[1].parameters == {"type": "object", "additionalProperties": False}
    assert [tool.type for tool in parsed_tools[3:]] == ["web_search", "code_interpreter", "gemini:urlContext"]


@pytest.mark.parametrize(
    ("calling", "choice"),
    [
        ({"mode": "AUTO"}, "auto"),
        ({"mode": "NONE", "allowedFunctionNames": ["f"]}, "none"),
        ({"mode": "any"}, "required"),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, FunctionToolChoice("f")),
        (
            {"mode": "ANY", "allowedFunctionNames": ["f", "g"]},
            AllowedToolChoice([FunctionToolChoice("f"), FunctionToolChoice("g")], "required"),
        ),
        ({}, None),
    ],
)
def test_which_functions_may_be_called(calling: Any, choice: Any) -> None:
    assert read(HELLO, toolConfig={"functionCallingConfig": calling}).tool_choice == choice


@pytest.mark.parametrize(
    ("thinking", "effort", "summary"),
    [
        ({"thinkingLevel": "HIGH", "includeThoughts": True}, "high", "auto"),
        ({"thinkingLevel": "low"}, "low", None),
        ({"thinkingBudget": 0}, "none", None),
        ({"thinkingBudget": 7000}, "medium", None),
        ({"thinkingBudget": -1, "includeThoughts": True}, None, "auto"),
        ({"thinkingBudget": -1}, None, None),
    ],
)
def test_how_much_to_think(thinking: Any, effort: str | None, summary: str | None) -> None:
    request = read(HELLO, generationConfig={"thinkingConfig": thinking})
    reasoning = request.reasoning
    assert ((reasoning.effort or None, reasoning.summary or None) if reasoning else (None, None)) == (
        effort,
        summary,
    )
    assert carried_by(request).generation["thinkingConfig"] == thinking


def test_the_form_of_the_answer() -> None:
    schema = {"type": "OBJECT", "properties": {"b": {"type": "INTEGER"}, "a": {"type": "STRING"}}}
    config = {
        "responseMimeType": "application/json",
        "responseSchema": {**schema, "propertyOrdering": ["a", "b"]},
    }
    text_format = read(HELLO, generationConfig=config).text.format
    assert list(text_format.schema["properties"]) == ["a", "b"]
    assert (
        read(HELLO, generationConfig={"responseMimeType": "application/json"}).text.format.type
        == "json_object"
    )
    assert read(HELLO, generationConfig={"responseMimeType": "text/plain"}).text is None
    word = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a"]}}
    assert losses(HELLO, generationConfig=word) == ["generationConfig.responseMimeType"]


def test_how_many_candidates_and_whether_thoughts_are_wanted() -> None:
    options = answer_options(
        {"generationConfig": {"candidateCount": 2, "thinkingConfig": {"includeThoughts": True}}}
    )
    assert (options.n, options.thoughts) == (2, True)
    assert answer_options({}).n == 1
    for wrong in (0, 9, "x", 1.5, True):
        with pytest.raises(InvalidRequestError) as caught:
            answer_options({"generationConfig": {"candidateCount": wrong}})
        assert caught.value.param == "generationConfig.candidateCount"


def test_what_only_gemini_has_is_carried_and_elsewhere_a_loss() -> None:
    request = read(
        HELLO,
        user({"inlineData": {"mimeType": "video/mp4", "data": "AA=="}, "videoMetadata": {"fps": 2}}),
        safetySettings=[{"category": "a", "threshold": "b"}],
        cachedContent="cachedContents/x",
        generationConfig={"mediaResolution": "LOW", "responseModalities": ["IMAGE"], "temperature": 1},
        toolConfig={"retrievalConfig": {"latLng": {}}},
    )
    carried = carried_by(request)
    assert carried.body.keys() == {"safetySettings", "cachedContent"}
    assert carried.generation == {"mediaResolution": "LOW", "responseModalities": ["IMAGE"]}
    assert carried.tool_config == {"retrievalConfig": {"latLng": {}}}
    assert carried.parts == {
        "0.1": CarriedPart("inlineData", {"mimeType": "video/mp4"}, {"videoMetadata": {"fps": 2}})
    }
    assert set(request.native.names) == {
        *("safetySettings", "cachedContent", "inlineData.videoMetadata", "toolConfig.retrievalConfig"),
        *("generationConfig.mediaResolution", "generationConfig.responseModalities"),
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": [{"parts": []}]}, "contents"),
        ({"contents": [7]}, "contents[0]"),
        ({"contents": [{"role": "wizard", "parts": []}]}, "contents[0].role"),
        ({"contents": [{"parts": [{"text": "a", "functionCall": {}}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{"text": 7}]}]}, "contents[0].parts[0].text"),
        (
            {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "!"}}]}]},
            "contents[0].parts[0].inlineData.data",
        ),
        (
            {"contents": HELLO, "tools": [{"functionDeclarations": [{}]}]},
            "tools[0].functionDeclarations[0].name",
        ),
        ({"contents": HELLO, "generationConfig": {"topK": 1.5}}, "generationConfig.topK"),
        ({"contents": HELLO, "generationConfig": {"maxOutputTokens": 0}}, "generationConfig.maxOutputTokens"),
        ({"contents": HELLO, "generationConfig": {"seed": 2**70}}, "generationConfig.seed"),
    ],
)
def test_what_is_wrong_has_its_place(fields: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        from_gemini(fields)
    assert caught.value.param == param


WHOLE: Any = {
    "model": "models/m",
    "contents": [
        user({"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": "AA==", "displayName": "n"}}),
        model(
            {"text": "t", "thought": True, "thoughtSignature": "c2ln"},
            {"text": "b", "thoughtSignature": "c2ln"},
            {**called(id="c"), "thoughtSignature": "c2ln"},
            {"executableCode": {"code": "1", "id": "x"}},
        ),
        user(
            answered(id="c", parts=[{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]),
            {"fileData": {"fileUri": "https://a.example/b.png", "mimeType": "image/png"}},
        ),
    ],
    "systemInstruction": {"parts": [{"text": "s"}]},
    "tools": [
        {"functionDeclarations": [{"name": "f", "description": "d", "parameters": {"type": "OBJECT"}}]},
        {"googleSearch": {"timeRangeFilter": {"startTime": "x"}}},
        {"codeExecution": {}},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f", "g"]}},
    "safetySettings": [{"category": "c", "threshold": "t"}],
    "cachedContent": "cachedContents/x",
    "serviceTier": "standard",
    "generationConfig": {
        "stopSequences": ["x"],
        "responseMimeType": "application/json",
        "responseSchema": {
            "type": "OBJECT",
            "properties": {"a": {"type": "ARRAY", "items": {"type": "STRING"}}},
        },
        "candidateCount": 1,
        "maxOutputTokens": 9,
        "temperature": 1.0,
        "topP": 1,
        "topK": 4,
        "seed": 1,
        "presencePenalty": 0.5,
        "frequencyPenalty": 0.5,
        "responseLogprobs": True,
        "logprobs": 2,
        "responseModalities": ["TEXT"],
        "thinkingConfig": {"thinkingBudget": 5, "includeThoughts": True},
    },
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for name, within in inner for each in places(within, (*path, name)))]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: json.dumps(value)[:20])
def test_a_value_of_any_type_in_any_place_is_read_or_refused(wrong: Any) -> None:
    whole = json.dumps(WHOLE)
    for path in places(WHOLE)[1:]:
        body = json.loads(whole)
        holder = body
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = wrong
        with suppress(InvalidRequestError):
            request, _ = from_gemini(body, SEALER)
            answer_options(body)
            assert request.input, path


def test_of_a_whole_body_only_what_has_no_counterpart_is_lost() -> None:
    request, diagnostics = from_gemini(WHOLE, SEALER)
    assert list(diagnostics) == []
    assert set(request.native.names) == {
        *("safetySettings", "cachedContent", "tools[1].googleSearch.timeRangeFilter")
    }


@pytest.mark.parametrize("recording", shared_files("gemini-requests", "*.jsonl"))
def test_requests_of_real_clients_are_read(recording: Any) -> None:
    for line in recording.read_text().splitlines():
        body = json.loads(line)["body"]
        request, diagnostics = from_gemini(body.get("generateContentRequest", body), SEALER)
        assert request.input
        assert list(diagnostics) == []
