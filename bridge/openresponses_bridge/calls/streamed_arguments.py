"""The arguments of a call as they stream, without what servers put around them or send twice.

Servers send `{}` in place of arguments that follow, begin them again after a part of them, repeat all so far
with each piece, put tokens of the model or a fence around them, and close more brackets than were open. What
was passed on can't be taken back, and the pieces passed on must add up to the arguments. So `{}` waits for
the next piece; repeated text is compared with what was passed on, and only the rest of it is passed on; of
one piece with several whole objects, the last one is. A call that begins again as something else is `broken`.
"""

from __future__ import annotations

import re
from io import StringIO
from typing import Final

from openresponses_bridge.calls.json_text import JsonState, Nesting, decodes, json_state, same_json
from openresponses_bridge.diagnostics import Diagnostics

_WHERE: Final = "tool_call.arguments"
DIFFER: Final = "they came again and differ from those that were sent: incomplete"
"""The diagnostic for arguments that were sent and are not all of them."""
_DROPPED: Final = "what stood in their place or before them was dropped"
_REPEATED: Final = "they began more than once, the last time counts"
_MOST_BEGINNINGS: Final = 64  # brackets in a text that is not JSON at which its arguments may begin again
BRACKETS: Final = frozenset("{}[]<` \t\n\r")
"""A piece of arguments that begins with none of these continues the text before it."""
_LONGEST_TOKEN: Final = 40
# what may be before the arguments: an empty object that stands for them, a token of the model, a fence
_PLACEHOLDER: Final = r"\{\s*+\}"
_MARK: Final = r"<\|[^<>|{}]*+\|>|<｜[^<>｜{}]*+｜>|</?[a-z_]++>"
_TOKEN: Final = rf"\ufeff|(?:\[CALL_ID\]\w*)?\[[A-Z_]++\]|(?:{_MARK})(?:json\b)?|```(?:json\b)?"
_BEFORE: Final = re.compile(rf"\s*+(?>(?:(?:{_PLACEHOLDER}|{_TOKEN})\s*+)+)(?=[{{<\[])")
_CUT_TOKEN: Final = r"\[[A-Z_]*+|<(?:\|[^<>|{}]*+\|?|/?[a-z_]*+)?|`{1,3}|```[json]*+"
_WAITING: Final = re.compile(rf"\s*+(?>(?:(?:{_PLACEHOLDER}|{_TOKEN})\s*+)*)(?:{_CUT_TOKEN})?\Z")
_EMPTY: Final = re.compile(_PLACEHOLDER)
# what may be after them, and the beginnings of that
_BEHIND: Final = re.compile(rf"(?>(?:[\]}}]|{_MARK}|```|\s)+)\Z")
_CUT_BEHIND: Final = re.compile(rf"(?>(?:[\]}}]|{_MARK}|```|\s)*)(?:<[/|｜]?[^<>{{}}]*+|`{{1,2}})\Z")
_MAY_END: Final = re.compile(r"[}\]]\s*+[^\s,:\"]")


def may_begin_again(fragment: str) -> bool:
    """Return whether a piece that begins with one of BRACKETS needs a closer look."""
    return fragment.lstrip()[:1] in ("{", "}", "[", "]", "<", "`")


def may_go_on_behind(fragment: str) -> bool:
    """Return whether a piece with a closing bracket needs a closer look: there may be more after the last
    bracket."""
    return _MAY_END.search(fragment) is not None


def is_placeholder(arguments: str) -> bool:
    """Return whether these arguments may stand for others that follow: an object without content."""
    return _EMPTY.fullmatch(arguments.strip()) is not None


def whole_within(text: str) -> str | None:
    """Return the arguments at the end of this text, which is not JSON, if parts of them come before: they
    began again where more text was also possible, such as within a string."""
    if not text.rstrip().endswith("}"):
        return None
    at = text.find("{", 1)
    for _ in range(_MOST_BEGINNINGS):
        if at < 0:
            break
        before, after = "".join(text[:at].split()), "".join(text[at:].split())
        if _is_made_of(before, after) and json_state(text[at:]) is JsonState.COMPLETE:
            return text[at:]
        at = text.find("{", at + 1)
    return None


def _is_made_of(text: str, whole: str) -> bool:
    """Return whether a text consists of beginnings of another one."""
    end = at = _agreeing(text, whole)  # up to here the text consists of beginnings
    for _ in range(_MOST_BEGINNINGS):
        if end == len(text):
            return True
        at = text.rfind("{", 1, at + 1)  # the next one may begin within the common part
        if at < 0:
            return False
        length = _agreeing(text[at:], whole)
        if at + length > end:
            end = at = at + length
        else:
            at -= 1
    return False


def _agreeing(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts, in characters."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # the first `low` characters are the same
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class StreamedArguments:
    """Reads the pieces of one call's arguments. What `feed`, `release` and `end` return has to be passed on
    and appended to `sent`, which gets nothing else. `broken` is True if the arguments came again and differ
    from those that were passed on. `dropped` belongs to them only if they are not JSON."""

    __slots__ = (
        "_again",
        "_behind",
        "_diagnostics",
        "_differs",
        "_ended",
        "_held",
        "_is_passing",
        "_nesting",
        "_read",
        "_size",
        "broken",
        "dropped",
    )

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self.broken = False
        self.dropped = ""  # the beginning of what was dropped behind the arguments
        self._held = ""  # not passed on yet
        self._behind = ""  # text after the arguments, as long as it may become a token
        self._again: list[str] | None = None  # repeated arguments, while they may equal those sent
        self._size = 0  # their size, in characters
        self._differs = False  # they are not those sent
        self._nesting = Nesting()
        self._read = 0  # characters of `sent` that `_nesting` has read
        self._ended = self._is_passing = False

    @property
    def held(self) -> str:
        """The text that waits for the next piece."""
        return self._held

    @property
    def is_plain(self) -> bool:
        """True if a piece that does not begin again may be passed on without a look."""
        return self._again is None and not (self._held or self._behind)

    def release(self) -> str:
        """Return the waiting text, to be passed on."""
        pending, self._held = self._held, ""
        return pending

    def go_on(self) -> None:
        """Pass on whatever comes next: it continues earlier text, which is not kept any more."""
        self._is_passing = True

    def feed(self, fragment: str, sent: StringIO) -> str:
        """Feed the next piece. Returns what can be passed on now."""
        if self._is_passing:
            return fragment
        if self._again is not None:
            return self._feed_again(fragment, sent)
        if self._behind:
            return self._go_on_behind(fragment)
        if not sent.tell():
            passed = self._begin(self._held + fragment)
        elif self._held:
            passed = self._go_on(self.release(), fragment, sent)
        else:
            passed = self._follow(fragment, sent) if may_begin_again(fragment) else fragment
        return self._cut_off(passed, sent) if may_go_on_behind(passed) else passed

    def end(self, sent: StringIO) -> str:
        """End the arguments. Returns the rest to pass on."""
        if self._ended:
            return ""
        self._ended = True
        pending = self.release()
        if pending and sent.tell():  # the last object is within the ones before it, or all of them again
            whole = sent.getvalue()
            is_within = json_state(whole + pending) is JsonState.COMPLETE
            return pending if is_within else self._rest(pending, whole) or ""
        if self._again is not None:
            self._compare("".join(self._again), sent.getvalue())
        if self._behind:
            return self._behind  # never whole: the model's own words
        if (empty := _EMPTY.search(pending)) is not None and pending.strip() != empty[0]:
            self._repair(_DROPPED)
            return empty[0]
        return pending

    def _begin(self, text: str) -> str:
        """Begin to pass text on, before which nothing was passed on."""
        if len(text) <= _LONGEST_TOKEN and text.strip() and _WAITING.match(text):
            self._held = text
            return ""
        self._held = ""
        if (before := _BEFORE.match(text)) is not None:
            self._repair(_DROPPED)
            text = text[before.end() :]
        if text.endswith("}") and not decodes(text):
            whole = whole_within(text)
            if whole is not None and json_state(text) is JsonState.MALFORMED:
                self._repair(_REPEATED)
                return whole
        return text

    def _follow(self, fragment: str, sent: StringIO) -> str:
        """Return what can be passed on of a later piece that begins with a bracket."""
        nesting, first = self._look(sent), fragment.lstrip()[0]
        if nesting.closed_once:
            return self._end_behind(fragment) if first != "{" else self._begin_again(fragment, sent)
        if first != "{":
            return fragment
        if not (nesting.in_string or nesting.takes_object):
            return self._begin_again(fragment, sent)
        # where it may be a value: only if it is everything that was sent, from the beginning
        if len(fragment) <= sent.tell() or not fragment.startswith(sent.getvalue()):
            return fragment
        if nesting.in_string:
            goes_on = json_state(sent.getvalue() + fragment) is not JsonState.MALFORMED
            return fragment if goes_on else self._begin_again(fragment, sent)
        self._held = fragment
        return ""

    def _cut_off(self, passed: str, sent: StringIO) -> str:
        """Return the part of a piece up to the bracket that closes the outermost one. The text after it may
        not belong to the arguments, or repeat them."""
        nesting = self._look(sent)
        if nesting.closed_once:
            return passed  # text after it: the model's own words
        end = nesting.feed(passed, to_end=True)
        self._read += end
        head, tail = passed[:end], passed[end:]
        if not tail.strip():
            return passed
        if tail.lstrip()[0] == "{":
            self._again, self._size, self._differs = [tail], len(tail), False
            return head
        return head + self._end_behind(tail)

    def _end_behind(self, text: str) -> str:
        """Return what can be passed on of a text after the arguments: nothing if it has only brackets and
        tokens."""
        if _BEHIND.match(text):
            self._repair("brackets and tokens behind them were dropped")
            self.dropped += text[: _LONGEST_TOKEN - len(self.dropped)]
        elif len(text) <= _LONGEST_TOKEN and _CUT_BEHIND.match(text):
            self._behind = text
        else:
            return text
        return ""

    def _go_on_behind(self, fragment: str) -> str:
        text, self._behind = self._behind + fragment, ""
        return self._end_behind(text)

    def _go_on(self, buffered: str, fragment: str, sent: StringIO) -> str:
        """Return what can be passed on after an object that may be a value or all arguments again."""
        if fragment.startswith(buffered):
            return self._begin_again(fragment, sent)
        return buffered + fragment

    def _look(self, sent: StringIO) -> Nesting:
        if self._read != sent.tell():
            sent.seek(self._read)
            self._nesting.feed(sent.read())
            self._read = sent.tell()
        return self._nesting

    def _begin_again(self, fragment: str, sent: StringIO) -> str:
        self._again, self._size, self._differs = [], 0, False
        return self._feed_again(fragment, sent)

    def _feed_again(self, fragment: str, sent: StringIO) -> str:
        assert self._again is not None
        self._again.append(fragment)
        self._size += len(fragment)
        if self._differs or self._size < sent.tell():
            return ""
        text, whole = "".join(self._again), sent.getvalue()
        self._again = [text]
        rest = self._rest(text, whole)
        if rest is None:
            self._differs = True
            return ""
        self._again = None
        return rest

    def _rest(self, text: str, sent: str) -> str | None:
        """Return the rest of repeated arguments after those that were sent; None if they differ."""
        if not text.startswith(sent):
            return None
        self._repair("they came again from their beginning, the rest was added")
        return text[len(sent) :]

    def _compare(self, text: str, sent: str) -> None:
        if sent.startswith(text.strip()) or same_json(text, sent):
            self._repair("they came again, dropped")
            return
        self.broken = True
        self._diagnostics.warning(_WHERE, DIFFER)

    def _repair(self, what: str) -> None:
        self._diagnostics.repair(_WHERE, what)
