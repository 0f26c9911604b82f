"""The end of an outgoing answer: finish reasons, usage, citations, and errors in Google's format."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import CANCELLED, name, native_of, other_fields, searched
from openresponses_bridge.dialects.gemini.carried import DIALECT
from openresponses_bridge.dialects.gemini.types import FAILURES, FILTERED, FINISH_REASONS, enum_name
from openresponses_bridge.protocol.content import OutputTextContent, UrlCitation
from openresponses_bridge.protocol.items import Message
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.usage import Usage

STOP: Final = "STOP"
MAX_TOKENS: Final = "MAX_TOKENS"
SAFETY: Final = "SAFETY"
OTHER: Final = "OTHER"
_INCOMPLETE: Final = {"max_output_tokens": MAX_TOKENS, "content_filter": SAFETY}
_OF_TOOLS: Final = "toolUsePromptTokenCount"
_OF_ERROR: Final = ("code", "message", "status")
_UPSTREAM: Final = "upstream_"  # prefix of errors of an upstream that the bridge has found
_TYPE: Final = "type.googleapis.com/google.rpc."

# HTTP status → canonical name (google.rpc.Code)
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
# our codes, and those of other upstreams → HTTP status; Google's own are canonical names
_STATUS_OF_CODE: Final = {
    **{name: status for status, name in reversed(_STATUSES.items())},
    "DEADLINE_EXCEEDED": 504,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "ALREADY_EXISTS": 409,
    "DATA_LOSS": 500,
    "UNAVAILABLE": 503,
    "UNKNOWN": 500,
    "cancelled": 499,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "server_is_overloaded": 503,
    "service_unavailable": 503,
    "overloaded_error": 503,
    "upstream_timeout": 504,
    "timeout_error": 504,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "invalid_request": 400,
    "invalid_request_error": 400,
    "not_found": 404,
    "model_not_found": 404,
    "not_found_error": 404,
    "permission_error": 403,
}


def status_name(status: int) -> str:
    """Return the canonical name for an HTTP status."""
    return _STATUSES.get(status) or ("INVALID_ARGUMENT" if status < 500 else "INTERNAL")


def error_body(
    status: int,
    message: str,
    param: str | None = None,
    retry_after: str | None = None,
    native: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return an error in Google's format, for a stream or an HTTP body. `param` is the path of the wrong
    field, `retry_after` the seconds in that header; `native` are the fields that the API itself sent."""
    details: list[dict[str, Any]] = []
    if param:
        violation = {"field": param, "description": message}
        details.append({"@type": f"{_TYPE}BadRequest", "fieldViolations": [violation]})
    if retry_after and retry_after.isascii() and retry_after.isdigit():
        details.append({"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{retry_after}s"})
    named = status_name(status)
    if status == _STATUS_OF_CODE.get(str(native.get("status")), status):
        named = name(native.get("status")) or named
    others = other_fields(native, _OF_ERROR)
    return {"error": {"code": status, "message": message, "status": named, "details": details} | others}


def failed_body(
    code: str | None, message: str, native: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the error of a response that failed after its beginning."""
    named = (code or "").strip()
    numbered = named.isascii() and len(named) == 3 and named.isdigit() and named >= "400"
    ours = 502 if named.startswith(_UPSTREAM) else 500
    status = int(named) if numbered else _STATUS_OF_CODE.get(named, ours)
    return error_body(status, message, native=native)


def native_end(reason: str, native: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return (the finish reason, the message) that Google sent for an end that is a `reason` of the
    response."""
    native_reason, message = (
        enum_name(native.get("finishReason"), FINISH_REASONS),
        native.get("finishMessage"),
    )
    is_own = native_reason == reason or (reason == SAFETY and native_reason in FILTERED)
    own = native_reason if native_reason is not None and is_own else reason
    return own, message if isinstance(message, str) else None


def finish_reason(response: Response, diagnostics: Diagnostics) -> str | None:
    """Return the finish reason of a response that has ended; None for one that failed or was cancelled.
    Failures for which Google has a finish reason have that, and so have ends for which Google itself sent
    one."""
    if response.status == "completed":
        return STOP
    if response.status == "failed":
        named = response.error.code.upper() if response.error is not None else ""
        return named if named in FAILURES else None
    reason = response.incomplete_details.reason if response.incomplete_details else ""
    if CANCELLED.code in (response.status, reason):
        return None
    named = _INCOMPLETE.get(reason) or reason.upper()
    if named in FINISH_REASONS or named == name(native_of(response, DIALECT).get("finishReason")):
        return named
    diagnostics.loss("finishReason", f"incomplete for {reason[:64] or 'no reason'}, reported as {OTHER}")
    return OTHER


def usage_metadata(usage: Usage, native: Mapping[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the counts under Google's names, which count thoughts and the prompts of server tools
    separately, with Google's further fields; if a response has several answers, these are of the last one."""
    if usage.cache_write_tokens:
        diagnostics.loss("usage.cache_write_tokens", "can't be expressed")
    thoughts = usage.output_tokens_details.reasoning_tokens
    others = {} if usage.rounds else dict(native)
    tools = others.pop(_OF_TOOLS, None)
    ran = tools if type(tools) is int and 0 <= tools <= usage.input_tokens else None
    counts = {
        "promptTokenCount": usage.input_tokens - (ran or 0),
        "candidatesTokenCount": usage.output_tokens - thoughts,
        "totalTokenCount": usage.total_tokens,
        "cachedContentTokenCount": usage.input_tokens_details.cached_tokens or None,
        _OF_TOOLS: ran,
        "thoughtsTokenCount": thoughts or None,
    }
    return {name: count for name, count in counts.items() if count is not None} | others


def grounding_metadata(response: Response) -> dict[str, Any] | None:
    """Return the web addresses that the answer cites, with the places that they support (in bytes of the
    whole text in UTF-8), other addresses that were found, and the queries; None if there is nothing of
    this."""
    chunks: dict[tuple[str, str], int] = {}
    supports: list[dict[str, Any]] = []
    before = 0
    for part in _texts(response):
        cited = [each for each in part.annotations if isinstance(each, UrlCitation)]
        at = _bytes_before(
            part.text, {place for each in cited for place in (each.start_index, each.end_index)}
        )
        for each in cited:
            index = chunks.setdefault((each.url, each.title), len(chunks))
            start, end = at[each.start_index], at[each.end_index]
            segment = {"startIndex": before + start, "endIndex": before + end}
            segment_text = part.text[max(each.start_index, 0) : max(each.end_index, 0)]
            supports.append({"segment": {**segment, "text": segment_text}, "groundingChunkIndices": [index]})
        before += len(part.text.encode("utf-8", "replace"))
    searches = [each for each in map(searched, response.output) if each is not None]
    known = {url for url, _ in chunks}
    for source in (source for search in searches for source in search.sources if source.url not in known):
        chunks.setdefault((source.url, source.title), len(chunks))
    queries = [search.query for search in searches if search.query]
    if not chunks and not queries:
        return None
    return {
        "groundingChunks": [{"web": {"uri": url, "title": title}} for url, title in chunks],
        "groundingSupports": supports,
        **({"webSearchQueries": queries} if queries else {}),
    }


def _texts(response: Response) -> list[OutputTextContent]:
    messages = [item for item in response.output if isinstance(item, Message)]
    return [part for each in messages for part in each.content if isinstance(part, OutputTextContent)]


def _bytes_before(text: str, places: set[int]) -> dict[int, int]:
    """Return the number of bytes before each of these numbers of characters; places outside the text become
    its ends."""
    offsets: dict[int, int] = {}
    counted = size = 0
    for place in sorted(places):
        end = min(max(place, 0), len(text))
        size += len(text[counted:end].encode("utf-8", "replace"))
        offsets[place], counted = size, end
    return offsets
