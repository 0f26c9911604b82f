"""Every field that google-genai's own types have, in requests and answers as they are on the wire.

`tests/bridge/dialects/gemini/fields.json` stores the result of `fields_of_sdk`, so that the tests need no
SDK. `tests/clients/test_gemini_fields.py` compares both; `python -m tests.support.gemini_fields` writes the
file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from openresponses_bridge.dialects.gemini import (
    Inbound,
    Outbound,
    answer,
    encode_chunk,
    from_gemini,
    to_gemini,
)
from openresponses_bridge.dialects.gemini.client.answer import Folding
from openresponses_bridge.dialects.gemini.types import camel
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.seal import Sealer
from tests.support.typed_fields import Sample, TypedFields

Json = dict[str, Any]
SEALER: Final = Sealer()
LIST: Final = Path(__file__).parents[1] / "bridge" / "dialects" / "gemini" / "fields.json"
OF_CLIENT: Final = {
    "GenerateContentConfig.httpOptions": "how the SDK sends",
    "GenerateContentConfig.shouldReturnHttpResponse": "how the SDK answers",
    "GenerateContentConfig.automaticFunctionCalling": "the SDK's own loop",
    "GenerateContentConfig.automaticContinuation": "the SDK's own loop",
    "GenerateContentResponse.sdkHttpResponse": "made by the SDK",
    "GenerateContentResponse.automaticFunctionCallingHistory": "made by the SDK",
    "GenerateContentResponse.parsed": "made by the SDK",
}
"""Fields of the SDK's types that it never sends, each with the reason."""
OURS: Final = {
    "requests": {"GenerateContentConfig.candidateCount": "several candidates are several requests"},
    "answers": {
        "responseId": "the response's own id",
        "candidates.index": "a loss: of several that nobody asked for the first is kept",
        "candidates.content.role": "always the model",
        "candidates.content.parts.functionCall.partialArgs": "calls come whole",
        "candidates.content.parts.functionCall.willContinue": "calls come whole",
        "candidates.logprobsResult.chosenCandidates.tokenId": "a loss: tokens have no ids here",
        "candidates.logprobsResult.topCandidates.candidates.tokenId": "a loss: tokens have no ids here",
    },
}
"""Fields that the bridge answers itself or loses, each with how or why."""
_URI: Final = "https://files.example/a.png"
_IMAGE: Final = {"mimeType": "image/png", "data": "AAAA"}
_FILE: Final = {"mimeType": "video/mp4", "fileUri": "gs://bucket/a.mp4"}
NEEDED: Final[dict[str, Json]] = {
    "FunctionDeclaration": {"name": "look"},
    "FunctionCall": {"id": "c1", "name": "look"},
    "FunctionResponse": {"id": "c1", "name": "look"},
    "FunctionResponsePart": {"inlineData": _IMAGE},
    "FunctionResponseBlob": _IMAGE,
    "FunctionResponseFileData": _FILE,
    "Blob": _IMAGE,
    "PartialArg": {"jsonPath": "$.a", "stringValue": "b"},
    "FileData": _FILE,
}
_READY: Final[Json] = {"FunctionCallingConfigMode": "VALIDATED", "Type": "STRING"}
NAMED: Final = {
    "fileUri": _FILE["fileUri"],
    "topK": 40.0,
    "jsonPath": "$.a",
    "ref": "#",
    "avgLogprobs": -0.5,
}
NAMED_IN_PARTS: Final = {"id": "c1", "name": "look", **NAMED}
READY_IN_CONFIG: Final[Json] = {
    "File": {"uri": _URI, "mimeType": "image/png"},
    "Part": {"text": "text"},
    "Content": {"role": "user", "parts": [{"text": "Hello"}]},
}
_OF_MEDIA: Final = frozenset({"videoMetadata", "mediaResolution", "mediaProcessing", "audioMetadata"})
_OF_TEXT: Final = frozenset({"thought", "thoughtSignature", "partMetadata", "speechMetadata"})
_CALL: Final[Json] = {"functionCall": {"id": "c1", "name": "look", "args": {}}}
_ANSWER: Final[Json] = {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "seen"}}}
_HELLO: Final[Json] = {"role": "user", "parts": [{"text": "Hello"}]}


def fields_in_list() -> Json:
    """Return `requests` and `answers` from the file: a wire value by the path of each field."""
    fields: Json = json.loads(LIST.read_text("utf-8"))
    return fields


def fields_of_sdk() -> Json:
    """Return `requests` and `answers`, derived from the installed SDK."""
    sdk = import_module("google.genai.types")
    return {"requests": dict(_requests(sdk)), "answers": dict(_answers(sdk))}


def _requests(sdk: Any) -> Iterator[tuple[str, Json]]:
    cases = asked(
        TypedFields(NEEDED, _READY | READY_IN_CONFIG, NAMED).of(sdk.GenerateContentConfig),
        TypedFields(NEEDED, _READY, NAMED).of(sdk.Tool),
        TypedFields(NEEDED, _READY, NAMED_IN_PARTS).of(sdk.Part),
    )
    for field, contents, config in cases:
        yield field, _wire(sdk, contents, config)


def asked(
    configs: Iterable[Sample], tools: Iterable[Sample], parts: Iterable[Sample]
) -> Iterator[tuple[str, list[Json], Json]]:
    """(the name of a field, the contents and the configuration to give to an SDK), for the types of
    configurations, tools and parts."""
    for path, value in configs:
        name = ".".join(("GenerateContentConfig", *path))
        if path[0] == "logprobs":
            value = value | {"responseLogprobs": True}
        if path[0] != "tools" and not any(name.startswith(own) for own in OF_CLIENT):
            yield name, [_HELLO], value
    for path, value in tools:
        yield ".".join(("Tool", *path)), [_HELLO], {"tools": [value]}
    for path, value in parts:
        for role, contents in _conversations(path[0], value):
            yield ".".join((f"Part of {role}", *path)), contents, {}


def _conversations(kind: str, part: Json) -> Iterator[tuple[str, list[Json]]]:
    """Conversations in which such a part is allowed."""
    if kind in _OF_MEDIA or (kind.endswith("Metadata") and kind not in _OF_TEXT):
        part = {"fileData": _FILE} | part
    elif kind in _OF_TEXT:
        part = {"text": "text"} | part
    if kind == "functionCall":
        yield "model", [_HELLO, {"role": "model", "parts": [part]}, {"role": "user", "parts": [_ANSWER]}]
    elif kind == "functionResponse":
        yield "user", [_HELLO, {"role": "model", "parts": [_CALL]}, {"role": "user", "parts": [part]}]
    else:
        yield "user", [{"role": "user", "parts": [part]}]
        yield "model", [_HELLO, {"role": "model", "parts": [part]}, _HELLO]


def _wire(sdk: Any, contents: list[Json], config: Json) -> Json:
    """The body that the SDK sends: by the Gemini API's rules, or by Vertex AI's for fields that those
    exclude."""
    models, common = import_module("google.genai.models"), import_module("google.genai._common")
    parameters = sdk._GenerateContentParameters(
        model="m",
        contents=[sdk.Content.model_validate(each) for each in contents],
        config=sdk.GenerateContentConfig.model_validate(config),
    )
    try:
        client = SimpleNamespace(vertexai=False)
        body = models._GenerateContentParameters_to_mldev(client, parameters, None, parameters)
    except ValueError:
        client = SimpleNamespace(vertexai=True, project="p", location="l")
        body = models._GenerateContentParameters_to_vertex(client, parameters, None, parameters)
    body = common.encode_unserializable_types(common.convert_to_dict(body))
    return {name: value for name, value in body.items() if not name.startswith("_") and value != {}}


def _answers(sdk: Any) -> Iterator[tuple[str, Json]]:
    return answers(TypedFields(NEEDED, _READY, NAMED).of(sdk.GenerateContentResponse))


def answers(responses: Iterable[Sample]) -> Iterator[tuple[str, Json]]:
    """(the name of a field, an answer that has it), for the type of responses."""
    for path, value in responses:
        name = ".".join(("GenerateContentResponse", *path))
        if not any(name.startswith(own) for own in OF_CLIENT):
            yield name, value


_ENDED: Final[Json] = {"finishReason": "STOP", "content": {"role": "model", "parts": [{"text": "Hello"}]}}


def as_answer(given: Json) -> Json:
    """An answer with this field as a server might give it."""
    if "usageMetadata" in given:
        given["usageMetadata"] = {"promptTokenCount": 9, "candidatesTokenCount": 4, **given["usageMetadata"]}
    if given.get("promptFeedback", {}).get("blockReason"):
        return given
    candidates = [{**_ENDED, **each} for each in given.get("candidates", [{}])]
    for each in candidates:
        for part in each["content"].get("parts", ()):
            part |= {"text": "Hm."} if part.get("thought") else {}
        each["content"] = {"role": "model", "parts": [{"text": "Hello"}]} | each["content"]
        tokens = each.get("logprobsResult", {})
        for token in (*tokens.get("chosenCandidates", ()), *_others(tokens)):
            token |= {"token": "Hello", "logProbability": -0.5} | token
        if "topCandidates" in tokens and "chosenCandidates" not in tokens:
            tokens["chosenCandidates"] = [{"token": "Hello", "logProbability": -0.5}]
    return {"modelVersion": "gemini-3-pro", **given, "candidates": candidates}


def _others(tokens: Json) -> list[Json]:
    return [token for each in tokens.get("topCandidates", ()) for token in each.get("candidates", ())]


def is_ours(section: str, field: str) -> str:
    """Return how the bridge answers a field itself, or why it loses it; "" for all other fields."""
    own = f"{field.removeprefix('GenerateContentResponse.')}."
    return next((why for name, why in OURS[section].items() if own.startswith(f"{name}.")), "")


def parts_joined(given: Json) -> Json:
    """The answer in which a text and the parts without text after it are one part."""
    copy = deepcopy(given)
    for candidate in copy.get("candidates", ()):
        joined: list[Json] = []
        for part in candidate.get("content", {}).get("parts", ()):
            if joined and part.get("text") == "" and "text" in joined[-1]:
                joined[-1] |= {name: value for name, value in part.items() if name != "text"}
            else:
                joined.append(part)
        candidate["content"]["parts"] = joined
    return copy


def written(fields: Json) -> str:
    """The text of the file: one line per field."""
    sections = []
    for section, values in fields.items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps(values[name], sort_keys=True)}" for name in sorted(values)
        ]
        sections.append(f" {json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def alike(value: Any) -> Any:
    """Return a wire value with camel-case names; Google accepts these and snake-case names."""
    if isinstance(value, dict):
        return {camel(name): alike(each) for name, each in value.items()}
    return [alike(each) for each in value] if isinstance(value, list) else value


def missing(sent: Any, found: Any, where: str = "") -> list[str]:
    """The paths of values that were sent and that did not arrive unchanged."""
    if isinstance(sent, dict) and isinstance(found, dict):
        return [
            path
            for name, each in sent.items()
            for path in missing(each, found.get(name), f"{where}.{name}" if where else name)
        ]
    if isinstance(sent, list) and isinstance(found, list) and len(sent) == len(found):
        pairs = enumerate(zip(sent, found, strict=True))
        return [path for index, (one, other) in pairs for path in missing(one, other, f"{where}[{index}]")]
    return [] if sent == found and isinstance(sent, bool) is isinstance(found, bool) else [where]


def sent(body: Json) -> tuple[Json, list[str]]:
    """Return what the upstream gets of such a body, and the reported losses."""
    request, read = from_gemini(encode(body), SEALER)
    payload, written = to_gemini(request, model="gemini-3-pro", sealer=SEALER)
    wire: Json = alike(decode_json(encode(payload)))
    return wire, [str(case) for case in (*read, *written)]


def returned(frames: list[Json]) -> tuple[Json, Json, list[str]]:
    """Return what a client gets for the frames of an upstream: (the folded stream, the whole answer, the
    reported losses)."""
    machine = ResponseStreamStateMachine("gemini-3-pro")
    inbound, outbound, folding = Inbound(machine, SEALER), Outbound(SEALER), Folding()
    events = [event for frame in frames for event in inbound.feed(encode(frame))] + inbound.close()
    folding.feed(chunk for event in events for chunk in outbound.feed(event))
    streamed = decode_json(encode_chunk(folding.whole))
    whole = decode_json(encode_chunk(answer([machine.snapshot], SEALER)))
    return (
        streamed,
        whole,
        [str(case) for case in (*machine.diagnostics, *outbound.diagnostics) if case.kind != "ignored"],
    )


if __name__ == "__main__":
    LIST.write_text(written(fields_of_sdk()), "utf-8")
