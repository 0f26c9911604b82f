"""The record of a loop: one entry for each event, from which a loop can be resumed.

The start of a call is recorded before the call runs, so that no call runs twice after a crash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from openresponses_agent.prompt.context import (
    ApprovalRequest,
    Attachment,
    ConversationSummary,
    Reference,
    ToolCall,
    ToolCallRound,
    Turn,
)
from openresponses_agent.prompt.raw import ChatMessage
from openresponses_agent.tools.results import LanguageModelToolResult
from openresponses_bridge.errors import RemoteError
from openresponses_bridge.protocol.usage import Usage


class JournalError(RemoteError):
    """A journal from which a loop can't be resumed; the message names the line."""

    INVALID = "bridge.loop.invalid_journal"


class _JournalEntry(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type"):
    """One event of a loop."""


class LoopBegun(_JournalEntry, frozen=True, tag="begun"):
    """A question was asked."""

    query: str
    settings: dict[str, str] = field(default_factory=dict)
    """The driver's own settings, such as the model."""
    attachments: list[Attachment] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)


class RoundMade(_JournalEntry, frozen=True, tag="round"):
    """The model answered."""

    round: ToolCallRound
    usage: Usage | None = None
    """The sum of all attempts."""
    summary: ConversationSummary | None = None
    """The summary that the prompt had instead of the conversation's beginning."""
    incomplete: str = ""
    """Why the answer was cut off; "" if it was not."""
    trimmed: bool = False
    """True if the callback stopped the reading."""


class CallsBegun(_JournalEntry, frozen=True, tag="calls"):
    """The calls with these internal ids are about to run, or the user is about to be asked for these
    approvals."""

    ids: list[str]


class CallEnded(_JournalEntry, frozen=True, tag="result"):
    """A call has ended, or the user has decided on a request for approval."""

    id: str
    result: LanguageModelToolResult
    failure: str = ""
    """The code of the error, if the call did not run to its end."""
    notes: list[str] = field(default_factory=list)
    """The changes of its arguments."""


class LimitRaised(_JournalEntry, frozen=True, tag="limit"):
    """The user allowed more rounds: `rounds` is the new limit."""

    rounds: int


class LoopEnded(_JournalEntry, frozen=True, tag="end"):
    """The loop ended; `end` is a LoopEnd."""

    end: str
    message: str = ""


LoopEntry = LoopBegun | RoundMade | CallsBegun | CallEnded | LimitRaised | LoopEnded


class LoopState:
    """The state of a loop, folded from its entries. `history` has the earlier questions; all other attributes
    are about the newest one."""

    def __init__(self, entries: Iterable[LoopEntry] = ()) -> None:
        self.history: list[Turn] = []
        self.query: str | None = None
        self.attachments: list[Attachment] = []
        self.references: list[Reference] = []
        self.settings: dict[str, str] = {}
        self.rounds: list[ToolCallRound] = []
        self.results: dict[str, LanguageModelToolResult] = {}
        self.begun: set[str] = set()  # calls that have started, or are about to
        self.asked: set[str] = set()  # requests for approval, of all questions
        self.failures: dict[str, str] = {}  # failed call → error code
        self.limit: int | None = None
        self.summary: ConversationSummary | None = None
        self.usage: Usage | None = None  # the sum over all rounds, None when no model reported any
        self.incomplete, self.trimmed = "", False
        self.end: LoopEnded | None = None
        self._calls: dict[str, ToolCall] = {}
        for number, entry in enumerate(entries, 1):
            try:
                self.apply(entry)
            except ValueError as error:
                raise JournalError(JournalError.INVALID, f"line {number} {error}") from error

    @property
    def number_of_calls(self) -> int:
        """The number of calls of all questions so far."""
        return len(self._calls)

    def call(self, call_id: str) -> ToolCall | None:
        """Return the call with this internal id."""
        return self._calls.get(call_id)

    def pending(self) -> list[ToolCall]:
        """Return the calls of the last round that have no result, in order."""
        calls = self.rounds[-1].tool_calls if self.rounds else ()
        return [call for call in calls if call.id not in self.results]

    def undecided(self) -> list[ApprovalRequest]:
        """Return the requests for approval of the last round that have no decision, in order."""
        approvals = self.rounds[-1].approvals if self.rounds else ()
        return [each for each in approvals if each.id not in self.results]

    def _open(self) -> set[str]:
        return {call.id for call in self.pending()} | {request.id for request in self.undecided()}

    def apply(self, entry: LoopEntry) -> None:
        """Apply an entry. Raises ValueError, without any effect, for an entry that is not allowed in this
        state."""
        if isinstance(entry, LoopBegun):
            self._begin(entry)
        elif self.query is None:
            raise ValueError("comes before a question")
        elif isinstance(entry, RoundMade):
            self._add(entry)
        elif isinstance(entry, CallsBegun):
            self._start(entry)
        elif isinstance(entry, CallEnded):
            self._finish(entry)
        elif isinstance(entry, LimitRaised):
            self.limit, self.end = entry.rounds, None
        else:
            self.end = entry

    def _begin(self, entry: LoopBegun) -> None:
        if self.query is not None:
            self.history.append(
                Turn(
                    query=self.query,
                    attachments=self.attachments,
                    references=self.references,
                    rounds=self.rounds,
                    results=self.results,
                )
            )
        self.query, self.settings = entry.query, entry.settings
        self.attachments, self.references = entry.attachments, entry.references
        self.rounds, self.results, self.limit, self.end = [], {}, None, None
        self.incomplete, self.trimmed, self.usage = "", False, None

    def _add(self, entry: RoundMade) -> None:
        ids = [call.id for call in entry.round.tool_calls]
        approval_ids = [each.id for each in entry.round.approvals]
        if len({*ids, *approval_ids}) < len(ids) + len(approval_ids) or any(
            each in self._calls for each in ids
        ):
            raise ValueError("has a call whose id was used before")
        if self.asked.intersection(approval_ids):
            raise ValueError("has a request for approval whose id was used before")
        if self._open():
            raise ValueError("is a round before the calls of the last one have ended")
        self.rounds.append(entry.round)
        self._calls.update((call.id, call) for call in entry.round.tool_calls)
        self.asked.update(approval_ids)
        self.summary, self.incomplete, self.trimmed = entry.summary, entry.incomplete, entry.trimmed
        self.end = None
        if entry.usage is not None:
            self.usage = entry.usage if self.usage is None else self.usage.plus(entry.usage)

    def _start(self, entry: CallsBegun) -> None:
        if not (self._open() - self.begun).issuperset(entry.ids):
            raise ValueError("begins a call that is unknown or was begun before")
        self.begun.update(entry.ids)
        self.end = None

    def _finish(self, entry: CallEnded) -> None:
        if entry.id not in self._open():
            raise ValueError("ends a call that is unknown or has ended before")
        self.results[entry.id] = entry.result
        if entry.failure:
            self.failures[entry.id] = entry.failure


# Each entry is a line of JSON. A round's prompt repeats the whole conversation, so that the prompts of a loop
# grow with the square of its rounds. A line therefore has only the messages that are new in the prompt, and
# the ranges of the previous round's prompt between them: the size of all lines is linear in the conversation.

LINE_END: Final = b"\n"
MOST_MESSAGES: Final = 1 << 24
"""Limit of the messages in all prompts of a journal: decoded prompts are larger than their lines."""

Kept = tuple[int, int, int]
"""`(at, start, stop)`: before the new message number `at` come the messages from `start` to `stop` of the
previous round's prompt. Each message is used at most once, in the order of that prompt."""


class _RoundLine(RoundMade, frozen=True, tag="round"):
    """A round whose `prompt` has only the new messages. `same_summary` is True if the summary is that of the
    previous round."""

    kept: list[Kept] = field(default_factory=list)
    same_summary: bool = False


_Line = LoopBegun | _RoundLine | CallsBegun | CallEnded | LimitRaised | LoopEnded

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Line).decode


def encode_entry(entry: LoopEntry, last_round: RoundMade | None = None) -> bytes:
    """Encode an entry as a line with its line end. `last_round` is the last RoundMade that was written
    before; without it, the line of a round has its whole prompt."""
    if isinstance(entry, RoundMade) and last_round is not None:
        entry = _shortened(entry, last_round)
    return _encode(entry) + LINE_END


def decode_entries(data: bytes) -> Iterator[LoopEntry]:
    """Yield the entries of a journal. A last line without its line end was being written when the process
    stopped; it is left out. Raises JournalError for any other line that is not an entry or refers to messages
    that do not exist, and for prompts of more than `MOST_MESSAGES` in sum."""
    *lines, _cut = data.split(LINE_END)
    last: RoundMade | None = None
    messages = 0
    for number, line in enumerate(lines, 1):
        try:
            entry = _decode(line)
            if isinstance(entry, _RoundLine):
                messages += len(entry.round.prompt) + sum(stop - start for _, start, stop in entry.kept)
                if messages > MOST_MESSAGES:
                    raise ValueError(f"its prompts have more than {MOST_MESSAGES} messages")
                entry = last = _whole(entry, last)
        except (ValueError, RecursionError) as error:  # msgspec's decoding errors are ValueErrors
            raise JournalError(JournalError.INVALID, f"line {number} is not an entry: {error}") from error
        yield entry


def _shortened(entry: RoundMade, last: RoundMade) -> _RoundLine:
    new, ranges = _difference(last.round.prompt, entry.round.prompt)
    same = entry.summary is not None and entry.summary == last.summary
    return _RoundLine(
        replace(entry.round, prompt=new),
        entry.usage,
        None if same else entry.summary,
        entry.incomplete,
        entry.trimmed,
        ranges,
        same,
    )


def _difference(
    before: Sequence[ChatMessage], prompt: Sequence[ChatMessage]
) -> tuple[list[ChatMessage], list[Kept]]:
    """Return the new messages of a prompt, and which messages of the previous prompt it repeats. Linear in
    both. Messages are compared as bytes, since 1 equals True."""
    places: dict[bytes, list[int]] = {}
    for place, message in enumerate(before):
        places.setdefault(_encode(message), []).append(place)
    new: list[ChatMessage] = []
    ranges: list[Kept] = []
    following = 0
    for message in prompt:
        candidates = places.get(_encode(message), [])
        index = bisect_left(candidates, following)
        if index == len(candidates):
            new.append(message)
            continue
        place = candidates[index]
        if ranges and ranges[-1][0] == len(new) and ranges[-1][2] == place:
            ranges[-1] = (len(new), ranges[-1][1], place + 1)
        else:
            ranges.append((len(new), place, place + 1))
        following = place + 1
    return new, ranges


def _whole(line: _RoundLine, last: RoundMade | None) -> RoundMade:
    """Return the round with its whole prompt. Raises ValueError if the line does not fit the round before."""
    before = [] if last is None else last.round.prompt
    new, prompt, done, used = line.round.prompt, list[ChatMessage](), 0, 0
    for at, start, stop in line.kept:
        if not (done <= at <= len(new) and used <= start < stop <= len(before)):
            raise ValueError("it refers to messages that the round before does not have")
        prompt += [*new[done:at], *before[start:stop]]
        done, used = at, stop
    if line.same_summary and last is None:
        raise ValueError("it refers to the summary of a round before, and there is none")
    summary = last.summary if line.same_summary and last is not None else line.summary
    full_round = replace(line.round, prompt=[*prompt, *new[done:]])
    return RoundMade(full_round, line.usage, summary, line.incomplete, line.trimmed)
