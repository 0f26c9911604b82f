"""Upstreams that refuse the requests that the real ones refuse, in their words, and otherwise answer by a
rule.

They do not use `bridge`. They remember what a provider makes itself (encrypted reasoning, signatures, ids),
and accept it only unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import count, pairwise, zip_longest
from typing import Any, ClassVar, NamedTuple

from tests.support import anthropic_rules, chat_rules
from tests.support.interactions_fields import fields_in_list
from tests.support.upstream import DONE, JSON, Received, Script, Step

Json = dict[str, Any]
ASKED = re.compile(r"Turn (\d+)\.")


class Asked(NamedTuple):
    """A request as the model sees it: the number of the user's last turn, how many outputs of calls followed
    it, and the kinds of the declared tools by name."""

    turn: int
    outputs: int
    tools: dict[str, str]


class Said(NamedTuple):
    """The answer of a model; each call is its name and arguments, which are sent unchanged if they are a
    text."""

    text: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    thinking: str = ""


Rule = Callable[[Asked], Said]


class Problem(NamedTuple):
    """Why a request is refused."""

    message: str
    code: str | None = None
    param: str | None = None
    status: int = 400


_NUMBERS = count(1)


class Provider:
    """One provider's rules and frames. An instance is one account, and remembers what it has made."""

    paths: ClassVar[str]

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        """Yield the reasons for which the provider refuses the body. `betas` are the betas of Anthropic's API
        that the client requests."""
        raise NotImplementedError

    def error(self, problem: Problem) -> Any:
        """The body of a refusal."""
        raise NotImplementedError

    def asked(self, body: Json) -> Asked:
        raise NotImplementedError

    def frames(self, said: Said, asked: Asked, body: Json) -> list[Step]:
        raise NotImplementedError

    def number(self) -> int:
        """Return a number that no account has used: ids are unique across accounts."""
        return next(_NUMBERS)


class StrictUpstream:
    """The `answer` of a `ScriptedUpstream`. `refused` has the messages of its refusals, `answered` the turns
    in which it took part."""

    def __init__(self, provider: Provider, rule: Rule) -> None:
        self.provider = provider
        self.refused: list[str] = []
        self.answered: list[int] = []
        self._rule = rule

    def __call__(self, received: Received) -> Script:
        if received.path.endswith("/count_tokens"):
            return Script([b'{"input_tokens":10}'], headers=JSON)
        if not received.path.endswith(self.provider.paths):
            return Script([b'{"error":{"message":"Not found"}}'], 404, JSON)
        body, betas = received.body, received.headers.get("anthropic-beta", "")
        if not body.get("stream") and "stream" not in self.provider.paths:
            problem: Problem | None = Problem("these scripts are streams")
        else:
            problem = next(self.provider.problems(body, betas), None)
        if problem is not None:
            self.refused.append(problem.message)
            return Script([json.dumps(self.provider.error(problem)).encode()], problem.status, JSON)
        asked = self.provider.asked(body)
        self.answered.append(asked.turn)
        return Script(self.provider.frames(self._rule(asked), asked, body))


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given)


def _thirds(text: str) -> list[str]:
    third = len(text) // 3 + 1
    return [text[at : at + third] for at in range(0, len(text), third)]


def turn_in(texts: list[str]) -> int:
    """Return the number in the last text that has one; 0 without any."""
    return next((int(numbers[-1]) for text in reversed(texts) if (numbers := ASKED.findall(text))), 0)


# ── OpenAI's Responses ───────────────────────────────────────────────────────────────────────────────
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
    "web_search_call": "ws",
    "tool_search_call": "tsc",
}
_CALL = {"type", "id", "call_id", "status"}
_FIELDS = {
    "message": {"type", "id", "role", "content", "status", "phase"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
    "function_call": {*_CALL, "name", "arguments", "namespace"},
    "function_call_output": {*_CALL, "output"},
    "custom_tool_call": {*_CALL, "name", "input", "namespace"},
    "custom_tool_call_output": {*_CALL, "output"},
}
_PARTS = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
_OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]+")


class OpenAI(Provider):
    """Responses with `store` false. Its encrypted reasoning is its own, and precedes the items that it led
    to."""

    paths = "/responses"

    def __init__(self) -> None:
        super().__init__()
        self._encrypted: dict[str, str] = {}  # the reasoning's id

    def error(self, problem: Problem) -> Any:
        kind = "invalid_request_error"
        named = {"message": problem.message, "type": kind, "param": problem.param, "code": problem.code}
        return {"error": named}

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        content = body["input"]
        items = [{"role": "user", "content": content}] if isinstance(content, str) else content
        for index, tool in enumerate(body.get("tools", ())):
            yield from _openai_name(tool.get("name"), f"tools[{index}].name", 128)
        for index, item in enumerate(items):
            yield from self._item(f"input[{index}]", item)
        ids = [item["id"] for item in items if "id" in item]
        for each in ids:
            if ids.count(each) > 1:
                yield Problem(f"Duplicate item found with id {each}. Remove duplicate items and try again.")
        yield from _openai_order(items)
        yield from _openai_pairs(items)

    def _item(self, where: str, item: Json) -> Iterator[Problem]:
        kind = item.get("type", "message")
        if "id" in item:
            yield from _openai_id(where, kind, item["id"])
        if kind in _FIELDS and (more := sorted(item.keys() - _FIELDS[kind])):
            param = f"{where}.{more[0]}"
            yield Problem(f"Unknown parameter: '{param}'.", "unknown_parameter", param)
        if "call_id" in item:
            yield from _at_most(64, f"{where}.call_id", item["call_id"])
        if "name" in item:
            yield from _openai_name(item["name"], f"{where}.name", 128)
        if kind == "message":
            yield from _openai_content(where, item)
        if kind == "reasoning":
            yield from self._reasoning(where, item)

    def _reasoning(self, where: str, item: Json) -> Iterator[Problem]:
        if "summary" not in item:
            param = f"{where}.summary"
            yield Problem(f"Missing required parameter: '{param}'.", "missing_required_parameter", param)
        if item.get("content"):
            param = f"{where}.content"
            count = len(item["content"])
            long = f"Expected an array with maximum length 0, but got an array with length {count}"
            yield Problem(
                f"Invalid '{param}': array too long. {long} instead.", "array_above_max_length", param
            )
        encrypted = item.get("encrypted_content")
        if not encrypted:
            yield Problem(
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to"
                " false. Try again with `store` set to true, or remove this item from your input.",
                None,
                "input",
                404,
            )
        elif self._encrypted.get(encrypted) != item.get("id"):
            yield Problem(
                f"The encrypted content {encrypted[:4]}...{encrypted[-4:]} could not be verified. Reason:"
                " Encrypted content could not be decrypted or parsed.",
                "invalid_encrypted_content",
            )

    def asked(self, body: Json) -> Asked:
        content = body["input"]
        texts: list[str] = []
        outputs = 0
        for item in [{"role": "user", "content": content}] if isinstance(content, str) else content:
            if item.get("role") == "user":
                text = "\n".join(_texts(item["content"]))
                texts.append(text)
                outputs = 0 if ASKED.search(text) else outputs
            outputs += item.get("type", "").endswith("_output")
        tools = {tool["name"]: tool["type"] for tool in body.get("tools", ()) if "name" in tool}
        return Asked(turn_in(texts), outputs, tools)

    def frames(self, said: Said, asked: Asked, body: Json) -> list[Step]:
        stream = _Events()
        head: Json = {"id": f"resp_{self.number():050}", "object": "response", "model": body["model"]}
        head["tools"] = body.get("tools", [])  # with secrets, which the real one leaves out
        stream.say("response.created", response=head | {"status": "in_progress", "output": []})
        reasoning = ""
        if said.thinking:
            reasoning = f"rs_{self.number():050}"
            encrypted = f"gAAAAAB{self.number():060}=="
            if "reasoning.encrypted_content" in body.get("include", ()):
                self._encrypted[encrypted] = reasoning
            else:
                encrypted = ""
            stream.reasoning(reasoning, said.thinking, encrypted)
        if said.text:
            stream.text(f"msg_{self.number():050}", said.text)
        for name, arguments in said.calls:
            custom = asked.tools[name] == "custom"
            item_id = f"{'ctc' if custom else 'fc'}_{self.number():050}"
            stream.call(item_id, f"call_{self.number():024}", name, arguments, custom)
        usage: Json = {"input_tokens": 30, "output_tokens": 9, "total_tokens": 39}
        usage["input_tokens_details"] = {"cached_tokens": 0}
        usage["output_tokens_details"] = {"reasoning_tokens": 3}
        done = head | {"status": "completed", "output": stream.output, "usage": usage}
        stream.say("response.completed", response=done)
        return stream.sent


class _Events:
    """The events of a response: `sent`, and the `output` that they add up to."""

    def __init__(self) -> None:
        self.sent: list[Step] = []
        self.output: list[Json] = []

    def say(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "sequence_number": len(self.sent), **fields}
        self.sent.append(f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode())

    def _of(self, item_id: str, kind: str, **fields: Any) -> None:
        self.say(f"response.{kind}", item_id=item_id, output_index=len(self.output), **fields)

    def _add(self, item: Json) -> None:
        self.say("response.output_item.added", output_index=len(self.output), item=item)

    def _done(self, item: Json) -> None:
        self.say("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)

    def reasoning(self, item_id: str, text: str, encrypted: str) -> None:
        item: Json = {"type": "reasoning", "id": item_id, "summary": []}
        part = {"type": "summary_text", "text": ""}
        self._add(item)
        self._of(item_id, "reasoning_summary_part.added", summary_index=0, part=part)
        self._of(item_id, "reasoning_summary_text.delta", summary_index=0, delta=text)
        self._of(item_id, "reasoning_summary_text.done", summary_index=0, text=text)
        part = part | {"text": text}
        self._of(item_id, "reasoning_summary_part.done", summary_index=0, part=part)
        self._done(item | {"summary": [part]} | ({"encrypted_content": encrypted} if encrypted else {}))

    def text(self, item_id: str, text: str) -> None:
        item: Json = {"type": "message", "id": item_id, "role": "assistant", "status": "in_progress"}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._add(item | {"content": []})
        self._of(item_id, "content_part.added", content_index=0, part=part)
        for piece in _thirds(text):
            self._of(item_id, "output_text.delta", content_index=0, delta=piece, logprobs=[])
        self._of(item_id, "output_text.done", content_index=0, text=text, logprobs=[])
        self._of(item_id, "content_part.done", content_index=0, part=part | {"text": text})
        self._done(item | {"status": "completed", "content": [part | {"text": text}]})

    def call(self, item_id: str, call_id: str, name: str, given: Any, custom: bool) -> None:
        kind, field = ("custom_tool_call", "input") if custom else ("function_call", "arguments")
        text = given["input"] if custom else _arguments(given)
        events = "custom_tool_call_input" if custom else "function_call_arguments"
        item: Json = {"type": kind, "id": item_id, "call_id": call_id, "name": name, field: ""}
        self._add(item | {"status": "in_progress"})
        for piece in _thirds(text):
            self._of(item_id, f"{events}.delta", delta=piece)
        self._of(item_id, f"{events}.done", **{field: text})
        self._done(item | {field: text, "status": "completed"})


def _at_most(longest: int, param: str, value: str) -> Iterator[Problem]:
    if len(value) > longest:
        limit = f"Expected a string with maximum length {longest}, but got a string with length {len(value)}"
        yield Problem(
            f"Invalid '{param}': string too long. {limit} instead.", "string_above_max_length", param
        )


def _openai_id(where: str, kind: str, item_id: str) -> Iterator[Problem]:
    param = f"{where}.id"
    yield from _at_most(64, param, item_id)
    if not _OPENAI_NAME.fullmatch(item_id):
        yield Problem(
            f"Invalid '{param}': '{item_id}'. Expected an ID that contains letters, numbers, underscores, or"
            " dashes, but this value contained additional characters.",
            "invalid_value",
            param,
        )
    prefix = _PREFIXES.get(kind, "")
    if not item_id.startswith(prefix):
        yield Problem(
            f"Invalid '{param}': '{item_id}'. Expected an ID that begins with '{prefix}'.",
            "invalid_value",
            param,
        )


def _openai_name(name: str | None, param: str, longest: int) -> Iterator[Problem]:
    if name is None:
        return
    yield from _at_most(longest, param, name)
    if not _OPENAI_NAME.fullmatch(name):
        yield Problem(
            f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern"
            " '^[a-zA-Z0-9_-]+$'.",
            "invalid_value",
            param,
        )


def _openai_content(where: str, item: Json) -> Iterator[Problem]:
    if isinstance(item["content"], str):
        return
    known = _PARTS[item["role"]]
    for at, part in enumerate(item["content"]):
        if part["type"] not in known:
            named = " and ".join(f"'{each}'" for each in known)
            yield Problem(
                f"Invalid value: '{part['type']}'. Supported values are: {named}.",
                "invalid_value",
                f"{where}.content[{at}]",
            )


def _openai_order(items: list[Json]) -> Iterator[Problem]:
    for item, following in zip_longest(items, items[1:], fillvalue={"role": "user"}):
        its = following.get("role", "assistant") == "assistant" and "output" not in following
        if item.get("type") == "reasoning" and not its:
            yield Problem(
                f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            )


def _openai_pairs(items: list[Json]) -> Iterator[Problem]:
    """Yield a problem for each output without an earlier call, and for each call without an output."""
    called: list[str] = []
    for item in items:
        if "call_id" not in item:
            continue
        if not item.get("type", "").endswith("_output"):
            called.append(item["call_id"])
        elif item["call_id"] in called:
            called.remove(item["call_id"])
        else:
            yield Problem(
                f"No tool call found for function call output with call_id {item['call_id']}.", None, "input"
            )
    for call_id in called:
        yield Problem(f"No tool output found for function call {call_id}.", None, "input")


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part.get("text"), str):
            yield part["text"]


# ── Anthropic's Messages ─────────────────────────────────────────────────────────────────────────────
_MESSAGES_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MESSAGES_ID = re.compile(r"[a-zA-Z0-9_-]+")


class Anthropic(Provider):
    """Messages, as for models from 4.6 on: the last turn is the user's, and thinking comes back as it was
    signed."""

    paths = "/messages"

    def __init__(self) -> None:
        super().__init__()
        self._signed: dict[str, str] = {}  # signature → thinking

    def error(self, problem: Problem) -> Any:
        error = {"type": "invalid_request_error", "message": problem.message}
        return {"type": "error", "error": error, "request_id": f"req_{self.number():024}"}

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        messages = [
            message | {"content": [{"type": "text", "text": message["content"]}]}
            if isinstance(message["content"], str)
            else message
            for message in body["messages"]
            if message["role"] != "system" or "mid-conversation-system" not in betas
        ]
        for index, tool in enumerate(body.get("tools", ())):
            if not _MESSAGES_NAME.fullmatch(tool["name"]):
                pattern = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
                yield Problem(f"tools.{index}.custom.name: {pattern}")
        yield from _messages_roles(messages)
        for index, message in enumerate(messages):
            for at, block in enumerate(message["content"]):
                yield from self._block(f"messages.{index}.content.{at}", block)
        yield from _messages_pairs(messages)
        if messages[-1]["role"] == "assistant":
            yield Problem(
                "This model does not support assistant message prefill. The conversation must end with a"
                " user message."
            )
        for each in anthropic_rules.violations(body | {"messages": messages}):
            if "illegal name" not in each:  # names are longer by now
                yield Problem(each)

    def _block(self, where: str, block: Json) -> Iterator[Problem]:
        kind = block["type"]
        if kind == "tool_use":
            if not _MESSAGES_ID.fullmatch(block["id"]):
                pattern = "String should match pattern '^[a-zA-Z0-9_-]+$'"
                yield Problem(f"{where}.tool_use.id: {pattern}")
            if not isinstance(block["input"], dict):
                yield Problem(f"{where}.tool_use.input: Input should be a valid dictionary")
        if kind == "thinking" and self._signed.get(block.get("signature", "")) != block["thinking"]:
            yield Problem(f"{where}: Invalid `signature` in `thinking` block")

    def asked(self, body: Json) -> Asked:
        texts: list[str] = []
        outputs = 0
        for message in body["messages"]:
            if message["role"] != "user":
                continue
            content = message["content"]
            kinds = [] if isinstance(content, str) else [each["type"] for each in content]
            outputs += kinds.count("tool_result")
            text = "\n".join(_texts(content))
            texts.append(text)
            outputs = 0 if ASKED.search(text) else outputs
        tools = {tool["name"]: tool.get("type", "custom") for tool in body.get("tools", ())}
        return Asked(turn_in(texts), outputs, tools)

    def frames(self, said: Said, asked: Asked, body: Json) -> list[Step]:
        sent: list[Step] = []

        def say(kind: str, **fields: Any) -> None:
            sent.append(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())

        def block(start: Json, *deltas: Json) -> None:
            index = sum(b'"content_block_start"' in bytes(each) for each in sent)  # type: ignore[arg-type]
            say("content_block_start", index=index, content_block=start)
            for delta in deltas:
                say("content_block_delta", index=index, delta=delta)
            say("content_block_stop", index=index)

        head = {"id": f"msg_{self.number():024}", "type": "message", "role": "assistant", "content": []}
        usage = {"input_tokens": 30, "output_tokens": 1}
        say("message_start", message=head | {"model": body["model"], "usage": usage})
        if said.thinking and body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
            signature = f"EqQB{self.number():060}+/=="
            self._signed[signature] = said.thinking
            block(
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": said.thinking},
                {"type": "signature_delta", "signature": signature},
            )
        if said.text:
            pieces = [{"type": "text_delta", "text": piece} for piece in _thirds(said.text)]
            block({"type": "text", "text": ""}, *pieces)
        for name, arguments in said.calls:
            pieces = [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in _thirds(_arguments(arguments))
            ]
            called = {"type": "tool_use", "id": f"toolu_{self.number():024}", "name": name, "input": {}}
            block(called, *pieces)
        ending = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
        say("message_delta", delta=ending, usage={"output_tokens": 9})
        say("message_stop")
        return sent


def _messages_roles(messages: list[Json]) -> Iterator[Problem]:
    for first, second in pairwise(messages):
        if first["role"] == second["role"]:
            yield Problem(
                'messages: roles must alternate between "user" and "assistant", but found multiple'
                f' "{first["role"]}" roles in a row'
            )


def _messages_pairs(messages: list[Json]) -> Iterator[Problem]:
    called: list[str] = []
    for index, message in enumerate(messages):
        answered = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        for at, call_id in enumerate(answered):
            if call_id not in called:
                yield Problem(
                    f"messages.{index}.content.{at}: unexpected `tool_use_id` found in `tool_result` blocks:"
                    f" {call_id}. Each `tool_result` block must have a corresponding `tool_use` block in the"
                    " previous message."
                )
        if left := [call_id for call_id in called if call_id not in answered]:
            yield Problem(_unanswered(index - 1, left))
        called = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
    if called:
        yield Problem(_unanswered(len(messages) - 1, called))


def _unanswered(index: int, left: list[str]) -> str:
    return (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after:"
        f" {', '.join(left)}. Each `tool_use` block must have a corresponding `tool_result` block in the next"
        " message."
    )


# ── Gemini's generateContent ────────────────────────────────────────────────────────────────────────
_CONTENTS_BODY = frozenset(
    {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"}
    | {"cachedContent"}
)
_CONTENTS_GENERATION = frozenset(
    {"thinkingConfig", "maxOutputTokens", "temperature", "topP", "topK", "seed", "stopSequences"}
    | {"candidateCount", "responseMimeType", "responseJsonSchema", "responseModalities"}
)
_CONTENTS_PART = frozenset(
    {"text", "thought", "thoughtSignature", "inlineData", "fileData", "functionCall", "functionResponse"}
)
_CONTENTS_CALL = frozenset({"id", "name", "args"})
_CONTENTS_ANSWER = frozenset({"id", "name", "response", "parts"})
_CONTENTS_FUNCTION = frozenset({"name", "description", "parametersJsonSchema"})


def _signed_part(part: Json) -> Json:
    """Return the part to which a signature belongs; for a call without its arguments, because Claude Code
    writes defaults into them."""
    call = part.get("functionCall")
    if call is not None:
        return {"id": call.get("id"), "name": call["name"]}
    return {name: value for name, value in part.items() if name != "thoughtSignature"}


class Gemini(Provider):
    """`generateContent` of Gemini 3: signatures are its own and stay on their parts, and the first call of
    each step of the current turn has one; roles alternate, and outputs follow their calls."""

    paths = ":streamGenerateContent?alt=sse"

    def __init__(self) -> None:
        super().__init__()
        self._signed: dict[str, Json] = {}  # signature → the part that it is on
        self.lost: list[str] = []
        """The names of its own calls that came back with the placeholder."""
        self._own: set[str] = set()  # ids of its calls that it signed

    def error(self, problem: Problem) -> Any:
        return {"error": {"code": problem.status, "message": problem.message, "status": "INVALID_ARGUMENT"}}

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        known = [("", body, _CONTENTS_BODY)]
        known.append((" at 'generation_config'", body.get("generationConfig", {}), _CONTENTS_GENERATION))
        for at, content in enumerate(body["contents"]):
            known.append((f" at 'contents[{at}]'", content, frozenset({"role", "parts"})))
            for place, part in enumerate(content["parts"]):
                where = f" at 'contents[{at}].parts[{place}]"
                known.append((f"{where}'", part, _CONTENTS_PART))
                known.append((f"{where}.function_call'", part.get("functionCall", {}), _CONTENTS_CALL))
                answer = part.get("functionResponse", {})
                known.append((f"{where}.function_response'", answer, _CONTENTS_ANSWER))
        for at, function in enumerate(_declared(body)):
            where = f" at 'tools[0].function_declarations[{at}]'"
            known.append((where, function, _CONTENTS_FUNCTION))
            for name in sorted(_keywords(function.get("parametersJsonSchema", {})) & _GEMINI_SCHEMA):
                yield _unknown_name(name, where)
        for where, value, fields in known:
            for name in _unknown_fields(value, fields):
                yield _unknown_name(name, where)
        yield from _contents_turns(body["contents"])
        yield from self._signatures(body["contents"])

    def _signatures(self, contents: list[Json]) -> Iterator[Problem]:
        spoken = [
            at for at, each in enumerate(contents) if each["role"] == "user" and "text" in each["parts"][0]
        ]
        for at, content in enumerate(contents):
            calls = [part for part in content["parts"] if "functionCall" in part]
            for part in content["parts"]:
                signature = part.get("thoughtSignature")
                if signature == _GEMINI_VALIDATOR:
                    call = part["functionCall"]
                    self.lost += [call["name"]] if call["id"] in self._own else []
                elif signature is not None and self._signed.get(signature) != _signed_part(part):
                    yield Problem("Corrupted thought signature.")
            if calls and at > max(spoken, default=0) and "thoughtSignature" not in calls[0]:
                yield Problem(
                    "Function call is missing a thought_signature in functionCall parts. This is required for"
                    " tools to work correctly, and missing thought_signature may lead to degraded model"
                    f" performance. Additional data, function call `{calls[0]['functionCall']['name']}` ,"
                    f" position {at + 1}."
                )

    def asked(self, body: Json) -> Asked:
        texts: list[str] = []
        outputs = 0
        for content in body["contents"]:
            if content["role"] != "user":
                continue
            outputs += sum("functionResponse" in part for part in content["parts"])
            text = "\n".join(_texts(content["parts"]))
            texts.append(text)
            outputs = 0 if ASKED.search(text) else outputs
        return Asked(turn_in(texts), outputs, {each["name"]: "function" for each in _declared(body)})

    def frames(self, said: Said, asked: Asked, body: Json) -> list[Step]:
        parts: list[Json] = []
        if said.thinking and body.get("generationConfig", {}).get("thinkingConfig", {}).get(
            "includeThoughts"
        ):
            parts += [{"text": piece, "thought": True} for piece in _thirds(said.thinking)]
        for index, (name, arguments) in enumerate(said.calls):
            if index == 0 and said.text:
                parts += [{"text": piece} for piece in _thirds(said.text)]
            args = arguments if isinstance(arguments, dict) else {"INVALID_JSON": arguments}
            call: Json = {"functionCall": {"id": f"{self.number():08}", "name": name, "args": args}}
            parts.append(call if index else self._sign(call))
            self._own |= set() if index else {call["functionCall"]["id"]}
        if not said.calls:
            *first, last = _thirds(said.text)
            parts += [*({"text": piece} for piece in first), {"text": last}, self._sign({"text": ""})]
        sent: list[Step] = []
        for part in parts:
            candidate: Json = {"content": {"parts": [part], "role": "model"}, "index": 0}
            usage = {"promptTokenCount": 30, "candidatesTokenCount": 6, "thoughtsTokenCount": 3}
            if part is parts[-1]:
                candidate["finishReason"] = "STOP"
            chunk = {"candidates": [candidate], "usageMetadata": usage | {"totalTokenCount": 39}}
            sent.append(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n")
        return sent

    def _sign(self, part: Json) -> Json:
        signature = f"Cq0B+{self.number():038}/w=="
        self._signed[signature] = _signed_part(part)
        return part | {"thoughtSignature": signature}


def _declared(body: Json) -> list[Json]:
    return [each for tool in body.get("tools", ()) for each in tool.get("functionDeclarations", ())]


def _contents_turns(contents: list[Json]) -> Iterator[Problem]:
    called: list[str] = []
    before = ""
    for content in contents:
        role, parts = content["role"], content["parts"]
        if role not in ("user", "model"):
            yield Problem("Please use a valid role: user, model.")
        if role == before:
            yield Problem("Please ensure that roles take turns between user and model.")
        if not parts:
            yield Problem("* GenerateContentRequest.contents.parts: contents.parts must not be empty.")
        answered = [part["functionResponse"]["id"] for part in parts if "functionResponse" in part]
        if answered != called:
            yield Problem(
                "Please ensure that the number of function response parts is equal to the number of function"
                " call parts of the function call turn."
            )
        called = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
        if called and role != "model":
            yield Problem("Please ensure that function call turn comes immediately after a user turn.")
        before = role
    if contents and contents[0]["role"] != "user":
        yield Problem("Please ensure that the first content is the user's.")
    if before != "user":
        yield Problem("Requests ending with a model turn are not supported.")


# ── Google's Interactions ─────────────────────────────────────────────────────────────────────────────
class Interactions(Provider):
    """The fields are those of google-genai's types. The first step is the user's and the last one not a
    model's, results follow their calls before anyone else speaks, and thoughts come back as they were
    signed."""

    paths = "/interactions"
    _BODY: ClassVar[frozenset[str]] = frozenset({"input", "stream"})
    _CALL: ClassVar[frozenset[str]] = frozenset({"signature"})  # not in its types, although it may send it

    def __init__(self) -> None:
        super().__init__()
        self._signed: dict[str, Any] = {}  # signature → what it is on
        self._body = self._BODY | _names_in_list(0, but="steps")
        self._generation = _names_in_list(1, "generation_config") | {"tool_choice"}
        self._tool = _names_in_list(1, "tools")
        self._steps = {kind: _names_in_list(2, "steps", kind) for kind in _names_in_list(1, "steps")}
        self._steps["function_call"] |= self._CALL

    def error(self, problem: Problem) -> Any:
        return {"error": {"code": "invalid_request", "message": problem.message}}

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        known = [("", body, self._body)]
        known.append((" at 'generation_config'", body.get("generation_config", {}), self._generation))
        known += [(f" at 'tools[{at}]'", tool, self._tool) for at, tool in enumerate(body.get("tools", ()))]
        for at, step in enumerate(body["input"]):
            if step["type"] not in self._steps:
                yield Problem(f"input[{at}].type: {step['type']!r} is not a step.")
                return
            known.append((f" at 'input[{at}]'", step, self._steps[step["type"]]))
        for where, value, fields in known:
            for name in _unknown_fields(value, fields):
                yield _unknown_name(name, where)
        for at, tool in enumerate(body.get("tools", ())):
            for name in sorted(_keywords(tool.get("parameters", {})) & _GEMINI_SCHEMA):
                yield _unknown_name(name, f" at 'tools[{at}].parameters'")
        yield from _needed_of_steps(body["input"])
        yield from _order_of_steps(body["input"])
        for at, step in enumerate(body["input"]):
            signature = step.get("signature")
            if signature is not None and self._signed.get(signature) != _signed_of_step(step):
                yield Problem(f"input[{at}]: Corrupted thought signature.")
            if step["type"] == "thought" and signature is None:
                yield Problem(f"input[{at}].signature: A thought needs its signature.")

    def asked(self, body: Json) -> Asked:
        texts: list[str] = []
        outputs = 0
        for step in body["input"]:
            outputs += step["type"] == "function_result"
            if step["type"] == "user_input":
                text = "\n".join(_texts(step["content"]))
                texts.append(text)
                outputs = 0 if ASKED.search(text) else outputs
        functions = {tool["name"]: "function" for tool in body.get("tools", ()) if tool["type"] == "function"}
        return Asked(turn_in(texts), outputs, functions)

    def frames(self, said: Said, asked: Asked, body: Json) -> list[Step]:
        sent: list[Step] = []

        def say(kind: str, **fields: Any) -> None:
            event = {"event_type": kind, **fields}
            sent.append(f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode())

        def step(start: Json, *deltas: Json) -> None:
            index = sum(b"event: step.start" in bytes(each) for each in sent)  # type: ignore[arg-type]
            say("step.start", index=index, step=start)
            for delta in deltas:
                say("step.delta", index=index, delta=delta)
            say("step.stop", index=index)

        interaction = {"id": f"v1_{self.number():024}", "object": "interaction", "model": body["model"]}
        say("interaction.created", interaction=interaction | {"status": "in_progress"})
        summaries = body.get("generation_config", {}).get("thinking_summaries") == "auto"
        summary = [{"type": "text", "text": said.thinking}] if said.thinking and summaries else []
        signature = f"Eq0B+{self.number():040}/=="
        self._signed[signature] = ["thought", [each["text"] for each in summary]]
        shown = [{"type": "thought_summary", "content": each} for each in summary]
        step({"type": "thought"}, *shown, {"type": "thought_signature", "signature": signature})
        if said.text:
            step({"type": "model_output"}, *({"type": "text", "text": each} for each in _thirds(said.text)))
        for name, arguments in said.calls:
            call_id = f"call_{self.number():024}"
            own = f"Cq0B+{self.number():040}/=="
            self._signed[own] = ["function_call", call_id, name]
            text = _arguments(arguments)
            call = {"type": "function_call", "id": call_id, "name": name, "arguments": {}, "signature": own}
            step(call, *({"type": "arguments_delta", "arguments": each} for each in _thirds(text)))
        usage = {"total_input_tokens": 30, "total_output_tokens": 9, "total_tokens": 39}
        status = "requires_action" if said.calls else "completed"
        say("interaction.completed", interaction=interaction | {"status": status, "usage": usage})
        return [*sent, b"event: done\n" + DONE]


@cache
def _paths_in_list() -> list[list[str]]:
    """The paths of google-genai's fields in requests."""
    return [path.split(".") for path in fields_in_list()["requests"]]


@cache
def _names_in_list(place: int, *within: str, but: str = "") -> frozenset[str]:
    """Return the names at this place of the paths that begin so."""
    paths = _paths_in_list()
    names = (path[place] for path in paths if len(path) > place and path[: len(within)] == [*within])
    return frozenset(name for name in names if name and name != but)


def _signed_of_step(step: Json) -> Any:
    """Return the content to which a signature belongs; for a call without its arguments, because Claude Code
    writes defaults into them."""
    if step["type"] == "function_call":
        return ["function_call", step["id"], step["name"]]
    return [step["type"], [each["text"] for each in step.get("summary", ())]]


_NEEDED_OF_STEPS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "user_input": {"content": list},
    "model_output": {"content": list},
    "function_call": {"id": str, "name": str, "arguments": dict},
    "function_result": {"call_id": str, "name": str, "result": (str, list, dict)},
}


def _needed_of_steps(steps: list[Json]) -> Iterator[Problem]:
    for at, step in enumerate(steps):
        for name, kind in _NEEDED_OF_STEPS.get(step["type"], {}).items():
            value = step.get(name)
            if not isinstance(value, kind) or (name != "result" and value in ("", [])):
                yield Problem(f"input[{at}].{name}: is required.")


def _order_of_steps(steps: list[Json]) -> Iterator[Problem]:
    names: dict[str, str] = {}
    open_calls: list[str] = []
    for at, step in enumerate(steps):
        kind = step["type"]
        if kind == "function_call":
            if step["id"] in names:
                yield Problem(f"input[{at}].id: is the id of another call.")
            names[step["id"]] = step["name"]
            open_calls.append(step["id"])
        elif kind == "function_result":
            if step["call_id"] not in open_calls:
                yield Problem(f"input[{at}].call_id: is not the id of a call that waits for its result.")
                continue
            open_calls.remove(step["call_id"])
            if names[step["call_id"]] != step["name"]:
                yield Problem(f"input[{at}].name: is not that of its call.")
        elif kind in ("user_input", "model_output") and open_calls:
            yield Problem(f"input[{at}]: The call {open_calls[0]} has no result before it.")
    if open_calls:
        yield Problem(f"input: The call {open_calls[0]} has no result.")
    if not steps or steps[0]["type"] != "user_input":
        yield Problem("input[0]: The first step has to be the user's.")
    if steps and steps[-1]["type"] not in ("user_input", "function_result"):
        yield Problem("input: The last step has to be the user's, or a result.")


# ── Chat Completions: Gemini, Qwen, Mistral ──────────────────────────────────────────────────────────
class _Chat(Provider):
    """The common behaviour of the three: how they read requests and how they stream."""

    paths = "/chat/completions"

    def asked(self, body: Json) -> Asked:
        texts: list[str] = []
        outputs = 0
        for message in body["messages"]:
            outputs += message["role"] == "tool"
            if message["role"] == "user":
                text = "\n".join(_texts(message["content"]))
                texts.append(text)
                outputs = 0 if ASKED.search(text) else outputs
        return Asked(turn_in(texts), outputs, dict.fromkeys(_functions(body), "function"))

    def frames(self, said: Said, asked: Asked, body: Json) -> list[Step]:
        sent: list[Step] = []
        head = {"id": f"chatcmpl-{self.number()}", "object": "chat.completion.chunk", "created": 1}
        head["model"] = body["model"]

        def say(delta: Json, finish_reason: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
            sent.append(b"data: " + json.dumps(head | {"choices": [choice]}).encode() + b"\n\n")

        say({"role": "assistant", "content": ""})
        if said.thinking:
            for delta in self.thought(said.thinking):
                say(delta)
        for piece in _thirds(said.text):
            say({"content": piece})
        for index, (name, arguments) in enumerate(said.calls):
            for call in self.called(index, name, _arguments(arguments)):
                say({"tool_calls": [call]})
        say({}, "tool_calls" if said.calls else "stop")
        usage = {"prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39}
        sent.append(b"data: " + json.dumps(head | {"choices": [], "usage": usage}).encode() + b"\n\n")
        return [*sent, DONE]

    def thought(self, text: str) -> Iterator[Json]:
        """The deltas of reasoning."""
        yield {"reasoning_content": text}

    def called(self, index: int, name: str, arguments: str) -> Iterator[Json]:
        """The fragments of a call."""
        function = {"name": name, "arguments": ""}
        yield {"index": index, "id": self.call_id(), "type": "function", "function": function}
        for piece in _thirds(arguments):
            yield {"index": index, "function": {"arguments": piece}}

    def call_id(self) -> str:
        raise NotImplementedError


def _of_chat(body: Json) -> list[str]:
    """Return the refusals that all servers of the dialect share. Calls of tools that are no longer offered,
    and an empty text beside calls, are accepted."""
    taken = ("is not among the tools", "is blank")
    return [each for each in chat_rules.violations(body) if not each.endswith(taken)]


def _functions(body: Json) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools") or ()]


def _unknown_fields(given: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    return sorted(given.keys() - known)


_GEMINI_BODY = frozenset(
    {"model", "messages", "tools", "tool_choice", "stream", "stream_options", "max_tokens", "temperature"}
    | {"max_completion_tokens", "top_p", "stop", "n", "response_format", "reasoning_effort", "extra_body"}
)
_GEMINI_MESSAGE = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "extra_content"})
_GEMINI_SCHEMA = {
    "$schema",
    "$id",
    "propertyNames",
    "patternProperties",
    "const",
    "unevaluatedProperties",
    "not",
}
_GEMINI_VALIDATOR = "skip_thought_signature_validator"


class GeminiChat(_Chat):
    """Gemini 3 behind its Chat-compatible address: the first call of each step of the current turn has a
    thought signature, and calls that it made have their own."""

    def __init__(self) -> None:
        super().__init__()
        self._signatures: dict[str, str] = {}  # by call id, "" where it had none
        self.lost: list[str] = []
        """Its own calls that came back with the placeholder, without what it thought at them."""

    def error(self, problem: Problem) -> Any:
        status = "INVALID_ARGUMENT"
        return [{"error": {"code": problem.status, "message": problem.message, "status": status}}]

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        known = [("", body, _GEMINI_BODY)]
        known += [
            (f" at 'messages[{at}]'", each, _GEMINI_MESSAGE) for at, each in enumerate(body["messages"])
        ]
        for where, value, fields in known:
            for name in _unknown_fields(value, fields):
                yield _unknown_name(name, where)
        for at, tool in enumerate(body.get("tools") or ()):
            for name in sorted(_keywords(tool["function"].get("parameters", {})) & _GEMINI_SCHEMA):
                yield _unknown_name(name, f" at 'tools[{at}].function.parameters'")
        yield from _gemini_turns(body["messages"])
        yield from self._signed(body["messages"])
        yield from map(Problem, _of_chat(body))

    def _signed(self, messages: list[Json]) -> Iterator[Problem]:
        last_question = max((at for at, each in enumerate(messages) if each["role"] == "user"), default=0)
        for at, message in enumerate(messages):
            for place, call in enumerate(message.get("tool_calls") or ()):
                google = (call.get("extra_content") or {}).get("google", {})
                signature = google.get("thought_signature", "")
                if signature == _GEMINI_VALIDATOR:
                    self.lost += [call["id"]] if self._signatures.get(call["id"]) else []
                elif signature and signature != self._signatures.get(call["id"]):
                    yield Problem("Corrupted thought signature.")
                if at > last_question and place == 0 and not signature:
                    yield Problem(
                        "Function call is missing a thought_signature in functionCall parts. This is"
                        " required for tools to work correctly, and missing thought_signature may lead to"
                        " degraded model performance. Additional data, function call"
                        f" `default_api:{call['function']['name']}` , position {at + 1}."
                    )

    def thought(self, text: str) -> Iterator[Json]:
        yield {"content": f"<thought>{text}</thought>", "extra_content": {"google": {"thought": True}}}

    def called(self, index: int, name: str, arguments: str) -> Iterator[Json]:
        """Whole calls, the first of them signed."""
        call_id = self.call_id()
        self._signatures[call_id] = "" if index else f"Cq0B+{self.number():040}/=="
        call: Json = {"index": index, "id": call_id, "type": "function"}
        call["function"] = {"name": name, "arguments": arguments}
        if not index:
            call["extra_content"] = {"google": {"thought_signature": self._signatures[call_id]}}
        yield call

    def call_id(self) -> str:
        return f"function-call-{self.number():019}"


def _unknown_name(name: str, where: str) -> Problem:
    return Problem(f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.')


def _keywords(schema: Any) -> set[str]:
    """The keywords of a schema and of the schemas in it."""
    if isinstance(schema, list):
        return set().union(*map(_keywords, schema))
    if not isinstance(schema, dict):
        return set()
    inner = [value for name, value in schema.items() if name not in ("properties", "enum", "default")]
    return schema.keys() | _keywords([*inner, *schema.get("properties", {}).values()])


def _gemini_turns(messages: list[Json]) -> Iterator[Problem]:
    before = ""
    for at, message in enumerate(messages):
        role = message["role"]
        if role == "system" and at:
            yield Problem("System instructions must be the first message.")
        calls = message.get("tool_calls") or ()
        if calls and before not in ("user", "tool", "assistant"):
            yield Problem(
                "Please ensure that function call turn comes immediately after a user turn or after a"
                " function response turn."
            )
        following = [each["role"] for each in messages[at + 1 : at + 1 + len(calls)]]
        if following != ["tool"] * len(calls):
            yield Problem(
                "Please ensure that the number of function response parts is equal to the number of function"
                " call parts of the function call turn."
            )
        before = role
    if before == "assistant":
        yield Problem("Requests ending with a model turn are not supported.")
    if before == "system":
        yield Problem("* GenerateContentRequest.contents: contents is not specified")


_INVALID = "<400> InternalError.Algo.InvalidParameter"


class Qwen(_Chat):
    """Qwen's template, as Alibaba Cloud and vLLM use it."""

    def error(self, problem: Problem) -> Any:
        error = {"message": problem.message, "type": "invalid_request_error", "param": None}
        return {"error": error | {"code": "invalid_parameter_error"}}

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        messages = body["messages"]
        for at, message in enumerate(messages):
            if message["role"] == "system" and at:
                yield Problem("System message must be at the beginning.")
            if message["role"] not in ("system", "user", "assistant", "tool"):
                yield Problem("Unexpected message role.")
            if message.get("content") is None:
                yield Problem(f"{_INVALID}: The content field is a required field.")
            for call in message.get("tool_calls") or ():
                if not _is_object(call["function"]["arguments"]):
                    yield Problem(
                        f'{_INVALID}: The "function.arguments" parameter of'
                        " the code model must be in JSON format."
                    )
        if not any(message["role"] == "user" for message in messages):
            yield Problem("No user query found in messages.")
        for each in _of_chat(body):
            yield Problem(f"{_INVALID}: {each}")

    def call_id(self) -> str:
        return f"call_a{self.number():023x}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


_MISTRAL_BODY = frozenset(
    {"model", "messages", "tools", "tool_choice", "stream", "max_tokens", "temperature", "top_p", "stop", "n"}
    | {"random_seed", "response_format", "presence_penalty", "frequency_penalty", "prediction", "metadata"}
    | {"parallel_tool_calls", "prompt_mode", "safe_prompt"}
)
_MISTRAL_MESSAGE = {
    "system": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content", "tool_calls", "prefix"}),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}
_MISTRAL_AFTER = {
    "system": {"user", "assistant", "system"},
    "user": {"assistant", "system", "user"},
    "assistant": {"assistant", "user", "tool"},
    "tool": {"assistant", "tool"},
}
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_ORDER = "invalid_request_message_order"


class Mistral(_Chat):
    """Mistral's own address: it accepts no unknown field, has its own form of call ids, and requires the
    assistant's turn after the outputs of calls."""

    def error(self, problem: Problem) -> Any:
        if problem.status == 422:
            where = [int(each) if each.isdigit() else each for each in (problem.param or "").split(".")]
            return {"detail": [{"type": problem.code, "loc": where, "msg": problem.message, "input": None}]}
        named = {"object": "error", "message": problem.message, "type": problem.code}
        return named | {"param": None, "code": "3230"}

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        known = [("body", body, _MISTRAL_BODY)]
        for at, message in enumerate(body["messages"]):
            role = message["role"]
            known.append((f"body.messages.{at}.{role}", message, _MISTRAL_MESSAGE.get(role, frozenset())))
        for where, value, fields in known:
            for name in _unknown_fields(value, fields):
                yield Problem("Extra inputs are not permitted", "extra_forbidden", f"{where}.{name}", 422)
        yield from _mistral_order(body["messages"])
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():
                yield from _mistral_id(call["id"])
            if "tool_call_id" in message:
                yield from _mistral_id(message["tool_call_id"])
        for each in _of_chat(body):
            if not each.endswith("arguments are not JSON"):  # it reads those as a text
                yield Problem(each, "invalid_request_error")

    def thought(self, text: str) -> Iterator[Json]:
        yield {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}

    def call_id(self) -> str:
        return f"Mis{self.number():06}"


def _mistral_order(messages: list[Json]) -> Iterator[Problem]:
    before = ""
    for message in messages:
        role = message["role"]
        if before and role not in _MISTRAL_AFTER[before]:
            yield Problem(f"Unexpected role '{role}' after role '{before}'", _ORDER)
        before = role
    if before not in ("user", "tool"):
        yield Problem(
            f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {before}",
            _ORDER,
        )


def _mistral_id(call_id: str) -> Iterator[Problem]:
    if not _MISTRAL_ID.fullmatch(call_id):
        yield Problem(
            f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9.",
            "invalid_function_call",
        )


PROVIDERS: dict[str, type[Provider]] = {
    "qwen": Qwen,
    "openai": OpenAI,
    "anthropic": Anthropic,
    "gemini": Gemini,
    "gemini-chat": GeminiChat,
    "interactions": Interactions,
    "mistral": Mistral,
}
"""The providers by the names of their profiles; Interactions is the other dialect of Gemini's."""
