"""The upstreams that refuse as the real ones do: each rule refuses what breaks it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from tests.support.anthropic import add_up
from tests.support.strict_upstreams import PROVIDERS, GeminiChat, Provider, Said, StrictUpstream
from tests.support.upstream import DONE, Received, Script

Json = dict[str, Any]
SAID = Said("I look.", (("look", {"a": 1}), ("look", {"a": 2})), "First a look.")


def received(provider: Provider, body: Json) -> Received:
    return Received("POST", f"/v1{provider.paths}", {}, body)


def made(provider: Provider, body: Json, said: Said = SAID) -> list[Json]:
    """The frames of an answer."""
    script = StrictUpstream(provider, lambda asked: said)(received(provider, body))
    assert script.status == 200, script.steps
    steps = [bytes(step) for step in script.steps]  # type: ignore[arg-type]
    frames = [step for step in steps if not step.endswith(DONE)]
    return [json.loads(frame.split(b"data: ", 1)[1]) for frame in frames]


def function(**more: Any) -> Json:
    return {"name": "look", "parameters": {"type": "object", "properties": {}}, **more}


def of_openai(provider: Provider) -> Json:
    body = {"model": "m", "stream": True, "store": False, "include": ["reasoning.encrypted_content"]}
    body |= {"input": [{"role": "user", "content": "Turn 1."}], "tools": [function(type="function")]}
    output = made(provider, body)[-1]["response"]["output"]
    answers = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "seen"}
        for item in output
        if "call_id" in item
    ]
    return body | {"input": [*body["input"], *output, *answers]}


def of_anthropic(provider: Provider) -> Json:
    tool = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    body = {"model": "m", "stream": True, "max_tokens": 9000, "tools": [tool]}
    body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
    body["messages"] = [{"role": "user", "content": [{"type": "text", "text": "Turn 1."}]}]
    content = add_up(made(provider, body))["content"]
    answers = [
        {"type": "tool_result", "tool_use_id": each["id"], "content": [{"type": "text", "text": "seen"}]}
        for each in content
        if each["type"] == "tool_use"
    ]
    answered = [{"role": "assistant", "content": content}, {"role": "user", "content": answers}]
    return body | {"messages": [*body["messages"], *answered]}


def of_chat(provider: Provider) -> Json:
    body: Json = {"model": "m", "stream": True, "tools": [{"type": "function", "function": function()}]}
    body["messages"] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Turn 1."}]
    calls: dict[int, Json] = {}
    for frame in made(provider, body):
        for choice in frame["choices"]:
            for fragment in choice["delta"].get("tool_calls", ()):
                call = calls.setdefault(fragment.pop("index"), fragment)
                if call is not fragment:
                    call["function"]["arguments"] += fragment["function"]["arguments"]
    message = {"role": "assistant", "content": "I look.", "tool_calls": list(calls.values())}
    answers = [{"role": "tool", "tool_call_id": each["id"], "content": "seen"} for each in calls.values()]
    return body | {"messages": [*body["messages"], message, *answers]}


def of_contents(provider: Provider) -> Json:
    declared = {"name": "look", "parametersJsonSchema": {"type": "object", "properties": {}}}
    body: Json = {"contents": [{"role": "user", "parts": [{"text": "Turn 1."}]}]}
    body["tools"] = [{"functionDeclarations": [declared]}]
    parts = [part for frame in made(provider, body) for part in frame["candidates"][0]["content"]["parts"]]
    answers = [
        {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "seen"}}}
        for call in (part["functionCall"] for part in parts if "functionCall" in part)
    ]
    contents = [{"role": "model", "parts": parts}, {"role": "user", "parts": answers}]
    return body | {"contents": [*body["contents"], *contents]}


def of_steps(provider: Provider) -> Json:
    function_ = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    body: Json = {"model": "m", "stream": True, "store": False, "tools": [function_]}
    body["generation_config"] = {"thinking_summaries": "auto"}
    body["input"] = [{"type": "user_input", "content": [{"type": "text", "text": "Turn 1."}]}]
    steps: dict[int, Json] = {}
    for event in made(provider, body):
        if event["event_type"] == "step.start":
            steps[event["index"]] = event["step"]
        elif event["event_type"] == "step.delta":
            grow(steps[event["index"]], event["delta"])
    for step in steps.values():
        if step["type"] == "function_call":
            step["arguments"] = json.loads(step["arguments"])
    results = [
        {"type": "function_result", "call_id": each["id"], "name": each["name"], "result": "seen"}
        for each in steps.values()
        if each["type"] == "function_call"
    ]
    return body | {"input": [*body["input"], *steps.values(), *results]}


def grow(step: Json, delta: Json) -> None:
    kind = delta["type"]
    if kind == "thought_summary":
        step.setdefault("summary", []).append(delta["content"])
    elif kind == "thought_signature":
        step["signature"] = delta["signature"]
    elif kind == "arguments_delta":
        step["arguments"] = (step["arguments"] or "") + delta["arguments"]
    elif "content" in step:
        step["content"][-1]["text"] += delta["text"]
    else:
        step["content"] = [dict(delta)]


GOOD: dict[str, Callable[[Provider], Json]] = {
    "openai": of_openai,
    "anthropic": of_anthropic,
    "gemini": of_contents,
    "gemini-chat": of_chat,
    "interactions": of_steps,
    "qwen": of_chat,
    "mistral": of_chat,
}


def refusal(provider: Provider, body: Json) -> tuple[int, Any]:
    strict = StrictUpstream(provider, lambda asked: SAID)
    script: Script = strict(received(provider, body))
    assert strict.refused or script.status == 200
    content = b"".join(bytes(step) for step in script.steps)  # type: ignore[arg-type]
    return script.status, json.loads(content) if strict.refused else None


@pytest.mark.parametrize("name", GOOD)
def test_what_a_provider_has_made_it_takes_back(name: str) -> None:
    provider = PROVIDERS[name]()
    assert refusal(provider, GOOD[name](provider)) == (200, None)


class Broken(NamedTuple):
    """What is done to a good body, and what the refusal says then."""

    change: Callable[[Json], Any]
    message: str
    status: int = 400
    code: str | None = None


def at(place: int, **fields: Any) -> Callable[[Json], Any]:
    """Set fields of an item or a message; None deletes."""

    def change(body: Json) -> None:
        each = body.get("input", body.get("messages"))[place]
        each.update({name: value for name, value in fields.items() if value is not None})
        for name in [name for name, value in fields.items() if value is None]:
            del each[name]

    return change


def without(*places: int) -> Callable[[Json], Any]:
    def change(body: Json) -> None:
        items = body.get("input", body.get("messages"))
        for place in sorted(places, reverse=True):
            del items[place]

    return change


def put(place: int, item: Json) -> Callable[[Json], Any]:
    return lambda body: body.get("input", body.get("messages")).insert(place, item)


def block(message: int, place: int, **fields: Any) -> Callable[[Json], Any]:
    return lambda body: body["messages"][message]["content"][place].update(fields)


def called(place: int, **fields: Any) -> Callable[[Json], Any]:
    """Set fields of a call of the assistant's message, which is the third."""
    return lambda body: body["messages"][2]["tool_calls"][place].update(fields)


def user(text: str, content: Any = None) -> Json:
    return {"role": "user", "content": content or text}


SYSTEM = {"role": "system", "content": "And be kind."}
ASSISTANT = {"role": "assistant", "content": "So far."}
LONG = "call_" + "x" * 60
# a good input is: user, reasoning, message, two calls, two outputs
OPENAI = {
    "an id of another kind": Broken(at(2, id="item_1"), "begins with 'msg'", code="invalid_value"),
    "a call's id of another kind": Broken(at(3, id="ctc_1"), "begins with 'fc'", code="invalid_value"),
    "a long id": Broken(at(0, id="msg_" + "x" * 61), "maximum length 64", code="string_above_max_length"),
    "an id with other characters": Broken(at(0, id="msg_ä"), "additional characters", code="invalid_value"),
    "two items of one id": Broken(
        lambda body: body["input"].extend([user("And?") | {"id": "msg_1"}] * 2),
        "Duplicate item found with id msg_1",
    ),
    "a long call id": Broken(
        at(3, call_id=LONG), "'input[3].call_id': string too long", code="string_above_max_length"
    ),
    "reasoning in the clear": Broken(at(1, encrypted_content=None), "not found. Items are not", 404),
    "reasoning of others": Broken(
        at(1, encrypted_content="gAAAothers"), "could not be verified", code="invalid_encrypted_content"
    ),
    "reasoning under another id": Broken(
        at(1, id="rs_2"), "could not be verified", code="invalid_encrypted_content"
    ),
    "reasoning without a summary": Broken(
        at(1, summary=None), "Missing required", code="missing_required_parameter"
    ),
    "reasoning with its text": Broken(
        at(1, content=[{"type": "reasoning_text", "text": "hm"}]),
        "array too long",
        code="array_above_max_length",
    ),
    "reasoning and nothing after it": Broken(
        without(2, 3, 4, 5, 6), "of type 'reasoning' was provided without its required following item"
    ),
    "reasoning before the user's words": Broken(
        put(2, user("And?")), "of type 'reasoning' was provided without its required following item"
    ),
    "a call without output": Broken(without(6), "No tool output found for function call"),
    "an output without call": Broken(without(4), "No tool call found for function call output"),
    "an unknown field": Broken(at(2, extra=1), "'input[2].extra'", code="unknown_parameter"),
    "an assistant's input_text": Broken(
        at(2, content=[{"type": "input_text", "text": "a"}]),
        "'output_text' and 'refusal'",
        code="invalid_value",
    ),
    "a name with a dot": Broken(at(3, name="a.b"), "does not match pattern", code="invalid_value"),
    "a declared name with a dot": Broken(
        lambda body: body["tools"][0].update(name="a.b"), "'tools[0].name'", code="invalid_value"
    ),
}
UNANSWERED = "`tool_use` ids were found without `tool_result` blocks immediately after"
# a good conversation is: user; thinking, text, two calls; two results
ANTHROPIC = {
    "the assistant's end": Broken(put(3, ASSISTANT), "does not support assistant message prefill"),
    "two users' turns": Broken(put(0, user("And?")), 'multiple "user" roles in a row'),
    "a system message": Broken(put(1, SYSTEM), "_turns: roles ["),
    "a signature of others": Broken(
        block(1, 0, signature="others"), "messages.1.content.0: Invalid `signature` in `thinking` block"
    ),
    "changed thinking": Broken(block(1, 0, thinking="hm"), "Invalid `signature` in `thinking` block"),
    "a call without result": Broken(without(2), UNANSWERED),
    "a result without call": Broken(block(2, 0, tool_use_id="toolu_x"), "unexpected `tool_use_id` found"),
    "one of two results": Broken(lambda body: body["messages"][2]["content"].pop(), UNANSWERED),
    "text before a result": Broken(
        lambda body: body["messages"][2]["content"].insert(0, {"type": "text", "text": "a"}),
        "a tool_result behind other content",
    ),
    "an id with a dot": Broken(block(1, 2, id="a.b"), "tool_use.id: String should match pattern"),
    "an input that is no object": Broken(block(1, 2, input="{}"), "Input should be a valid dictionary"),
    "a blank text": Broken(block(1, 1, text=" "), "a blank text block"),
    "calls being answered without thinking": Broken(
        lambda body: body["messages"][1]["content"].pop(0), "do not begin with thinking"
    ),
    "a long name": Broken(
        lambda body: body["tools"][0].update(name="n" * 129), "tools.0.custom.name: String should match"
    ),
}
# a good conversation is: system, user, assistant with two calls, two outputs
GEMINI_CHAT = {
    "a call without its signature": Broken(
        called(0, extra_content=None), "Function call is missing a thought_signature"
    ),
    "another signature": Broken(
        called(0, extra_content={"google": {"thought_signature": "AbCd=="}}), "Corrupted thought signature"
    ),
    "an end with the model's turn": Broken(put(5, ASSISTANT), "ending with a model turn are not supported"),
    "a call without output": Broken(without(4), "the number of function response parts is equal"),
    "a call before all else": Broken(without(1), "comes immediately after a user turn"),
    "nothing but the system": Broken(without(1, 2, 3, 4), "contents is not specified"),
    "a second system message": Broken(put(2, SYSTEM), "must be the first message"),
    "a field that it does not know": Broken(lambda body: body.update(store=False), 'Unknown name "store"'),
    "a message's field that it does not know": Broken(
        at(2, reasoning_content="hm"), "Unknown name \"reasoning_content\" at 'messages[2]'"
    ),
    "a keyword that it does not know": Broken(
        lambda body: body["tools"][0]["function"]["parameters"]["properties"].update(a={"const": 1}),
        'Unknown name "const"',
    ),
}
QWEN = {
    "a second system message": Broken(put(2, SYSTEM), "System message must be at the beginning."),
    "a developer's message": Broken(at(0, role="developer"), "Unexpected message role."),
    "no content": Broken(at(2, content=None), "The content field is a required field."),
    "arguments that are no JSON": Broken(
        called(0, function={"name": "look", "arguments": "{a: 1}"}), "must be in JSON format"
    ),
    "no question": Broken(without(1), "No user query found in messages."),
    "a call without output": Broken(without(4), "are never answered"),
}
ORDER = "invalid_request_message_order"
MISTRAL = {
    "an id of another form": Broken(
        lambda body: [called(0, id="call_1")(body), at(3, tool_call_id="call_1")(body)],
        "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
    ),
    "a user's message after an output": Broken(
        put(5, user("And?")), "Unexpected role 'user' after role 'tool'"
    ),
    "a system message after an output": Broken(put(5, SYSTEM), "Unexpected role 'system' after role 'tool'"),
    "a system message after an answer": Broken(
        lambda body: body["messages"].extend([ASSISTANT, SYSTEM]),
        "Unexpected role 'system' after role 'assistant'",
    ),
    "an end with the assistant's turn": Broken(put(5, ASSISTANT), "Expected last role User or Tool"),
    "a field that it does not know": Broken(
        lambda body: body.update(store=False), "Extra inputs are not permitted", 422
    ),
    "a message's field that it does not know": Broken(
        at(2, reasoning_content="hm"), "Extra inputs are not permitted", 422
    ),
    "a call without output": Broken(without(4), "are never answered"),
}


def part_of(content: int, place: int, **fields: Any) -> Callable[[Json], Any]:
    """Set fields of a part; None deletes."""

    def change(body: Json) -> None:
        part = body["contents"][content]["parts"][place]
        part.update({name: value for name, value in fields.items() if value is not None})
        for name in [name for name, value in fields.items() if value is None]:
            del part[name]

    return change


# a good conversation is: user, model with a text in three parts and two calls, user with their outputs
GEMINI = {
    "a call without its signature": Broken(
        part_of(1, -2, thoughtSignature=None), "Function call is missing a thought_signature"
    ),
    "another signature": Broken(part_of(1, -2, thoughtSignature="AbCd=="), "Corrupted thought signature"),
    "a signature on another part": Broken(
        lambda body: body["contents"][1]["parts"][-1].update(
            thoughtSignature=body["contents"][1]["parts"][-2].pop("thoughtSignature")
        ),
        "Corrupted thought signature",
    ),
    "an answer without its call": Broken(
        lambda body: body["contents"][1]["parts"].pop(), "the number of function response parts is equal"
    ),
    "a call without its answer": Broken(
        lambda body: body["contents"][2]["parts"].pop(), "the number of function response parts is equal"
    ),
    "an end with the model's turn": Broken(
        lambda body: body["contents"].append({"role": "model", "parts": [{"text": "Hm."}]}),
        "ending with a model turn are not supported",
    ),
    "two turns of one role": Broken(
        lambda body: body["contents"].append({"role": "user", "parts": [{"text": "Hm."}]}),
        "roles take turns",
    ),
    "a role that it does not know": Broken(
        lambda body: body["contents"][0].update(role="system"), "Please use a valid role"
    ),
    "a first turn of the model": Broken(lambda body: body["contents"].pop(0), "first content is the user's"),
    "a content without parts": Broken(
        lambda body: body["contents"][0].update(parts=[]), "parts must not be empty"
    ),
    "a field that it does not know": Broken(lambda body: body.update(stream=True), 'Unknown name "stream"'),
    "a part's field that it does not know": Broken(part_of(1, 0, annotations=[]), 'name "annotations"'),
    "a setting that it does not know": Broken(
        lambda body: body.update(generationConfig={"verbosity": "low"}), 'Unknown name "verbosity"'
    ),
    "a keyword that it does not know": Broken(
        lambda body: body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"].update(const=1),
        'Unknown name "const"',
    ),
}


def steps(change: Callable[[list[Json]], Any]) -> Callable[[Json], Any]:
    """Change the steps: of the user, thought, text, two calls and their results."""
    return lambda body: change(body["input"])


INTERACTIONS = {
    "a field that is not known": Broken(
        lambda body: body.update(instructions="Be brief."), 'Unknown name "instructions"'
    ),
    "a field of a step that is not known": Broken(at(3, status="completed"), "at 'input[3]'"),
    "a field of the settings that is not known": Broken(
        lambda body: body["generation_config"].update(top_k=3), "at 'generation_config'"
    ),
    "a field of a tool that is not known": Broken(
        lambda body: body["tools"][0].update(strict=True), "at 'tools[0]'"
    ),
    "a keyword that schemas do not have": Broken(
        lambda body: body["tools"][0]["parameters"].update({"$schema": "x"}), 'Unknown name "$schema"'
    ),
    "a step that is not known": Broken(at(2, type="message"), "'message' is not a step"),
    "a call without its id": Broken(at(3, id=None), "input[3].id: is required"),
    "a call with an empty id": Broken(at(3, id=""), "input[3].id: is required"),
    "arguments as a text": Broken(at(3, arguments="{}"), "input[3].arguments: is required"),
    "a result without the id of its call": Broken(at(5, call_id=None), "input[5].call_id: is required"),
    "a result without a name": Broken(at(5, name=None), "input[5].name: is required"),
    "a result without what it is": Broken(at(5, result=None), "input[5].result: is required"),
    "a result with another's name": Broken(at(5, name="other"), "is not that of its call"),
    "a result of no call": Broken(at(5, call_id="call_x"), "is not the id of a call that waits"),
    "two calls with one id": Broken(
        steps(lambda each: each[4].update(id=each[3]["id"], signature=each[3]["signature"])),
        "is the id of another call",
    ),
    "a call without a result": Broken(steps(lambda each: each.pop()), "has no result"),
    "a result before its call": Broken(
        steps(lambda each: each.insert(3, each.pop(5))), "is not the id of a call that waits"
    ),
    "the user before the results": Broken(
        steps(lambda each: each.insert(5, dict(each[0]))), "has no result before it"
    ),
    "the model first": Broken(steps(lambda each: each.insert(0, each.pop(2))), "has to be the user's"),
    "the model last": Broken(steps(lambda each: each.append(each.pop(2))), "The last step has to be"),
    "a thought without its signature": Broken(at(1, signature=None), "needs its signature"),
    "a signature of another": Broken(at(1, signature="Eq0B+other=="), "Corrupted thought signature"),
    "a summary that is another": Broken(
        lambda body: body["input"][1]["summary"][0].update(text="Other."), "Corrupted thought signature"
    ),
}
ROWS = {
    "interactions": INTERACTIONS,
    "openai": OPENAI,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "gemini-chat": GEMINI_CHAT,
    "qwen": QWEN,
    "mistral": MISTRAL,
}


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        pytest.param(name, row, id=f"{name}: {what}")
        for name, rows in ROWS.items()
        for what, row in rows.items()
    ],
)
def test_a_rule_refuses_what_breaks_it(name: str, broken: Broken) -> None:
    provider = PROVIDERS[name]()
    good = GOOD[name](provider)
    body = deepcopy(good)
    broken.change(body)
    status, answer = refusal(provider, body)
    assert status == broken.status
    assert broken.message in json.dumps(answer, ensure_ascii=False).replace('\\"', '"')
    assert broken.code is None or answer["error"]["code"] == broken.code
    assert refusal(provider, good) == (200, None)


def test_encrypted_reasoning_comes_if_it_is_asked_for() -> None:
    provider = PROVIDERS["openai"]()
    body = {"model": "m", "stream": True, "input": "Turn 1.", "tools": [function(type="function")]}
    reasoning = made(provider, body)[-1]["response"]["output"][0]
    assert "encrypted_content" not in reasoning


def test_gemini_wants_signatures_of_the_current_turn_and_takes_its_placeholder_for_calls_of_others() -> None:
    provider = PROVIDERS["gemini-chat"]()
    body = of_chat(provider)
    foreign = deepcopy(body)
    for message in foreign["messages"]:
        for call in message.get("tool_calls", ()):
            call["id"] = f"their{call['id']}"
            call["extra_content"] = {"google": {"thought_signature": "skip_thought_signature_validator"}}
        if "tool_call_id" in message:
            message["tool_call_id"] = f"their{message['tool_call_id']}"
    assert refusal(provider, foreign) == (200, None)
    earlier = deepcopy(body)
    called(0, extra_content=None)(earlier)
    earlier["messages"] += [ASSISTANT, user("Turn 2.")]
    assert refusal(provider, earlier) == (200, None)


def test_gemini_notes_calls_of_its_own_that_come_back_with_the_placeholder() -> None:
    provider = PROVIDERS["gemini-chat"]()
    assert isinstance(provider, GeminiChat)
    body = of_chat(provider)
    assert (refusal(provider, body), provider.lost) == ((200, None), [])
    called(0, extra_content={"google": {"thought_signature": "skip_thought_signature_validator"}})(body)
    assert refusal(provider, body) == (200, None)
    assert provider.lost == [body["messages"][2]["tool_calls"][0]["id"]]
