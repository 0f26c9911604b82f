"""Reads an upstream's error in any form, for refusals and for frames of every dialect.

Servers and gateways report errors under many names and nested in each other: an error around an error, JSON
within a text, a list with an entry for each field. The innermost words and codes count, since those around
them say only that something went wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.diagnostics import LONGEST_SHOWN, Diagnostics
from openresponses_bridge.dialects.base.failures import (
    LONGEST_NAME,
    NO_MESSAGE,
    UPSTREAM_ERROR,
    failure,
    unreadable,
)
from openresponses_bridge.dialects.base.native import native_error
from openresponses_bridge.dialects.base.refusals import cause_of, code_for
from openresponses_bridge.errors import BridgeError, WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.text import repair_surrogates


class ReportedError(NamedTuple):
    """The facts in an upstream's failure. A fact that is not in it is None."""

    message: str | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    fields: Mapping[str, Any] = {}
    """The object that has the innermost words."""

    @property
    def codes(self) -> tuple[str | None, ...]:
        """The error's codes, which programs read."""
        return (self.code, self.type, *_reasons(self.fields))


LONGEST_MESSAGE: Final = 4000
"""The characters of a message that are kept."""
_DEEPEST: Final = 16  # errors within errors
_MOST_ENTRIES: Final = 8  # of a list of errors
_MOST_STEPS: Final = 16  # of the path to a field
_LONGEST_STEP: Final = 100
_MOST_FRAMES: Final = 100
_HOLDERS: Final = ("error", "errors", "base_resp", "response", "fault")
_MESSAGES: Final = (
    "message",
    "detail",
    "error_msg",
    "error_message",
    "errorMessage",
    "errmsg",
    "errMsg",
    "error_description",
    "status_msg",
    "msg",
    "Message",
    "faultstring",
    "details",
    "reason",
    "title",
)
_CODES: Final = ("code", "error_code", "errorCode", "errcode", "errCode", "status_code")
_STATUS: Final = "status"  # a status of HTTP or Google, or whether a response has failed
_NUMBERED: Final = frozenset({*_CODES, _STATUS})
_FRAMES: Final = frozenset({"error", "response.failed", "response.error"})  # types of frames, not of errors
_TYPES: Final = ("type", "error_type", "__type")
_SAYS_SO: Final = frozenset(
    {
        *("error_msg", "error_message", "errorMessage", "error_code", "detail", "error_description"),
        *("errmsg", "errMsg", "errcode", "errCode", "fault", "__type"),
    }
)
"""The fields that only an error has."""
_KEEPALIVES: Final = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
PLACES: Final = frozenset(
    {
        *("type", "sequence_number", "event_id", "item_id", "output_index", "content_index", "obfuscation"),
        *("index", "event_type", "interaction_id", "contentBlockIndex", "p"),
    }
)
"""The fields of an event or delta, in any dialect, that say where it belongs, or nothing."""
_BEGINS_JSON: Final = ("{", "[")
_SSE_FIELDS: Final = (b"data:", b"event:", b"error:", b":", b"id:")
_RAW: Final = "raw"  # OpenRouter: the text of the provider's answer


def reported_error(value: Any) -> ReportedError | None:
    """Return the error in a JSON value, which is the body of a refusal or of a failed answer; None if it
    reports none."""
    error = _read(value, _DEEPEST)
    return error if error is not None and (error.message or error.code or error.type) else None


def reported_in(body: bytes, *, within_answer: bool = False) -> ReportedError | None:
    """Return the error that these bytes report, as JSON or server-sent events; None if they report none.
    `within_answer` is True if they may be something other than an error."""
    try:
        value = decode_json(body)
        error = reported_error(value)
        if within_answer and error is not None and error.message is None:
            return error if isinstance(value, dict) and any(map(value.get, _HOLDERS)) else None
        return error
    except WireError:
        if not body.lstrip().startswith(_SSE_FIELDS):
            return None
    decoder = SSEDecoder()
    try:
        frames = [*decoder.feed(body), *decoder.close()][:_MOST_FRAMES]
    except WireError:
        return None
    for frame in frames:
        try:
            value = decode_json(frame.data)
        except WireError:
            continue
        error = error_in_frame(value, frame.event) if within_answer else reported_error(value)
        if error is not None:
            return error
    return None


def error_in_frame(value: Any, event: str = "") -> ReportedError | None:
    """Return the error that a frame of a stream reports, in the form of any dialect; None if it is another
    frame. `event` is the name of its SSE event."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    response = value.get("response")
    holder = response if isinstance(response, dict) else value
    is_error = (
        bool(holder.get("error") or holder.get("errors"))
        or (holder.get("base_resp") is not None and has_failed(holder["base_resp"]))
        or "error" in (value.get("type"), value.get("object"), event)
        or not _SAYS_SO.isdisjoint(holder)
        or (("message" in holder or "msg" in holder) and not _NUMBERED.isdisjoint(holder))
        or (isinstance(message := holder.get("message"), dict) and bool(message.get("error")))
    )
    return (reported_error(holder) or ReportedError()) if is_error else None


def payload_of(error: Any, dialect: str = "") -> ErrorPayload:
    """Return an error that an upstream reported, in any form, as the failure of its response. An input that
    is too long gets the code that clients know for that. Clients of the `dialect` also get its other
    fields."""
    reported = reported_error(error) or ReportedError()
    message = reported.message or NO_MESSAGE
    known = cause_of(None, reported.codes, message)
    code = code_for(reported.code or reported.type, known)
    unnamed = failure(UPSTREAM_ERROR, message)
    return replace(
        unnamed,
        type=reported.type or unnamed.type,
        code=code or unnamed.code,
        param=reported.param,
        native=native_error(dialect, reported.fields) if dialect else UNSET,
    )


def unread(
    frame: int, error: BridgeError, data: bytes, event: str, diagnostics: Diagnostics
) -> ErrorPayload | None:
    """Return the failure of a stream whose frame of this number can't be decoded; an event called `error`
    becomes the message. None for a frame that only keeps the connection open."""
    text = data.decode("utf-8", "replace").strip(' \t\r\n"')
    if event in _KEEPALIVES or text in _KEEPALIVES:
        diagnostics.ignored("frame", "keeps the connection open")
        return None
    return payload_of(text) if event == "error" and text else unreadable(frame, error)


def report_unknown_type(
    name: str,
    fields: Any,
    diagnostics: Diagnostics,
    what: str = "unknown event",
    *,
    is_known: bool = False,
) -> None:
    """Report an event, or another part of an answer, whose type is not known, or only in other places, and
    has this name: as a loss if one of its fields says something. One that only keeps the connection open says
    nothing."""
    has_content = name.lower() not in _KEEPALIVES and _has_content(fields)
    report = diagnostics.record if is_known else diagnostics.unknown
    report("loss" if has_content else "ignored", name[:LONGEST_SHOWN] or "event", what)


def _has_content(value: Any) -> bool:
    waiting = [value]
    while waiting:  # without recursion: an upstream may nest values deeper than Python can call
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += (inner for name, inner in value.items() if name not in PLACES)
        elif isinstance(value, list):
            waiting += value
        elif value is not None and value != "":
            return True
    return False


def _read(value: Any, left: int) -> ReportedError | None:
    if left == 0:
        return None
    if isinstance(value, list):
        return _listed(value, left)
    if isinstance(value, str | int) and not isinstance(value, bool):
        return _said(str(value), left)
    if not isinstance(value, dict):
        return None
    kind = _name(value, _TYPES)
    own = ReportedError(
        None, None if kind in _FRAMES else kind, _code_of(value), _name(value, ("param",)), value
    )
    inner = _within(value, left)
    if inner is None:
        return own
    return ReportedError(
        inner.message,
        inner.type or own.type,
        inner.code or own.code,
        inner.param or own.param,
        inner.fields or own.fields,
    )


def _within(value: Mapping[str, Any], left: int) -> ReportedError | None:
    """Return the error in the first of the object's fields that has one."""
    metadata = value.get("metadata")
    raw = _read(metadata.get(_RAW), left - 1) if isinstance(metadata, dict) else None
    if raw is not None and raw.message:
        return raw
    fallback = None
    for name in _HOLDERS:
        inner = value.get(name)
        if name == "base_resp" and not has_failed(inner):
            continue
        if name == "response" and not isinstance(inner, dict):
            continue  # a text is an answer
        error = (
            _fields(inner, left - 1)
            if name == "errors" and isinstance(inner, dict)
            else _read(inner, left - 1)
        )
        if error is not None and error.message:
            return _more_told(error, value) if isinstance(inner, str) else error
        fallback = fallback or error
    for name in _MESSAGES:
        inner = value.get(name)
        if name == "title" and value.get("detail"):
            continue
        error = _said(inner, left) if isinstance(inner, str) else _read(inner, left - 1)
        if error is not None and error.message:
            return error if fallback is None else fallback._replace(message=error.message)
    return fallback


def _more_told(error: ReportedError, value: Mapping[str, Any]) -> ReportedError:
    """Return the error with the longest of the texts beside it, since its own may be only the name of a
    status."""
    beside = [each for name in _MESSAGES if isinstance(each := value.get(name), str)]
    longest = max(beside, key=len, default="")
    is_longer = len(longest) >= len(error.message or "")
    return error._replace(message=repair_surrogates(longest[:LONGEST_MESSAGE])) if is_longer else error


def _fields(errors: dict[str, Any], left: int) -> ReportedError | None:
    """Return errors by the names of their fields (.NET, Rails), or one error under that name."""
    texts = []
    for name, messages in [*errors.items()][:_MOST_ENTRIES]:
        words = [each for each in (messages if isinstance(messages, list) else ()) if isinstance(each, str)]
        texts += [f"{name[:_LONGEST_STEP]}: {each}" for each in words[:_MOST_ENTRIES]]
    if not texts:
        return _read(errors, left)
    return ReportedError(repair_surrogates("; ".join(texts)[:LONGEST_MESSAGE]), fields=errors)


def _said(text: str, left: int) -> ReportedError | None:
    """Return a text as an error, or the error in it if it is JSON."""
    content = text.strip()
    if content.startswith(_BEGINS_JSON) and left > 1:
        try:
            error = _read(decode_json(repair_surrogates(content)), left - 1)
        except WireError:
            error = None
        if error is not None and error.message:
            return error
    return ReportedError(repair_surrogates(text[:LONGEST_MESSAGE])) if content else None


def _listed(values: list[Any], left: int) -> ReportedError | None:
    """Return a list of errors as one: those of fields (FastAPI, Mistral) become one text, of others the first
    counts."""
    first = next((each for each in values[:_MOST_ENTRIES] if isinstance(each, dict | list | str)), None)
    if not (isinstance(first, dict) and isinstance(first.get("loc"), list)):
        return None if first is None else _read(first, left - 1)
    texts = []
    for each in values[:_MOST_ENTRIES]:
        if isinstance(each, dict):
            where, what = _path(each.get("loc")), each.get("msg")
            if isinstance(what, str) and what:
                texts.append(f"{where}: {what}" if where else what)
    if not texts:
        return None
    message = repair_surrogates("; ".join(texts)[:LONGEST_MESSAGE])
    return ReportedError(message, _name(first, _TYPES), None, _path(first.get("loc")) or None, first)


def _path(loc: Any) -> str:
    """Return the path of a field, without the part of the request that it is in."""
    steps = [str(each)[:_LONGEST_STEP] for each in loc[:_MOST_STEPS]] if isinstance(loc, list) else []
    if steps[:1] == ["body"]:
        del steps[0]
    return repair_surrogates(".".join(steps))


def _code_of(value: Mapping[str, Any]) -> str | None:
    """Return the error's code: a word rather than a number, since Google's `status` says more than its
    `code`."""
    codes = [name for each in _CODES if (name := _name(value, (each,))) is not None]
    status = _name(value, (_STATUS,))
    if status is not None and status.upper() == status:
        codes.append(status)
    words = (each for each in codes if not each.lstrip("-").isdecimal())
    return next(words, codes[0] if codes else None)


def _name(value: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for each in names:
        raw = value.get(each)
        if isinstance(raw, str | int) and not isinstance(raw, bool) and raw != "":
            return repair_surrogates(str(raw)[:LONGEST_NAME])
    return None


def has_failed(base_resp: Any) -> bool:
    """Return whether MiniMax's status, which each of its answers has, is that of a failure."""
    return isinstance(base_resp, dict) and base_resp.get("status_code") not in (None, 0, "0", "")


def _reasons(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the reasons that Google gives in the details."""
    details = fields.get("details")
    if not isinstance(details, list):
        return ()
    reasons = (each.get("reason") for each in details[:_MOST_ENTRIES] if isinstance(each, dict))
    return tuple(each[:LONGEST_NAME] for each in reasons if isinstance(each, str))
