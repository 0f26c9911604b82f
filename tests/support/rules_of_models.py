"""Models that answer by rules: a rule reads a request and returns the answer, which is sent in any
dialect."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from tests.support.agents import scripted
from tests.support.loops import Answer
from tests.support.upstream import Received, Script


class Seen(Struct, frozen=True):
    """A request as the model sees it: `tools` by name, `asked` are the users' texts, `system` the system's
    texts, `results` the outputs of calls by their ids. Several texts are joined with line ends."""

    tools: dict[str, dict[str, Any]]
    system: str
    asked: str
    results: dict[str, str]

    @property
    def last(self) -> str:
        """The output of the last call; "" before the first."""
        return next(reversed(self.results.values()), "")


Rule = Callable[[Seen], Answer]


def ruled(dialect: str, rule: Rule) -> Callable[[Received], Script]:
    """Return the `answer` of a `ScriptedUpstream` that applies the rule as a model of this dialect."""

    def answer(received: Received) -> Script:
        return scripted(dialect, [rule(_SEEN[dialect](received.body))])[0]

    return answer


def _chat(body: Mapping[str, Any]) -> Seen:
    tools = {
        each["function"]["name"]: each["function"].get("parameters", {}) for each in body.get("tools", ())
    }
    texts: dict[str, list[str]] = {"system": [], "user": [], "assistant": []}
    results = {}
    for message in body["messages"]:
        text = "\n".join(_texts(message.get("content")))
        if message["role"] == "tool":
            results[message["tool_call_id"]] = text
        else:
            texts[message["role"]].append(text)
    return Seen(tools, "\n".join(texts["system"]), "\n".join(texts["user"]), results)


def _anthropic(body: Mapping[str, Any]) -> Seen:
    tools = {each["name"]: each.get("input_schema", {}) for each in body.get("tools", ())}
    questions: list[str] = []
    results = {}
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "tool_result":
                results[block["tool_use_id"]] = "\n".join(_texts(block.get("content")))
            elif block["type"] == "text" and message["role"] == "user":
                questions.append(block["text"])
    return Seen(tools, "\n".join(_texts(body.get("system"))), "\n".join(questions), results)


def _gemini(body: Mapping[str, Any]) -> Seen:
    declared = [each for tool in body.get("tools", ()) for each in tool.get("functionDeclarations", ())]
    tools = {
        each["name"]: each.get("parametersJsonSchema") or each.get("parameters", {}) for each in declared
    }
    questions: list[str] = []
    results = {}
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                answered = part["functionResponse"]
                results[answered["id"]] = str(answered["response"].get("output", answered["response"]))
            elif content["role"] == "user":
                questions.append(part.get("text", ""))
    system = (part.get("text", "") for part in body.get("systemInstruction", {}).get("parts", ()))
    return Seen(tools, "\n".join(system), "\n".join(questions), results)


_SEEN = {"chat": _chat, "anthropic": _anthropic, "gemini": _gemini}


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if part.get("type") == "text":
            yield part["text"]


def named(seen: Seen, ending: str) -> str:
    """Return the only tool whose name ends like this; a namespace may precede the name."""
    (match,) = [name for name in seen.tools if name.endswith(ending)]
    return match
