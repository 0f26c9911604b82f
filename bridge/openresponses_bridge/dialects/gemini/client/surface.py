"""The Gemini API over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    AnswerForm,
    Asked,
    Asks,
    ChoicesForm,
    Description,
    Encoding,
    FormContext,
    KeyPlace,
    ModelList,
    OutboundForm,
    Parameter,
    RequestHead,
    Surface,
    SurfacePath,
    TokenCount,
    native_of,
)
from openresponses_bridge.dialects.gemini.client import described
from openresponses_bridge.dialects.gemini.client.answer import Candidates, answer
from openresponses_bridge.dialects.gemini.client.ending import error_body
from openresponses_bridge.dialects.gemini.client.model_list import model_body, model_page
from openresponses_bridge.dialects.gemini.client.outbound import Outbound, encode_sse
from openresponses_bridge.dialects.gemini.client.request import AnswerOptions, answer_options, from_gemini
from openresponses_bridge.dialects.gemini.types import encode_chunk
from openresponses_bridge.errors import BridgeError, HttpError
from openresponses_bridge.protocol.codec import encode, request_object
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response

_ARRAY_TYPE: Final = b"application/json; charset=utf-8"
_ALT: Final = ("alt", "$alt")
_KEY: Final = "x-goog-api-key"
_CLIENT: Final = "x-goog-api-client"
_INPUT: Final = "contents"
_COUNTED: Final = ("generateContentRequest", "generate_content_request")


class ArrayEncoder:
    """Encodes a stream as one JSON array, whose elements come one after the other."""

    def __init__(self) -> None:
        self._before = b"["

    def encode(self, chunks: Iterable[Any]) -> bytes:
        """Encode the next elements."""
        pieces = []
        for chunk in chunks:
            pieces += [self._before, encode_chunk(chunk)]
            self._before = b",\n"
        return b"".join(pieces)

    def end(self) -> bytes:
        """Return the end of the array."""
        return b"[]" if self._before == b"[" else b"]\n"


def _form(options: AnswerOptions, sse: bool, context: FormContext) -> AnswerForm:
    """The form of one candidate or several, with thoughts if the client wants them: server-sent events or one
    array."""
    sealer, thoughts = context.sealer, options.thoughts
    array = ArrayEncoder()
    encoding = Encoding(encode_sse) if sse else Encoding(array.encode, _ARRAY_TYPE, array.end)

    def whole(*responses: Response) -> bytes | None:
        chunk = answer(responses, sealer, thoughts=thoughts)
        return None if chunk.error is not None else encode_chunk(chunk)

    if options.n == 1:
        outbound = Outbound(sealer, context.identities, thoughts=thoughts)
        return OutboundForm(outbound, encoding, whole)
    candidates = Candidates(options.n, sealer, id=context.so_far().id, thoughts=thoughts)
    return ChoicesForm(options.n, candidates, encoding, whole)


def _named(head: RequestHead, request: CreateResponse) -> CreateResponse:
    """Return the request with the options in its path."""
    return replace(request, model=head.fields.get("model"), stream=head.stream)


def _read(body: bytes, head: RequestHead) -> Asked:
    request, losses = from_gemini(body, head.sealer)
    options = answer_options(body)
    sse = any(head.query.get(name) == "sse" for name in _ALT)
    return Asked(
        request=_named(head, request),
        form=partial(_form, options, sse),
        losses=losses,
        choices=options.n,
        input_param=_INPUT,
        schema_param="generationConfig.responseSchema",
    )


def _read_counted(body: bytes, head: RequestHead) -> tuple[CreateResponse, Diagnostics]:
    """Return the request whose tokens are counted: the body, or the one in it."""
    value = request_object(body)
    within = next((value[name] for name in _COUNTED if name in value), None)
    request, losses = from_gemini(encode(within) if isinstance(within, dict) else body, head.sealer)
    return _named(head, request), losses


def _error(error: BridgeError) -> bytes:
    retry_after = error.headers.get("retry-after") if isinstance(error, HttpError) else None
    native = native_of(error, "gemini")
    return encode(error_body(error.http_status, error.message, error.param, retry_after, native))


def _paths(version: str) -> list[SurfacePath]:
    model = f"/{version}/models/{{model}}"
    named = "" if version == "v1beta" else f"_{version}"
    generate = Description(
        id=f"generate_content{named}",
        summary="Generate an answer, in Google's shape",
        request=described.GenerateContentRequest,
        answer=described.GenerateContentResponse,
        examples={"whole": {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}},
    )
    stream = replace(
        generate,
        id=f"stream_generate_content{named}",
        summary="Stream an answer, in Google's shape",
        many=True,
        events="Server-sent events of the Gemini API.",
        parameters=(Parameter("alt", "`sse`: as events, else as one array.", {"enum": ["sse"]}),),
    )
    count = replace(
        generate,
        id=f"count_tokens{named}",
        summary="Estimate the tokens of an answer's input",
        request=described.GeminiCountRequest,
        answer=described.GeminiTokens,
    )
    return [
        SurfacePath(path=f"{model}:generateContent", stream=False, description=generate),
        SurfacePath(path=f"{model}:streamGenerateContent", stream=True, description=stream),
        SurfacePath(path=f"{model}:countTokens", asks=Asks.TOKENS, description=count),
    ]


_LIST: Final = Description(
    id="list_gemini_models",
    summary="List models, in Google's shape",
    answer=described.GeminiModels,
    parameters=(
        Parameter("pageSize", "Models per page.", {"type": "integer", "minimum": 1}),
        Parameter("pageToken", "`nextPageToken` of the page before.", {"type": "string", "maxLength": 200}),
    ),
)
_MODEL: Final = Description(
    id="retrieve_gemini_model",
    summary="Retrieve a model, in Google's shape",
    answer=described.GeminiModel,
)


SURFACE: Final = Surface(
    paths=(
        *_paths("v1beta"),
        *_paths("v1"),  # the paths of google-genai
        SurfacePath(path="/v1beta/models", asks=Asks.MODELS, description=_LIST),
        SurfacePath(path="/v1beta/models/{model}", asks=Asks.MODEL, description=_MODEL),
    ),
    prefixes=("/v1beta/",),
    keys=(KeyPlace(_KEY, query="key"),),
    recognises=lambda headers: _CLIENT in headers or (_KEY in headers and "authorization" not in headers),
    read=_read,
    error=_error,
    error_type=described.GoogleError,
    count=TokenCount(read=_read_counted, answer=lambda tokens: {"totalTokens": tokens}, input_param=_INPUT),
    models=ModelList(
        page=lambda models, head: model_page(models, head.query),
        model=lambda model, _name: model_body(model),
    ),
    keep_alive=b"\n\n",  # a blank line, since Google's clients take a comment for the beginning of an error
)
