"""Turns an upstream's refusal into our error, with its meaning kept (law S5)."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from openresponses_bridge.dialects.base import LONGEST_NAME
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.text import printable, repair_surrogates
from openresponses_server.errors import UpstreamError, status_of
from openresponses_server.upstreams.base import Upstream, UpstreamRequest

# `retry-after` as an upstream gives it: seconds or a date (RFC 9110, 10.2.3), or something else.

_MOST_DIGITS: Final = 9
LONGEST: Final = 366 * 24 * 3600
"""Seconds. A longer wait is of no use, and too much for the timers of some clients."""
_LONGEST_DATE: Final = 64  # characters


def seconds_of(header: str | None) -> float | None:
    """Seconds to wait, at most `LONGEST`; None for a value that is neither seconds nor a date."""
    text = (header or "").strip()
    if not text.isascii():
        return None
    if text.isdigit():
        return float(LONGEST) if len(text) > _MOST_DIGITS else float(min(int(text), LONGEST))
    try:
        moment = parsedate_to_datetime(text[:_LONGEST_DATE])
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return min(max((zoned - datetime.now(UTC)).total_seconds(), 0.0), float(LONGEST))
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def passed_on(header: str | None) -> str | None:
    """The header for clients: unchanged if it says when, `LONGEST` if that is too long, None if it says
    something else."""
    wait = seconds_of(header)
    if header is None or wait is None:
        return None
    text = header.strip()
    if wait == LONGEST:
        return str(LONGEST)
    return text if text.isprintable() and len(text) <= _LONGEST_DATE else None


# When a limit is over, where `retry-after` does not say it: in the headers of the limits, of which those
# count that are used up, or in Google's details.

_LIMIT: Final = re.compile(
    r"(?:x-ratelimit-(reset|remaining)(-[a-z-]{1,40})?"
    r"|anthropic-ratelimit-([a-z-]{1,40})-(reset|remaining))"
)
_PART: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|h|m|s)")
_PARTS: Final = MappingProxyType({"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001})
_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|h|m|s)){1,4}")
_SECONDS: Final = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,9})?")
_EPOCH: Final = 10**9  # such a number of seconds is a time
_EPOCH_MS: Final = 10**12
_RETRY_INFO: Final = "google.rpc.RetryInfo"
_MOST_DETAILS: Final = 32


def limit_seconds(headers: Mapping[str, str], fields: Mapping[str, Any], now: float) -> float | None:
    """Seconds until the limit is over, at most `LONGEST`; None if the answer does not say. `fields` are those
    of its error, `now` is in seconds of the epoch."""
    asked = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(asked):
        return min(float(asked) / 1000, float(LONGEST))
    found = _duration(headers.get("retry-after", "").strip(), now)
    if found is None:
        found = _retry_delay(fields)
    return _reset_seconds(headers, now) if found is None else found


def _reset_seconds(headers: Mapping[str, str], now: float) -> float | None:
    left: dict[str, str] = {}
    resets: dict[str, str] = {}
    for name, value in headers.items():
        match = _LIMIT.fullmatch(name)
        if match is not None:
            kind, which = match[1] or match[4], match[2] or match[3] or ""
            (resets if kind == "reset" else left)[which] = value.strip()
    seconds = {which: _duration(value, now) for which, value in resets.items()}
    known = {which: each for which, each in seconds.items() if each is not None}
    used_up = [each for which, each in known.items() if left.get(which, "0") in ("0", "0.0")]
    return max(used_up, default=None)


def _duration(text: str, now: float) -> float | None:
    """Seconds in `1m3s`, `6.5s`, `20ms`, `12`, a time (RFC 3339) or seconds or milliseconds of the epoch."""
    text = text[:_LONGEST_DATE]
    if _SECONDS.fullmatch(text):
        number = float(text)
        at = number / 1000 if number >= _EPOCH_MS else number
        seconds = at - now if at >= _EPOCH else at
    elif _DURATION.fullmatch(text):
        seconds = sum(float(number) * _PARTS[unit] for number, unit in _PART.findall(text))
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            return None
        seconds = moment.timestamp() - now
    return min(max(seconds, 0.0), float(LONGEST))


def _retry_delay(fields: Mapping[str, Any]) -> float | None:
    details = fields.get("details")
    if not isinstance(details, list):
        return None
    for detail in details[:_MOST_DETAILS]:
        if isinstance(detail, dict) and str(detail.get("@type")).endswith(_RETRY_INFO):
            delay = detail.get("retryDelay")
            if isinstance(delay, str) and _DURATION.fullmatch(delay[:_LONGEST_DATE]):
                return _duration(delay, 0.0)
    return None


# Recognising that an input is too long for a model: every server words it in its own way, clients know one
# code. With `truncation` "disabled" no input is shortened, so its overflow must be reported (specification).

CODE: Final = "context_length_exceeded"
_STATUSES: Final = frozenset({400, 413, 422})
_CODES: Final = frozenset({"exceed_context_size_error", "context_window_exceeded"})
_WORDS: Final = re.compile(
    r"maximum (context|prompt) length"  # OpenAI, vLLM, DeepSeek, Mistral, OpenRouter, xAI
    r"|prompt is too long|exceeds? (the )?(context|available context)"  # Anthropic, llama.cpp
    r"|input token count .{0,200} exceeds"  # Gemini
    r"|context (window|length|size) (is |was )?(exceeded|overflow)"
    r"|reduce the length of the (messages|prompt|input)",  # Groq
    re.IGNORECASE,
)


def overflow_code(status: int, reported: str | None, message: str) -> str | None:
    """`context_length_exceeded` if the refusal means that, else None. `reported` is the code or type in
    it."""
    if status not in _STATUSES or reported == CODE:
        return None
    return CODE if reported in _CODES or _WORDS.search(message) else None


# Where servers put an error's text without an `error` object: Mistral, FastAPI and vLLM, others.
_MESSAGE_FIELDS: Final = ("message", "detail", "error_description", "reason")
_UNDECRYPTABLE: Final = "invalid_encrypted_content"
_UNSIGNED: Final = re.compile(
    r"invalid `?signature`? in `?(redacted_)?thinking`? block"  # Anthropic, also for another of its models
    r"|(corrupted|invalid) thought[_ ]signature|thought[_ ]signature is not valid",  # Google
    re.IGNORECASE,
)
_REFUSED: Final = 400
_BLIND_STATUSES: Final = frozenset({400, 404, 415, 422, 500})
_BLIND: Final = re.compile(
    r"unknown variant `?image"  # DeepSeek
    r"|not support (image|vision|multimodal)|support image input"  # OpenAI, xAI; OpenRouter
    r"|images? (input )?(is|are) not (supported|allowed)|not a multimodal model"  # Groq; vLLM
    r"|image input is not supported|missing mmproj",  # llama.cpp
    re.IGNORECASE,
)
_FORMAT_STATUSES: Final = frozenset({400, 422})
_FORMAT_PARAMS: Final = frozenset(
    {"response_format", "text", "output_config", "output_format", "tool_choice"}
)
_FORMAT: Final = re.compile(
    r"response_format|json_schema|json_object|json mode|text\.format|output_config|output_format"
    r"|response_?(json_?)?schema|structured output|guided|grammar|tool_choice",
    re.IGNORECASE,
)
_TOO_MUCH: Final = re.compile(
    r"max[_ ]?(completion_|output_|new_)?tokens|maxOutputTokens|completion|output tokens", re.IGNORECASE
)
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBER: Final = re.compile(r"(?<![\w.-])\d{1,9}(?![\w-]|\.\d)")
_WINDOW: Final = re.compile(
    r"(?:context[ _](?:length|limit|window|size)|max_model_len)\D{0,40}(\d{1,9})", re.IGNORECASE
)
_GIVEN: Final = re.compile(
    r"(\d{1,9}) (?:input tokens|tokens from the input|in the messages|in the prompt|prompt tokens)"
)
_SUM: Final = re.compile(r"(\d{1,9}) \+ (\d{1,9}) > (\d{1,9})")  # Anthropic: input + output > window
_ASKED: Final = re.compile(rb'"(?:max_tokens|max_completion_tokens|max_output_tokens)":(\d{1,9})[,}]')
_BYTES_A_TOKEN: Final = 3  # of a request's body, about; few enough that its input is rather overestimated
_LEAST_PART: Final = 8  # of the window that an answer gets whose input is not counted
REMEMBERED: Final = 600.0  # seconds
MOST_REMEMBERED: Final = 256  # models; the one refused longest ago is forgotten first
_FORGOTTEN: Final = "previous_response_not_found"
_LINKS: Final = ("previous_response_id", "response_id")  # what an error about the link names as its parameter
_NOT_THERE: Final = (404, 405)  # without an API's error: most often another API answered
_WRONG_KEY: Final = (401, 403, 407)
# what servers call it in a 403
_KEY_ERRORS: Final = frozenset(
    {
        "access_denied",
        "authentication_error",
        "forbidden",
        "invalid_api_key",
        "permission_denied",
        "permission_error",
        "unauthorized",
    }
)
# what another upstream may answer
_NO_MONEY: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_NO_CREDIT: Final = re.compile(r"Your credit balance is too low")  # Anthropic, with the status 400
_ASKS_TOO_MUCH: Final = re.compile(r"Request too large|.{0,200}(can only afford|fewer max_tokens)", re.DOTALL)
_MODEL_CODES: Final = frozenset(
    {"model_not_found", "model_not_available", "model_decommissioned", "DeploymentNotFound"}
)
_NAMES_MODEL: Final = re.compile(r"\b(model|deployment)s?\b", re.IGNORECASE)
_ELSEWHERE: Final = re.compile(
    r"(country|region|territory|location|subscription|plan|tier)\b|not (enabled|allowed) to use",
    re.IGNORECASE,
)
_KEY_CAUSES: Final = frozenset({"401", "402", "403"})
_LONGEST_MESSAGE: Final = 2000  # characters
_LONGEST_SAID: Final = 500

Clean = Callable[[str], str]


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, clean: Clean = str, ours: str = ""
) -> UpstreamError:
    """The error for a status other than 2xx. Status, type, code, message, param and retry-after are the
    upstream's own where it gave them; each text of it passes through `clean`, which takes secrets out.

    `ours` is what a client reads in its place when the upstream refuses a key that is not the client's, which
    would look as if that were wrong: 502 with a code of its own."""
    # a redirect would carry the key elsewhere, so it is not followed and no client can use it
    answered = status if 400 <= status <= 599 else 502
    fields = _error_fields(body)
    message = clean((_text(fields, "message") or _no_message(status, headers, body))[: 2 * _LONGEST_MESSAGE])
    kind, code, param = (_name(fields, name, clean) for name in ("type", "code", "param"))
    reported = code or kind
    said = said_in(body, clean)
    cause = _failover_cause(status, fields, reported, message)
    counts = cause not in ("403", "404") and _ASKS_TOO_MUCH.match(message) is None
    if ours and _is_about_the_key(status, fields, reported):
        return UpstreamError(
            502,
            ours,
            code=UpstreamError.AUTHENTICATION,
            cause=f"it answered with status {status}",
            said=said,
            permanent=True,
            failover=cause,
            counts=counts,
        )
    retry_after = passed_on(headers.get("retry-after"))
    if retry_after is None and (wait := _limit_wait(status, headers, fields)) is not None:
        retry_after = str(math.ceil(wait))
    return UpstreamError(
        answered,
        message[:_LONGEST_MESSAGE],
        code=overflow_code(answered, reported, message) or code,
        error_type=kind,
        param=param,
        headers={"retry-after": retry_after} if retry_after else None,
        cause=f"it answered with status {status}",
        said=said,
        permanent=status in (*_NOT_THERE, *_WRONG_KEY)
        or status < 400
        or headers.get("x-should-retry", "").strip().lower() == "false",
        failover=cause,
        counts=counts,
    )


def cleaner(upstream: Upstream, request: UpstreamRequest) -> Clean:
    """Takes out of the upstream's texts what only it may see of this request."""
    return lambda text: request.clean(upstream.clean(text, request.client_key))


def refused_by(
    upstream: Upstream, request: UpstreamRequest, status: int, headers: Mapping[str, str], body: bytes
) -> UpstreamError:
    """The `refusal` of this request, as its client may see it."""
    clean, ours = cleaner(upstream, request), upstream.key_refused(request.client_key)
    refused = refusal(status, headers, body, clean, ours)
    return refused if ours else _about_the_client(refused)


def _about_the_client(error: UpstreamError) -> UpstreamError:
    """The refusal of a request with the client's own key: it says nothing about this server's, and a key that
    is refused gets nothing from another upstream."""
    if error.failover in _KEY_CAUSES:
        error.failover = ""
    if error.failover in ("", "429"):
        error.counts = False
    return error


def _limit_wait(status: int, headers: Mapping[str, str], fields: Mapping[str, Any]) -> float | None:
    # other answers have the headers of limits, too
    return limit_seconds(headers if status == 429 else {}, fields, time.time())


def _failover_cause(status: int, fields: Mapping[str, Any], reported: str | None, message: str) -> str:
    """Why another upstream may answer what this one has refused, as in the setting `failover_on`; "" if the
    request is why."""
    if reported in _NO_MONEY or status == 402 or _NO_CREDIT.match(message):
        return "402"
    if reported in _MODEL_CODES:
        return "404"
    if status in _NOT_THERE:
        if reported == _FORGOTTEN or fields.get("param") in _LINKS:
            return ""
        return "404" if not fields or _NAMES_MODEL.search(message) else ""
    if status == 403:
        elsewhere = _ELSEWHERE.search(f"{reported} {message}") is not None
        return "403" if elsewhere or _is_about_the_key(status, fields, reported) else ""
    if status in _WRONG_KEY:
        return "401"
    if status in (408, 429):
        return str(status)
    return "5xx" if status < 400 or status >= 500 else ""


def said_in(body: bytes, clean: Clean = str) -> str:
    """The beginning of a body for the operator's log: on one line, without keys."""
    text = clean(body[: 16 * _LONGEST_SAID].decode("utf-8", "replace"))
    return printable(" ".join(text[: 2 * _LONGEST_SAID].split()))[:_LONGEST_SAID]


def _is_about_the_key(status: int, fields: Mapping[str, Any], reported: str | None) -> bool:
    """Whether the refusal is about the key. A 403 may be about the request instead: then its error says
    so."""
    if status != 403:
        return status in _WRONG_KEY
    return not fields or reported is None or reported.lower() in _KEY_ERRORS


def has_forgotten(error: UpstreamError, response_id: str) -> bool:
    """Whether the upstream refuses to continue its response with this id: it does not know the response any
    more, or may not use it."""
    if error.code == _FORGOTTEN:
        return True
    named = error.param in _LINKS or response_id in error.message
    return error.http_status in (400, 404) and named


def is_too_long(error: UpstreamError) -> bool:
    """Whether the upstream's model has no room for the input."""
    return error.code == CODE


def cannot_decrypt(error: UpstreamError) -> bool:
    """Whether the upstream refuses reasoning that it has not encrypted or signed, or for another key or
    model."""
    return error.code == _UNDECRYPTABLE or (
        error.http_status == _REFUSED and _UNSIGNED.search(error.message) is not None
    )


def sees_no_images(error: UpstreamError) -> bool:
    """Whether the upstream refuses images as such: its model takes text only."""
    return error.http_status in _BLIND_STATUSES and _BLIND.search(error.message) is not None


def refuses_format(error: UpstreamError) -> bool:
    """Whether the upstream refuses the format of the answer, its schema, or a function that is forced for
    it."""
    if error.http_status not in _FORMAT_STATUSES:
        return False
    named = (error.param or "").partition(".")[0] in _FORMAT_PARAMS
    return named or _FORMAT.search(error.message[:_LONGEST_MESSAGE]) is not None


def output_room(error: UpstreamError, sent: bytes) -> int | None:
    """How many tokens of an answer the upstream has room for, by its refusal of a request with this body for
    asking for too many; None if it is refused for something else, or its refusal names no limit."""
    asked = _ASKED.search(sent)
    text = _THOUSANDS.sub("", error.message[:_LONGEST_MESSAGE])
    if asked is None or error.http_status not in _STATUSES or _TOO_MUCH.search(text) is None:
        return None
    most = int(asked[1])
    added, window, given = _SUM.search(text), _WINDOW.search(text), _GIVEN.search(text)
    if added is not None:
        room = int(added[3]) - int(added[1])
    elif window is not None:
        size = int(window[1])
        room = size - int(given[1]) if given else max(size - len(sent) // _BYTES_A_TOKEN, size // _LEAST_PART)
    else:
        room = max((number for each in _NUMBER.findall(text) if (number := int(each)) < most), default=0)
    return room if 0 < room < most else None


class OwnersModel(NamedTuple):
    """A model of an upstream, as one key has it: what it refuses of a key's images may be about those."""

    owner: str
    upstream: str
    model: str


class ImageRefusals:
    """Which models have refused images of a key lately, so that later turns of a conversation are not refused
    first. One per worker; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.until: dict[OwnersModel, float] = {}
        """The ends of their times, the latest refusal last."""

    def __contains__(self, model: OwnersModel) -> bool:
        """Whether this model has refused images in the last `REMEMBERED` seconds."""
        return self.until.get(model, 0.0) > self._clock()

    def record(self, model: OwnersModel, *, accepted: bool) -> None:
        """The model has accepted a request with images, or only without them."""
        self.until.pop(model, None)
        if not accepted:
            if len(self.until) == MOST_REMEMBERED:
                del self.until[next(iter(self.until))]
            self.until[model] = self._clock() + REMEMBERED


def in_band_refusal(
    body: bytes, refused: Callable[[int, Mapping[str, str], bytes], UpstreamError] = refusal
) -> UpstreamError | None:
    """The error in the JSON body of an answer with a good status, made by `refused`; None if there is
    none."""
    fields = _error_fields(body)
    if not fields:
        return None
    error = refused(status_in_band(fields) or 502, {}, body)
    error.cause = "it answered with an error under a status that means success"
    return error


def status_in_band(error: Mapping[str, Any]) -> int | None:
    """The status that the fields of an error mean where the answer's own is that of success."""
    given = (_text(error, name) for name in ("code", "status", "type"))
    return next((status for each in given if each and (status := status_of(each)) is not None), None)


def is_about_the_key(error: ErrorPayload) -> bool:
    """Whether an error within a stream is the refusal of the request's key."""
    fields = {"code": error.code, "type": error.type}
    status = status_in_band(fields)
    return status is not None and _is_about_the_key(status, fields, error.code or error.type)


def _error_fields(body: bytes) -> dict[str, Any]:
    """The error object, wherever it is in the body."""
    try:
        value = decode_json(body)
    except WireError:
        return {}
    if isinstance(value, list) and value:
        value = value[0]  # Gemini wraps its errors in a list
    if not isinstance(value, dict):
        return {}
    error = value.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error}
    for field in _MESSAGE_FIELDS:
        if isinstance(value.get(field), str):
            return {**value, "message": value[field]}
    return {}


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    return repair_surrogates(str(value))


def _name(fields: dict[str, Any], name: str, clean: Clean) -> str | None:
    """A code for programs: one longer than any real code is cut."""
    text = _text(fields, name)
    return None if text is None else clean(text[:_LONGEST_MESSAGE])[:LONGEST_NAME]


def _no_message(status: int, headers: Mapping[str, str], body: bytes) -> str:
    kind = headers.get("content-type", "").partition(";")[0].strip() or "no content type"
    what = f"a body of type {printable(kind)}" if body.strip() else "an empty body"
    why = "; does it speak the dialect that it is set up with?" if status in _NOT_THERE else ""
    return f"the upstream answered with status {status} and {what}{why}"
