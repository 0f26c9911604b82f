"""What the demo model can do, as one table: a name, the words that ask for it, and what it plays.

A play yields the choices of Chat Completions chunks, in order: `{"delta": …}`, `{"finish_reason": …}`;
an `{"error": …}` is sent in band, and a play that ends without a finish reason is a cut stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from openresponses_server.upstreams.demo.samples import sample
from openresponses_server.upstreams.demo.turn import Turn

Step = dict[str, Any]
Play = Callable[[Turn], Iterator[Step]]

_PIECE: Final = re.compile(r"(?<!\s)\s*+\S++")
_WORDS_ASKED: Final = re.compile(r"(?<!\d)(\d{1,9}) words")
_ARGUMENT_PIECE: Final = 12  # characters
_MAX_WORDS: Final = 200_000
_LONG: Final = 2_000  # words
STOP: Final[Step] = {"finish_reason": "stop"}


class Behaviour(NamedTuple):
    """`words` in the last user message ask for it, as does the model name `demo-<name>`. `pause` is the
    wait before each piece, in seconds."""

    words: re.Pattern[str] | None
    play: Play
    pause: float = 0.0


def behaviour_of(turn: Turn) -> Behaviour:
    """The behaviour for this turn: by the model's name, then by its tools, then by the words."""
    named = BEHAVIOURS.get(turn.model.removeprefix("demo-"))
    if named is not None:
        return named
    if turn.chosen_tools():
        return BEHAVIOURS["tools"]
    if not turn.results:
        for behaviour in BEHAVIOURS.values():
            if behaviour.words is not None and behaviour.words.search(turn.text):
                return behaviour
    return BEHAVIOURS["text"]


def say(text: str, field: str = "content") -> Iterator[Step]:
    """The text word by word."""
    return ({"delta": {field: piece}} for piece in _PIECE.findall(text))


def _text(turn: Turn) -> Iterator[Step]:
    if turn.effort not in (None, "none"):
        yield from _think(turn)
    yield from say(_json_answer(turn) or _answer(turn))
    yield STOP


def _answer(turn: Turn) -> str:
    if turn.results:
        return f"The tool answered: {'; '.join(turn.results)}"
    sentences = [f"You said: {turn.text.strip() or 'nothing'}"]
    if turn.images:
        sentences.append(f"I was shown {turn.images} image{'s' * (turn.images > 1)}.")
    if turn.earlier:
        sentences.append(f"Before that you said: {turn.earlier[-1].strip()}")
    return "\n".join(sentences)


def _json_answer(turn: Turn) -> str | None:
    kind = turn.format.get("type")
    if kind == "json_object":
        return json.dumps({"answer": _answer(turn)}, ensure_ascii=False)
    if kind == "json_schema":
        schema = turn.format.get("json_schema", turn.format).get("schema") or {}
        return json.dumps(sample(schema, turn.text), ensure_ascii=False)
    return None


def _think(turn: Turn) -> Iterator[Step]:
    thought = f"The user wrote {len(turn.text.split())} words. I shall answer them plainly."
    return say(thought, "reasoning_content")


def _reasoning(turn: Turn) -> Iterator[Step]:
    yield from _think(turn)
    yield from say(_answer(turn))
    yield STOP


def _tools(turn: Turn) -> Iterator[Step]:
    tools = turn.chosen_tools() or turn.tools[:1]
    if not tools or turn.results:
        yield from _text(turn)
        return
    if turn.effort not in (None, "none"):
        yield from _think(turn)
    for index, tool in enumerate(tools):
        head = {"name": tool.get("name"), "arguments": ""}
        call_id = f"call_demo_{turn.messages}_{index}"
        call = {"index": index, "id": call_id, "type": "function", "function": head}
        yield {"delta": {"tool_calls": [call]}}
        arguments = json.dumps(sample(tool.get("parameters") or {}, turn.text), ensure_ascii=False)
        for at in range(0, len(arguments), _ARGUMENT_PIECE):
            piece = {"arguments": arguments[at : at + _ARGUMENT_PIECE]}
            yield {"delta": {"tool_calls": [{"index": index, "function": piece}]}}
    yield {"finish_reason": "tool_calls"}


def _refusal(turn: Turn) -> Iterator[Step]:
    yield from say("I can't help with that.", "refusal")
    yield STOP


def _long(turn: Turn) -> Iterator[Step]:
    asked = _WORDS_ASKED.search(turn.text)
    count = min(int(asked[1]), _MAX_WORDS) if asked else _LONG
    for number in range(count):
        yield {"delta": {"content": f"word{number} "}}
    yield STOP


def _failure(turn: Turn) -> Iterator[Step]:
    yield from say("This answer ends in a ")
    yield {"error": {"type": "server_error", "code": "demo_failure", "message": "Failed as asked."}}


def _ending(reason: str) -> Play:
    def play(turn: Turn) -> Iterator[Step]:
        yield from say("This answer stops before its ")
        yield {"finish_reason": reason}

    return play


def _cut(turn: Turn) -> Iterator[Step]:
    yield from say("This stream is cut before its ")


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b({pattern})\b", re.IGNORECASE)


BEHAVIOURS: Final[dict[str, Behaviour]] = {
    "text": Behaviour(None, _text),
    "tools": Behaviour(None, _tools),
    "refusal": Behaviour(_words("refuse|refusal"), _refusal),
    "failure": Behaviour(_words("fail|failure"), _failure),
    "incomplete": Behaviour(_words("incomplete|run out of tokens"), _ending("length")),
    "filtered": Behaviour(_words("filtered|content filter"), _ending("content_filter")),
    "cut": Behaviour(_words("cut the stream"), _cut),
    "reasoning": Behaviour(_words("think|reason|reasoning"), _reasoning),
    "slow": Behaviour(_words("slow|slowly"), _long, pause=0.05),
    "long": Behaviour(_words(r"long|\d+ words"), _long),
}
