"""Turns an upstream's refusal into our error, with its meaning kept (law S5)."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from openresponses_bridge.dialects.base import (
    LONGEST_NAME,
    Cause,
    Refusal,
    ReportedError,
    cause_of,
    native_error,
    refusal_for,
    reported_in,
    status_of,
)
from openresponses_bridge.dialects.base.refusals import CODE_OF, STATUS_OF, STATUSES, code_for
from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.text import each_text, printable
from openresponses_server.errors import FailureFacts, UpstreamError
from openresponses_server.upstreams.base import Upstream, UpstreamRequest

# `retry-after` as an upstream gives it: seconds or a date (RFC 9110, 10.2.3), or something else.

_MOST_DIGITS: Final = 9
LONGEST: Final = 366 * 24 * 3600
"""Seconds. A longer wait is of no use, and too much for the timers of some clients."""
_LONGEST_DATE: Final = 64  # characters


def seconds_of(header: str | None) -> float | None:
    """Return the seconds to wait, at most `LONGEST`; None for a value that is neither seconds nor a date."""
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
    """Return the seconds until the limit is over, at most `LONGEST`; None if the answer does not say.
    `fields` are those of its error, `now` is in seconds of the epoch."""
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(milliseconds):
        return min(float(milliseconds) / 1000, float(LONGEST))
    seconds = _duration(headers.get("retry-after", "").strip(), now)
    if seconds is None:
        seconds = _retry_delay(fields)
    return _reset_seconds(headers, now) if seconds is None else seconds


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


# What it is about is in the library's table of refusals.

CODE: Final = CODE_OF[Cause.TOO_LONG]
_FORMAT_PARAMS: Final = frozenset(
    {"response_format", "text", "output_config", "output_format", "tool_choice"}
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
MOST_REMEMBERED: Final = 64  # models of one owner; the one refused longest ago is forgotten first
MOST_OWNERS: Final = 1024  # with such models; the one that was refused longest ago is forgotten first
_A_DAY: Final = 86_400.0  # seconds
_FORGOTTEN: Final = "previous_response_not_found"
_LINKS: Final = ("previous_response_id", "response_id")  # what an error about the link names as its parameter
_NOT_THERE: Final = (404, 405)  # without an API's error: most often another API answered
_WRONG_KEY: Final = (401, 403, 407)
_SAYING_SO: Final = (401, 402, 403, 407, 429)  # statuses under which a refusal of a key or limit is one
_NAMES_MODEL: Final = re.compile(r"\b(model|deployment)s?\b", re.IGNORECASE)
_KEY_CAUSES: Final = frozenset({"401", "402", "403"})
_FAILOVER: Final = {
    Cause.MONEY: "402",
    Cause.MODEL: "404",
    Cause.KEY: "401",
    Cause.REGION: "403",
    Cause.RATE: "429",
    Cause.OVERLOAD: "5xx",
}
"""The cause of failover, as in the setting `failover_on`, of a refusal whose status does not say it."""
_SHOWN_LENGTH: Final = 2000  # characters of a message
_LONGEST_SAID: Final = 500
_REFUSED: Final = 400  # the status of an error in a stream
_UNSAID: Final = "the upstream answered with an error without a message"
_TEXT_TYPE: Final = "text/plain"
_TYPE_HEADER: Final = "x-amzn-errortype"

Clean = Callable[[str], str]
_Whose = TypeVar("_Whose", bound=tuple[str, ...])
_Learned = TypeVar("_Learned")


def refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    clean: Clean = str,
    ours: str = "",
    dialect: str = "",
) -> UpstreamError:
    """The error for a status other than 2xx. Status, type, code, message, param and retry-after are the
    upstream's own if it gave them; each text passes through `clean`, which removes secrets.

    `ours` is the message that a client reads instead when the upstream refuses a key that is not the
    client's, since the client's key would seem to be wrong. It has a code of its own, and a status that
    clients do not retry. Clients of the upstream's `dialect` also get the other fields of its error."""
    unsaid = _no_message(status, headers, body)
    reported = _with_type(reported_in(body), headers)
    return _refused(status, headers, reported, said_in(body, clean), unsaid, clean, ours, dialect=dialect)


def _with_type(reported: ReportedError | None, headers: Mapping[str, str]) -> ReportedError | None:
    """Return the error with the type that Amazon's services have in a header, before an address."""
    named = headers.get(_TYPE_HEADER, "").partition(":")[0].strip()
    if not named or (reported is not None and reported.type is not None):
        return reported
    return (reported or ReportedError())._replace(type=named[:LONGEST_NAME])


def _refused(
    status: int | None,
    headers: Mapping[str, str],
    reported: ReportedError | None,
    text: str,
    unsaid: str,
    clean: Clean,
    ours: str,
    *,
    otherwise: int = 502,
    dialect: str = "",
) -> UpstreamError:
    """The error that is `reported`. `status` is None if the answer has the status of a success; `otherwise`
    is the status if the error implies none. `unsaid` is the message for clients if the error has none."""
    error = reported or ReportedError()
    words = error.message or unsaid
    known = cause_of(status, error.codes, words)
    cause = "it answered with an error under a status that means success"
    if status is not None:
        cause = f"it answered with status {status}"
    else:
        status = _status_meant(error) or (known and STATUS_OF[known.cause]) or otherwise
    if known is not None and known.cause is Cause.TOO_LONG and (status == 429 or status >= 500):
        status = STATUS_OF[Cause.TOO_LONG]  # any other says that the same request may succeed
    kind, code, param = (_name(each, clean) for each in (error.type, error.code, error.param))
    is_key = _is_about_the_key(status, error, known)
    failover = _failover_cause(status, reported, known, is_key)
    counts = failover not in ("403", "404") and not (known and known.cause is Cause.ASKS_TOO_MUCH)
    # words alone may be those of the request
    if known is not None and not known.is_certain and failover in _KEY_CAUSES and status not in _SAYING_SO:
        counts = False
    if ours and is_key:
        return UpstreamError(
            400,  # any other but 429 is repeated by Codex, 429 and 5xx by others
            ours,
            code=UpstreamError.AUTHENTICATION,
            error_type="server_error",
            cause=cause,
            facts=FailureFacts(said=text, permanent=True, failover=failover, counts=counts),
        )
    retry_after = _retry_after(status, headers, error)
    return UpstreamError(
        # a redirect would carry the key elsewhere, so it is not followed and no client can use it
        status if 400 <= status <= 599 else 502,
        clean(words[: 2 * _SHOWN_LENGTH])[:_SHOWN_LENGTH],
        code=code_for(code, known),
        error_type=kind,
        param=param,
        headers={"retry-after": retry_after} if retry_after else None,
        cause=cause,
        facts=FailureFacts(
            said=text,
            permanent=failover in _KEY_CAUSES or _is_permanent(status, headers),
            failover=failover,
            counts=counts,
            native=each_text(native_error(dialect, error.fields) or {}, clean) if dialect else None,
            reported=error._replace(message=words),
        ),
    )


def _retry_after(status: int, headers: Mapping[str, str], error: ReportedError) -> str | None:
    """Return the seconds after which the request may be repeated, as a header; None if nothing says so."""
    header = passed_on(headers.get("retry-after"))
    if header is None and (wait := _limit_wait(status, headers, error.fields)) is not None:
        return str(math.ceil(wait))
    return header


def _is_permanent(status: int, headers: Mapping[str, str]) -> bool:
    """Return True if the status or the upstream says that the same request is refused again."""
    says_so = headers.get("x-should-retry", "").strip().lower() == "false"
    return status in (*_NOT_THERE, *_WRONG_KEY) or status < 400 or says_so


def cleaner(upstream: Upstream, request: UpstreamRequest) -> Clean:
    """Return a function that removes from the upstream's texts what only it may see of this request."""
    return lambda text: request.clean(upstream.clean(text, request.client_key))


def refused_by(
    upstream: Upstream, request: UpstreamRequest, status: int, headers: Mapping[str, str], body: bytes
) -> UpstreamError:
    """Return the `refusal` of this request, as its client may see it."""
    clean, ours = cleaner(upstream, request), upstream.key_refused(request.client_key)
    refused = refusal(status, headers, body, clean, ours, request.dialect)
    return refused if ours else _about_the_client(refused)


def refused_in_band(upstream: Upstream, request: UpstreamRequest, body: bytes) -> UpstreamError | None:
    """Return the refusal in an answer with a good status, as the client may see it; None if the answer
    reports no error."""
    clean, ours = cleaner(upstream, request), upstream.key_refused(request.client_key)
    refused = in_band_refusal(body, clean, ours, request.dialect)
    return refused if ours or refused is None else _about_the_client(refused)


def refused_in_stream(upstream: Upstream, request: UpstreamRequest, frame: bytes) -> UpstreamError:
    """Return the refusal in a frame of a stream that is an error, as the client may see it."""
    clean, ours = cleaner(upstream, request), upstream.key_refused(request.client_key)
    reported, text = reported_in(frame) or ReportedError(), said_in(frame, clean)
    refused = _refused(
        None, {}, reported, text, _UNSAID, clean, ours, otherwise=_REFUSED, dialect=request.dialect
    )
    return refused if ours else _about_the_client(refused)


def _about_the_client(error: UpstreamError) -> UpstreamError:
    """The refusal of a request with the client's own key: it says nothing about this server's keys, and a key
    that is refused is not sent to another upstream."""
    if error.failover in _KEY_CAUSES:
        error.failover = ""
    if error.failover in ("", "429"):
        error.counts = False
    return error


def _limit_wait(status: int, headers: Mapping[str, str], fields: Mapping[str, Any]) -> float | None:
    # other answers have the headers of limits, too
    return limit_seconds(headers if status == 429 else {}, fields, time.time())


def _failover_cause(status: int, reported: ReportedError | None, known: Refusal | None, is_key: bool) -> str:
    """Return why another upstream may answer what this one has refused, in the words of the setting
    `failover_on`; "" if the request is why."""
    cause = None if known is None else known.cause
    if cause is Cause.MONEY or status == 402:
        return "402"
    if cause is Cause.MODEL:
        return "404"
    if status in _NOT_THERE:
        error = reported or ReportedError()
        if error.code == _FORGOTTEN or error.param in _LINKS:
            return ""
        return "404" if reported is None or _NAMES_MODEL.search(error.message or "") else ""
    if status == 403:
        return "403" if is_key or cause is Cause.REGION else ""
    if is_key:
        return "401"
    if status in (408, 429):
        return str(status)
    if status < 400 or status >= 500:
        return "5xx"
    return "" if cause is None else _FAILOVER.get(cause, "")


def said_in(body: bytes, clean: Clean = str) -> str:
    """The beginning of a body for the operator's log: on one line, without keys."""
    text = clean(body[: 16 * _LONGEST_SAID].decode("utf-8", "replace"))
    return printable(" ".join(text[: 2 * _LONGEST_SAID].split()))[:_LONGEST_SAID]


def _is_about_the_key(status: int, error: ReportedError, known: Refusal | None) -> bool:
    """Return True if the refusal is about the key. A 403 may be about the request instead: then its error
    says so, and one of another status may be about the key."""
    if status in (401, 407):
        return known is None or known.cause is not Cause.MONEY
    if known is not None and known.cause is Cause.KEY:
        return True
    return status == 403 and error.code is None and error.type is None


def has_forgotten(error: UpstreamError, response_id: str) -> bool:
    """Return True if the upstream refuses to continue its response with this id, because it no longer has it
    or may not use it."""
    if error.code == _FORGOTTEN:
        return True
    named = error.param in _LINKS or response_id in error.message
    return error.http_status in (400, 404) and named


def is_about(cause: Cause, error: UpstreamError) -> Refusal | None:
    """The statement of the refusal about this cause, None if it is about another."""
    if error.code == UpstreamError.AUTHENTICATION:
        return None
    reported = error.reported or ReportedError(error.message, error.error_type, error.code)
    return refusal_for(cause, error.http_status, reported.codes, reported.message or "", reported.fields)


def is_too_long(error: UpstreamError) -> bool:
    """Return True if the upstream's model has no room for the input."""
    return error.code == CODE


def refuses_format(error: UpstreamError) -> bool:
    """Return True if the upstream refuses the format of the answer, its schema, or a function that is forced
    for it."""
    named = (error.param or "").partition(".")[0] in _FORMAT_PARAMS
    if named and error.http_status in STATUSES[Cause.FORMAT]:
        return True
    return is_about(Cause.FORMAT, error) is not None


def output_room(error: UpstreamError, sent: bytes) -> int | None:
    """Return how many tokens of an answer the upstream has room for, by its refusal of a request with this
    body for asking for too many; None if it is refused for something else, or its refusal names no limit."""
    requested = _ASKED.search(sent)
    if requested is None or is_about(Cause.OUTPUT, error) is None:
        return None
    text = _THOUSANDS.sub("", error.message)
    most = int(requested[1])
    added, window, prompt = _SUM.search(text), _WINDOW.search(text), _GIVEN.search(text)
    if added is not None:
        room = int(added[3]) - int(added[1])
    elif window is not None:
        size = int(window[1])
        room = (
            size - int(prompt[1]) if prompt else max(size - len(sent) // _BYTES_A_TOKEN, size // _LEAST_PART)
        )
    else:
        room = max((number for each in _NUMBER.findall(text) if (number := int(each)) < most), default=0)
    return room if 0 < room < most else None


class OwnersModel(NamedTuple):
    """A model of an upstream for one key: if it refuses images of a key, that may be about those images
    only."""

    owner: str
    upstream: str
    model: str


class RecentRefusals(Generic[_Whose, _Learned]):
    """The refusals of the last `seconds` seconds, by owner and model: of each owner at most `MOST_REMEMBERED`
    models, so that the requests of one owner never evict what was learned from those of another. One per
    worker; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, seconds: float = REMEMBERED) -> None:
        self._clock = clock
        self._seconds = seconds
        self.known: dict[str, dict[_Whose, tuple[float, _Learned]]] = {}
        """By owner: when each refusal expires and what was learned from it, the latest last."""

    def find(self, whose: _Whose) -> _Learned | None:
        """Return what was learned lately; None if nothing was."""
        mine = self.known.get(whose[0])
        entry = None if mine is None else mine.get(whose)
        if entry is None:
            return None
        until, learned = entry
        if until > self._clock():
            return learned
        self.evict(whose)
        return None

    def keep(self, whose: _Whose, learned: _Learned) -> None:
        """Remember this from now on, instead of what was learned before."""
        owner = whose[0]
        mine = self.known.pop(owner, {})
        if len(self.known) == MOST_OWNERS:
            del self.known[next(iter(self.known))]
        self.known[owner] = mine
        mine.pop(whose, None)
        if len(mine) == MOST_REMEMBERED:
            del mine[next(iter(mine))]
        mine[whose] = self._clock() + self._seconds, learned

    def evict(self, whose: _Whose) -> None:
        """Drop what was learned."""
        mine = self.known.get(whose[0])
        if mine is not None and mine.pop(whose, None) is not None and not mine:
            del self.known[whose[0]]


class LearnedLimits(RecentRefusals[tuple[str, str], int]):
    """The most tokens that models take of a key's input, as their refusals have named them: what a refusal
    says may be what the key's own request made it say. They are known by (owner, model as its clients call
    it) for a day after the last refusal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock, _A_DAY)

    def learn(self, owner: str, model: str, error: UpstreamError) -> None:
        """Keep the limit that a refusal of this model names, if it names one."""
        statement = is_about(Cause.TOO_LONG, error) if error.code == CODE else None
        if statement is not None and statement.limit is not None:
            self.keep((owner, model), statement.limit)

    def of(self, owner: str, model: EnrichedModelData) -> EnrichedModelData:
        """The model with the limit that this owner's requests have met."""
        limit = self.find((owner, model.id))
        if limit is None:
            return model
        window, most = min(model.context_window, limit), min(model.max_input_tokens, limit)
        return replace(model, context_window=window, max_input_tokens=most, limits_known=True)


class ImageRefusals(RecentRefusals[OwnersModel, Literal["images"]]):
    """The models that have refused images of a key lately, so that later turns of a conversation are not
    refused first."""

    def __contains__(self, model: OwnersModel) -> bool:
        """Return True if this model has refused images in the last `REMEMBERED` seconds."""
        return self.find(model) is not None

    def record(self, model: OwnersModel, *, accepted: bool) -> None:
        """The model has accepted a request with images, or only without them."""
        if accepted:
            self.evict(model)
        else:
            self.keep(model, "images")


def in_band_refusal(
    body: bytes, clean: Clean = str, ours: str = "", dialect: str = ""
) -> UpstreamError | None:
    """The error in the body of an answer with a good status; None if there is none."""
    reported = reported_in(body, within_answer=True)
    if reported is None:
        return None
    return _refused(None, {}, reported, said_in(body, clean), _UNSAID, clean, ours, dialect=dialect)


def _status_meant(error: ReportedError) -> int | None:
    """The status that an error means where the answer's own is that of success."""
    return next((status for each in error.codes if each and (status := status_of(each)) is not None), None)


def is_about_the_key(error: ErrorPayload) -> bool:
    """Return True if an error within a stream is the refusal of the request's key."""
    reported = ReportedError(error.message, error.type, error.code)
    known = cause_of(None, reported.codes, error.message)
    status = _status_meant(reported)
    if status is None:
        return known is not None and known.cause is Cause.KEY and known.is_certain
    return _is_about_the_key(status, reported, known)


def _name(text: str | None, clean: Clean) -> str | None:
    """A code for programs: one longer than any real code is cut."""
    return None if text is None else clean(text)[:LONGEST_NAME]


def _no_message(status: int, headers: Mapping[str, str], body: bytes) -> str:
    kind = headers.get("content-type", "").partition(";")[0].strip()
    text = printable(" ".join(body[: 4 * _SHOWN_LENGTH].decode("utf-8", "replace").split()))
    if kind == _TEXT_TYPE and text and status not in _NOT_THERE:
        return text  # its own words
    typed = f"of type {printable(kind)}" if kind else "without a content type"
    what = f"a body {typed}" if body.strip() else "an empty body"
    why = "; does it speak the dialect that it is set up with?" if status in _NOT_THERE else ""
    return f"the upstream answered with status {status} and {what}{why}"
