"""Draws what becomes of Gemini's fields at upstreams of other APIs, by translating a request with each."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import RequestContext
from openresponses_bridge.dialects.gemini import from_gemini
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer

Json = dict[str, Any]
MODELS: Final = {
    "gemini": "gemini-3-pro",
    "chat": "gpt-5.6",
    "anthropic": "claude-opus-5",
    "responses": "gpt-5.6",
    "interactions": "gemini-3-pro",
    "bedrock": "anthropic.claude-opus-5",
}
"""The model that is asked in each dialect."""


def _part(part: Json) -> Json:
    return {"contents": [{"role": "user", "parts": [{"text": "Look:"}, part]}]}


def _data(media: str, **more: Any) -> Json:
    return _part({"inlineData": {"mimeType": media, "data": "AAAA", **more}})


def _file(uri: str, media: str) -> Json:
    return _part({"fileData": {"fileUri": uri, "mimeType": media}})


def _generation(**fields: Any) -> Json:
    return {"generationConfig": fields}


_LOOK: Final = [{"functionDeclarations": [{"name": "look", "parameters": {"type": "OBJECT"}}]}]
SAMPLES: Final[dict[str, Json]] = {
    "`inlineData`, an image": _data("image/png"),
    "`inlineData`, audio": _data("audio/wav"),
    "`inlineData`, a video": _data("video/mp4"),
    "`inlineData`, a document": _data("application/pdf", displayName="a.pdf"),
    "`fileData`, an image by address": _file("https://a.example/a.png", "image/png"),
    "`fileData`, a document by address": _file("https://a.example/a.pdf", "application/pdf"),
    "`fileData`, a YouTube video": _file("https://youtu.be/a", "video/mp4"),
    "`fileData`, a file that Google keeps": _file("gs://bucket/a.pdf", "application/pdf"),
    "`videoMetadata`, `mediaResolution` of a part": _part(
        {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}, "videoMetadata": {"fps": 2}}
    ),
    "`systemInstruction`": {"systemInstruction": {"parts": [{"text": "Be brief."}]}},
    "`cachedContent`": {"cachedContent": "cachedContents/1"},
    "`serviceTier`": {"serviceTier": "flex"},
    "`safetySettings`": {"safetySettings": [{"category": "a", "threshold": "b"}]},
    "`labels`": {"labels": {"a": "b"}},
    "`functionDeclarations`": {"tools": _LOOK},
    "`functionDeclarations.behavior`, `response`": {
        "tools": [{"functionDeclarations": [{"name": "look", "behavior": "NON_BLOCKING"}]}]
    },
    "`functionCallingConfig.mode` `ANY`": {
        "tools": _LOOK,
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    },
    "`functionCallingConfig.mode` `VALIDATED`": {
        "tools": _LOOK,
        "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
    },
    "`googleSearch`": {"tools": [{"googleSearch": {}}]},
    "`googleSearch.timeRangeFilter`, `searchTypes`": {
        "tools": [{"googleSearch": {"timeRangeFilter": {"a": 1}}}]
    },
    "`codeExecution`": {"tools": [{"codeExecution": {}}]},
    "`urlContext`, `googleMaps`, `fileSearch`, `computerUse`": {"tools": [{"urlContext": {}}]},
    "`thinkingConfig.thinkingLevel`": _generation(thinkingConfig={"thinkingLevel": "HIGH"}),
    "`thinkingConfig.thinkingBudget`": _generation(thinkingConfig={"thinkingBudget": 8192}),
    "`responseSchema`, `responseJsonSchema`": _generation(
        responseMimeType="application/json",
        responseJsonSchema={"type": "object", "properties": {}, "additionalProperties": False},
    ),
    "`responseModalities`": _generation(responseModalities=["AUDIO"]),
    "`speechConfig`": _generation(speechConfig={"languageCode": "de-DE"}),
    "`imageConfig`": _generation(imageConfig={"aspectRatio": "1:1"}),
    "`responseLogprobs`, `logprobs`": _generation(responseLogprobs=True, logprobs=2),
    "`stopSequences`": _generation(stopSequences=["END"]),
    "`maxOutputTokens`": _generation(maxOutputTokens=900),
    "`temperature`": _generation(temperature=0.5),
    "`topK`": _generation(topK=5),
    "`seed`": _generation(seed=5),
    "`presencePenalty`, `frequencyPenalty`": _generation(presencePenalty=0.5, frequencyPenalty=0.5),
}
"""A field that a client of Gemini sends, by its title."""
_HELLO: Final[Json] = {"contents": [{"role": "user", "parts": [{"text": "Look:"}]}]}


def translated(sample: Json, dialect: str) -> tuple[Json | bytes, list[str]]:
    """(what is sent to such an upstream, the names of what is lost). Raises InvalidRequestError."""
    sealer = Sealer()
    request, read = from_gemini(encode(_HELLO | sample), sealer)
    side = dialects()[dialect].upstream
    assert side is not None
    context = RequestContext((), MODELS[dialect], side.options(), sealer, ToolIdentityMap())
    outgoing = side.request(request, context)
    return outgoing.body, [case.where for case in (*read, *outgoing.diagnostics) if case.kind == "loss"]


def fate(title: str, dialect: str) -> str:
    """What becomes of a field: `sent`, `loss`, `honoured` without the upstream, or `refused`."""
    sample, plain = SAMPLES[title], translated({}, dialect)
    try:
        body, lost = translated(sample, dialect)
    except InvalidRequestError:
        return "refused"
    if set(lost) - set(plain[1]):
        return "loss"
    return "honoured" if body == plain[0] else "sent"


def across() -> list[str]:
    """The lines of the table."""
    rows = [[title, *(fate(title, dialect) for dialect in MODELS)] for title in SAMPLES]
    head = ["from a client of Gemini", *MODELS]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
