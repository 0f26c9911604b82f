"""The behaviours of the demo model, as one table: a name, the words that ask for it, and what it plays.

A play yields the choices of Chat Completions chunks, in order: `{"delta": …}`, `{"finish_reason": …}`; an
`{"error": …}` is sent in band, and a play that ends without a finish reason is a cut stream.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct

_MAX_DEPTH: Final = 12
_BUDGET: Final = 100_000
_MOST_WORDS: Final = 10_000  # searched characters
_LARGEST: Final = 10**300
_PATCH: Final = "*** Begin Patch\n*** Add File: demo.txt\n+Hello from the demo model\n*** End Patch\n"

# examples of strings in these formats
_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "demo@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}

# property names → the words of the request to use; the first match counts
_QUOTED: Final = re.compile('["“`]([^"“”`]++)["”`]')
_PLACE: Final = re.compile(r"\b(?:in|at|for|to|near)\s+([A-Z][\w'’-]*(?:,?\s+[A-Z][\w'’-]*)*)")
_PATCH_TEXT: Final = re.compile(
    r"\*\*\* Begin Patch\n(?:(?!\*\*\* Begin Patch\n).)*?\*\*\* End Patch\n?", re.DOTALL
)
_NAMES: Final[tuple[tuple[re.Pattern[str], re.Pattern[str] | None, str | None], ...]] = (
    (re.compile(r"patch"), _PATCH_TEXT, _PATCH),
    (re.compile(r"location|city|place|town|destination"), _PLACE, "Paris"),
    (re.compile(r"cmd|command|script"), _QUOTED, "echo hello"),
    (re.compile(r"path|file"), _QUOTED, "demo.txt"),
    (re.compile(r"url|uri|link"), re.compile(r"(https?://\S+)"), "https://example.com/"),
    (re.compile(r"query|question|prompt|text|input|message|expression|search"), _QUOTED, None),
)


def sample(schema: Any, words: str, name: str = "value") -> Any:
    """A value that fits `schema` (JSON Schema, as far as tools use it), chosen by rule and from the user's
    words, never at random.

    `words` are the user's words, `name` is the value's name. Only required properties are filled, or all if
    none is required. A schema may contain anything: values of a wrong type are ignored, and beyond a budget
    everything is null.
    """
    return _Sampler(schema, words).value(schema, name, 0)


class _Sampler:
    """`_left` is the budget: about the characters of the value and the steps to make it."""

    def __init__(self, root: Any, words: str) -> None:
        self._root = root
        self._words = words[:_MOST_WORDS]
        self._found: dict[re.Pattern[str], str | None] = {}
        self._left = _BUDGET

    def value(self, schema: Any, name: str, depth: int) -> Any:
        self._left -= 1 + len(name)
        if depth > _MAX_DEPTH or self._left < 0:
            return None
        schema = self._resolved(schema)
        for key in ("const", "default"):
            if key in schema:
                return self._paid(schema[key])
        for key in ("enum", "examples"):
            if values := _of(list, schema.get(key)):
                return self._paid(values[0])
        for key in ("anyOf", "oneOf", "allOf"):
            if _of(list, schema.get(key)):
                return self.value(self._merged(schema, key), name, depth + 1)
        return self._maker(schema)(self, schema, name, depth)

    def _paid(self, value: Any) -> Any:
        self._left -= len(json.dumps(value))
        return value

    def _resolved(self, schema: Any) -> dict[str, Any]:
        for _ in range(_MAX_DEPTH):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str):
                break
            self._left -= len(reference)
            schema = self._root
            for step in reference.removeprefix("#").strip("/").split("/"):
                schema = schema.get(step, {}) if isinstance(schema, dict) and step else schema
        return _of(dict, schema)

    def _merged(self, schema: dict[str, Any], key: str) -> dict[str, Any]:
        branches = map(self._resolved, schema[key][: max(0, self._left)])
        if key != "allOf":
            return next((branch for branch in branches if branch.get("type") != "null"), {})
        merged: dict[str, Any] = {name: part for name, part in schema.items() if name != key}
        properties = dict(_of(dict, schema.get("properties")))
        required = list(_of(list, schema.get("required")))
        for branch in branches:
            self._left -= 1 + len(branch)
            for parts, more in ((properties.update, "properties"), (required.extend, "required")):
                entries = _of(dict if more == "properties" else list, branch.get(more))
                self._left -= len(entries)
                if self._left > 0:
                    parts(entries)
            merged.update(branch)
        return {**merged, "properties": properties, "required": required}

    def _maker(self, schema: dict[str, Any]) -> Callable[[_Sampler, dict[str, Any], str, int], Any]:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return _MAKERS.get(str(kind), _Sampler.text)

    def object(self, schema: dict[str, Any], _name: str, depth: int) -> dict[str, Any]:
        properties = _of(dict, schema.get("properties"))
        required = [name for name in _of(list, schema.get("required")) if isinstance(name, str)]
        names = (required or list(properties))[: max(0, self._left)] if properties else []
        return {name: self.value(properties.get(name, {}), name, depth + 1) for name in dict.fromkeys(names)}

    def array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        item = self.value(schema.get("items", {}), name, depth + 1)
        size = len(json.dumps(item))
        times = max(1, min(_count(schema.get("minItems"), 1), self._left // size))
        self._left -= (times - 1) * size
        return [item] * times

    def number(self, schema: dict[str, Any], _name: str, _depth: int) -> int | float:
        least, most = _number(schema.get("minimum")), _number(schema.get("maximum"))
        above = _number(schema.get("exclusiveMinimum"))
        if least is None and above is not None:
            least = above + 1
        chosen = least if least is not None else _number(schema.get("multipleOf")) or 1
        return most if most is not None and chosen > most else chosen

    def boolean(self, _schema: dict[str, Any], _name: str, _depth: int) -> bool:
        return True

    def null(self, _schema: dict[str, Any], _name: str, _depth: int) -> None:
        return None

    def text(self, schema: dict[str, Any], name: str, _depth: int) -> str:
        chosen = _FORMATS.get(str(schema.get("format"))) or self._fitting_words(name)
        chosen = chosen.ljust(min(_count(schema.get("minLength"), 0), max(0, self._left)), "x")
        chosen = chosen[: _count(schema.get("maxLength"), len(chosen))]
        self._left -= len(chosen)
        return chosen

    def _fitting_words(self, name: str) -> str:
        for names, words, otherwise in _NAMES:
            if names.search(name.lower()):
                return (self._search(words) if words else otherwise) or otherwise or self._words or name
        return name

    def _search(self, pattern: re.Pattern[str]) -> str | None:
        if pattern not in self._found:
            match = pattern.search(self._words)
            self._found[pattern] = match[match.lastindex or 0] if match else None
        return self._found[pattern]


T = TypeVar("T")


def _of(kind: type[T], value: Any) -> T:
    """The value if it has this type, else an empty one."""
    return value if isinstance(value, kind) else kind()


def _count(value: Any, otherwise: int) -> int:
    """A count in a schema; 3.0 is one too."""
    number = _number(value)
    return otherwise if number is None or number < 0 or number != number // 1 else int(number)


def _number(value: Any) -> int | float | None:
    """A number, if it is one and fits into JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None


_MAKERS: Final = {
    "object": _Sampler.object,
    "array": _Sampler.array,
    "number": _Sampler.number,
    "integer": _Sampler.number,
    "boolean": _Sampler.boolean,
    "null": _Sampler.null,
    "string": _Sampler.text,
}


_CAMEL: Final = re.compile(r"([a-z])([A-Z])")
_WORD: Final = re.compile(r"[A-Za-z]+")
_ASKS_FOR_A_TOOL: Final = re.compile(r"\b(call|use|run|invoke|tool|function)\b", re.IGNORECASE)
_MOST_CALLS: Final = 3  # in one turn
_INDENT: Final = 8  # characters
_AGENT: Final = re.compile(r"\b(?:sub)?agents?\b|\bdelegate\b")
_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w.:-]{0,63})[^<>\n]{0,200}>")
# names of tags that clients give, rather than those of HTML, and of those that hold what the user asks
_CONTEXT: Final = re.compile(
    r"[-_]|[a-z][A-Z]|^(?:context|attachments?|environment|instructions|INSTRUCTIONS|task)$"
)
_ASKED: Final = re.compile(r"(?i:user[-_]?(?:request|query|message|prompt)|task)")
# words of tool names that say nothing about the tool's purpose
_EMPTY_WORDS: Final = frozenset({"get", "set", "the", "a", "an", "to", "of", "in", "do", "current", "tool"})


class DemoTurn(Struct, frozen=True):
    """The newest turn of a conversation. `text` are the user's own words in the last message that has some,
    `results` the outputs that follow it, `calls` how many calls do, `earlier` the user's words before it,
    `messages` how many messages there are."""

    model: str
    text: str
    images: int
    earlier: list[str]
    results: list[str]
    calls: int
    tools: list[dict[str, Any]]
    tool_choice: Any
    parallel: bool
    format: dict[str, Any]
    max_tokens: int | None
    stop: list[str]
    effort: str | None
    usage: bool
    messages: int
    prompt_words: int

    def chosen_tools(self) -> list[dict[str, Any]]:
        """The functions to call now: forced ones, else those that the user's words ask for. A turn has a few
        calls at most and, unless that is forced, begins no agent: those call the model again, without end."""
        if not self.tools or self.tool_choice == "none" or self.calls >= _MOST_CALLS:
            return []
        if isinstance(self.tool_choice, dict):
            return self._forced(self.tool_choice)
        tools = [tool for tool in self.tools if not _begins_agent(tool)]
        named = self._named(tools)
        if self.tool_choice == "required":
            return self._as_many_as_allowed(named) or tools[:1] or self.tools[:1]
        if self.results:
            return []
        if named:
            return self._as_many_as_allowed(named)
        return tools[:1] if _ASKS_FOR_A_TOOL.search(self.text) else []

    def _forced(self, choice: dict[str, Any]) -> list[dict[str, Any]]:
        name = (choice.get("function") or choice).get("name")
        return [tool for tool in self.tools if tool.get("name") == name][:1] or self.tools[:1]

    def _named(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The tools that the user's words name; if none is named, the one with most matching words."""
        words = {word.lower() for word in _WORD.findall(self.text)}
        names = [set(_words_of(str(tool.get("name", "")))) for tool in tools]
        whole = [tool for tool, name in zip(tools, names, strict=True) if name and name <= words]
        if whole:
            return whole
        most = max((len(name & words) for name in names), default=0)
        nearest = (tool for tool, name in zip(tools, names, strict=True) if len(name & words) == most)
        return [next(nearest)] if most else []

    def _as_many_as_allowed(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return tools[: _MOST_CALLS - self.calls if self.parallel else 1]


def read_turn(body: dict[str, Any]) -> DemoTurn:
    """The turn in a request's body."""
    messages = [message for message in body.get("messages", []) if isinstance(message, dict)]
    users = [at for at, message in enumerate(messages) if message.get("role") == "user"]
    texts = [_text_of(message.get("content")) for message in messages]
    words = {at: own_words(messages[at].get("content")) for at in users}
    asking = [at for at in users if words[at] or _images(messages[at].get("content"))] or users[-1:]
    last = asking[-1] if asking else -1
    options = body.get("stream_options") or {}
    return DemoTurn(
        model=str(body.get("model", "")),
        text=(words[last] or texts[last]) if asking else "",
        images=_images(messages[last].get("content")) if asking else 0,
        earlier=[words[at] for at in asking[:-1]],
        results=[texts[at] for at in range(last + 1, len(messages)) if messages[at].get("role") == "tool"],
        calls=sum(len(_of(list, message.get("tool_calls"))) for message in messages[last + 1 :]),
        tools=[tool["function"] for tool in body.get("tools") or [] if tool.get("type") == "function"],
        tool_choice=body.get("tool_choice"),
        parallel=body.get("parallel_tool_calls") is not False,
        format=body.get("response_format") or {},
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        stop=_stops(body.get("stop")),
        effort=body.get("reasoning_effort"),
        usage=bool(options.get("include_usage")),
        messages=len(messages),
        prompt_words=sum(len(text.split()) for text in texts),
    )


def own_words(content: Any) -> str:
    """The user's own words in a message: its texts without the blocks that clients put before, behind and
    around them (`<system-reminder>…</system-reminder>`, `<environment_context>`), in linear time."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": _text_of(content)}]
    texts = (_without_context(_text_of([part])) for part in parts if isinstance(part, dict))
    return " ".join(text for text in texts if text)


def _without_context(text: str) -> str:
    ends: dict[str, list[tuple[int, int]]] = {}
    begins: list[re.Match[str]] = []
    for tag in _TAG.finditer(text):
        if tag[1]:
            ends.setdefault(tag[2], []).append(tag.span())
        elif _CONTEXT.search(tag[2]):
            begins.append(tag)
    outside, requests, at = list[str](), list[str](), 0
    for tag in begins:
        closing = ends.get(tag[2], [])
        index = bisect(closing, tag.span())
        before = text[max(at, tag.start() - _INDENT) : tag.start()].rstrip(" \t")
        if tag.start() < at or index == len(closing) or before[-1:] not in ("", "\n"):
            continue  # within a block, without an end, or within a line of the user's
        outside.append(text[at : tag.start()])
        begin, end = closing[index]
        if _ASKED.fullmatch(tag[2]):
            requests.append(text[tag.end() : begin])
        at = end
    return ("\n".join(requests) or "".join([*outside, text[at:]])).strip()


def _begins_agent(tool: dict[str, Any]) -> bool:
    """Return True if a function begins another agent, by its name or the names of its parameters."""
    parameters = _of(dict, _of(dict, tool.get("parameters")).get("properties"))
    names = [str(tool.get("name", "")), *map(str, parameters)]
    return names[0].lower() == "task" or any(_AGENT.search(" ".join(_words_of(name))) for name in names)


def _words_of(name: str) -> list[str]:
    spaced = _CAMEL.sub(r"\1 \2", name).replace("_", " ")
    return [word for word in _WORD.findall(spaced.lower()) if word not in _EMPTY_WORDS]


def _stops(stop: Any) -> list[str]:
    sequences = stop if isinstance(stop, list) else [stop]
    return [each for each in sequences if isinstance(each, str) and each]


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return " ".join(str(part.get("text", "")) for part in parts if part.get("type") in ("text", "input_text"))


def _images(content: Any) -> int:
    parts = content if isinstance(content, list) else []
    return sum(1 for part in parts if part.get("type") in ("image_url", "input_image"))


Step = dict[str, Any]
Play = Callable[[DemoTurn], Iterator[Step]]

_PIECE: Final = re.compile(r"(?<!\s)\s*+\S++")
_WORDS_ASKED: Final = re.compile(r"(?<!\d)(\d{1,9}) words")
_ARGUMENT_PIECE: Final = 12  # characters
_MAX_WORDS: Final = 200_000
_LONG: Final = 2_000  # words
STOP: Final[Step] = {"finish_reason": "stop"}


class Behaviour(NamedTuple):
    """`words` in the last user message ask for it, and so does the model name `demo-<name>`. `pause` is the
    wait before each piece, in seconds."""

    words: re.Pattern[str] | None
    play: Play
    pause: float = 0.0


def behaviour_of(turn: DemoTurn) -> Behaviour:
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


def text_deltas(text: str, field: str = "content") -> Iterator[Step]:
    """The text word by word."""
    return ({"delta": {field: piece}} for piece in _PIECE.findall(text))


def _text(turn: DemoTurn) -> Iterator[Step]:
    if turn.effort not in (None, "none"):
        yield from _think(turn)
    yield from text_deltas(_json_answer(turn) or _answer(turn))
    yield STOP


def _answer(turn: DemoTurn) -> str:
    if turn.results:
        return f"The tool answered: {'; '.join(turn.results)}"
    sentences = [f"You said: {turn.text.strip() or 'nothing'}"]
    if turn.images:
        sentences.append(f"I was shown {turn.images} image{'s' * (turn.images > 1)}.")
    if turn.earlier:
        sentences.append(f"Before that you said: {turn.earlier[-1].strip()}")
    return "\n".join(sentences)


def _json_answer(turn: DemoTurn) -> str | None:
    kind = turn.format.get("type")
    if kind == "json_object":
        return json.dumps({"answer": _answer(turn)}, ensure_ascii=False)
    if kind == "json_schema":
        schema = turn.format.get("json_schema", turn.format).get("schema") or {}
        return json.dumps(sample(schema, turn.text), ensure_ascii=False)
    return None


def _think(turn: DemoTurn) -> Iterator[Step]:
    thought = f"The user wrote {len(turn.text.split())} words. I shall answer them plainly."
    return text_deltas(thought, "reasoning_content")


def _reasoning(turn: DemoTurn) -> Iterator[Step]:
    yield from _think(turn)
    yield from text_deltas(_answer(turn))
    yield STOP


def _tools(turn: DemoTurn) -> Iterator[Step]:
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


def _refusal(turn: DemoTurn) -> Iterator[Step]:
    yield from text_deltas("I can't help with that.", "refusal")
    yield STOP


def _long(turn: DemoTurn) -> Iterator[Step]:
    match = _WORDS_ASKED.search(turn.text)
    count = min(int(match[1]), _MAX_WORDS) if match else _LONG
    for number in range(count):
        yield {"delta": {"content": f"word{number} "}}
    yield STOP


def _failure(turn: DemoTurn) -> Iterator[Step]:
    yield from text_deltas("This answer ends in a ")
    yield {"error": {"type": "server_error", "code": "demo_failure", "message": "Failed as asked."}}


def _ending(reason: str) -> Play:
    def play(turn: DemoTurn) -> Iterator[Step]:
        yield from text_deltas("This answer stops before its ")
        yield {"finish_reason": reason}

    return play


def _cut(turn: DemoTurn) -> Iterator[Step]:
    yield from text_deltas("This stream is cut before its ")


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
