"""A Bedrock that refuses the requests that the real one refuses, and otherwise answers by a rule: it checks
signatures, fields by botocore's model of the service, and the order of messages."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import pytest

from tests.support import converse
from tests.support.strict_upstreams import Asked, Json, Problem, Provider, Said, StrictUpstream, turn_in
from tests.support.upstream import JSON, Received, Script, Step

KEY, SECRET, REGION = "AKIAIOSFODNN7EXAMPLE", "a/secret+of/forty+characters/for+the/tests", "eu-west-3"


@cache
def service_model() -> Any:
    """botocore's description of the service, which has every field."""
    pytest.importorskip("botocore")
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"), "bedrock-runtime")


def wrong_fields(body: Json, operation: str = "Converse") -> str:
    """Return why the body does not belong to this operation; "" if it does."""
    from botocore.validate import ParamValidator

    shape = service_model().operation_model(operation).input_shape
    report = ParamValidator().validate({"modelId": "m", **body}, shape)
    return str(report.generate_report())


class Converse(Provider):
    """The rules of Converse, and its frames."""

    paths: ClassVar[str] = "/converse-stream"

    def __init__(self) -> None:
        self._signed: dict[str, str] = {}  # signature → the text that it is for

    def error(self, problem: Problem) -> Any:
        return {"message": problem.message}

    def problems(self, body: Json, betas: str) -> Iterator[Problem]:
        if wrong := wrong_fields(body):
            yield Problem(wrong)
        yield from self._turns(body)
        yield from self._signatures(body["messages"])

    def _turns(self, body: Json) -> Iterator[Problem]:
        roles = [message["role"] for message in body["messages"]]
        if not roles or roles[0] != "user" or roles[-1] != "user":
            yield Problem("A conversation must start and end with a user message.")
        if any(each == other for each, other in pairwise(roles)):
            yield Problem("A conversation must alternate between user and assistant roles.")
        open_calls: list[str] = []
        named = {spec["name"] for spec in _specs(body)}
        for message in body["messages"]:
            content = message["content"]
            if not content or any("text" in block and not block["text"].strip() for block in content):
                yield Problem("The text field in the ContentBlock object is blank.")
            results = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
            if results != open_calls:
                yield Problem("Expected toolResult blocks for the toolUse blocks of the turn before.")
            open_calls = [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block]
            called = {block["toolUse"]["name"] for block in content if "toolUse" in block}
            if not named and (called or results):
                yield Problem(
                    "The toolConfig field must be defined when using toolUse and toolResult content blocks."
                )
            if len(set(open_calls)) != len(open_calls):
                yield Problem("The number of toolUse ids is not that of the blocks.")

    def _signatures(self, messages: list[Json]) -> Iterator[Problem]:
        for message in messages:
            for block in message["content"]:
                thought = block.get("reasoningContent", {}).get("reasoningText")
                if thought and self._signed.get(thought.get("signature", "")) != thought["text"]:
                    yield Problem("Invalid `signature` in `thinking` block")

    def asked(self, body: Json) -> Asked:
        texts, outputs = [], 0
        for message in body["messages"]:
            for block in message["content"]:
                outputs += "toolResult" in block
                if message["role"] == "user" and "text" in block:
                    texts.append(block["text"])
                    outputs = outputs if turn_in([block["text"]]) == 0 else 0
        return Asked(turn_in(texts), outputs, {spec["name"]: "function" for spec in _specs(body)})

    def frames(self, said: Said, asked: Asked, body: Json) -> list[Step]:
        return list(converse.messages(self.events(said)))

    def events(self, said: Said) -> list[Json]:
        """The events of an answer."""
        frames = [converse.start()]
        at = 0
        if said.thinking:
            signature = base64.b64encode(f"signature {self.number()} \x00\xff=".encode()).decode()
            self._signed[signature] = said.thinking
            frames += converse.reasoning(at, said.thinking, signature)
            at += 1
        if said.text:
            frames += converse.text(at, *_halves(said.text))
            at += 1
        for name, raw in said.calls:
            arguments = raw if isinstance(raw, str) else json.dumps(raw)
            frames += converse.call(at, f"tooluse_{self.number():022}", name, *_halves(arguments))
            at += 1
        return frames + converse.end("tool_use" if said.calls else "end_turn")


def _specs(body: Json) -> list[Json]:
    return [tool["toolSpec"] for tool in body.get("toolConfig", {}).get("tools", ()) if "toolSpec" in tool]


def _halves(text: str) -> list[str]:
    return [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]


def wrong_signature(received: Received, address: str, token: str | None = None, secret: str = SECRET) -> str:
    """Return why the signature of a request to this address is refused; "" for the right one. For the
    comparison, botocore signs the received request again."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    authorization = received.headers.get("authorization", "")
    if not authorization.startswith("AWS4-HMAC-SHA256 "):
        return "Missing Authentication Token"
    fields = dict(each.strip().split("=", 1) for each in authorization.partition(" ")[2].split(","))
    if fields["Credential"].split("/")[0] != KEY or fields["Credential"].split("/")[2:4] != [
        REGION,
        "bedrock",
    ]:
        return "The security token included in the request is invalid."
    signed = fields["SignedHeaders"].split(";")
    if "host" not in signed or received.headers["host"] != urlsplit(address).netloc:
        return "'Host' must be a 'SignedHeader' in the AWS Authorization."
    if received.headers.get("x-amz-security-token") != token or (
        token and "x-amz-security-token" not in signed
    ):
        return "The security token included in the request is invalid."
    digest = received.headers.get("x-amz-content-sha256")
    if digest is not None and digest != hashlib.sha256(received.raw).hexdigest():
        return "The provided 'x-amz-content-sha256' header does not match what was computed."
    root = f"{urlsplit(address).scheme}://{urlsplit(address).netloc}"
    headers = {name: received.headers[name] for name in signed}
    request = AWSRequest(received.method, root + received.path, headers=headers, data=received.raw)
    request.context["timestamp"] = stamp = received.headers["x-amz-date"]
    signer = SigV4Auth(Credentials(KEY, secret, token), "bedrock", REGION)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    if signer.signature(text, request) != fields["Signature"]:
        return "The request signature we calculated does not match the signature you provided."
    at = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    late = abs((datetime.datetime.now(datetime.UTC) - at).total_seconds()) > 900
    return "Signature expired" if late else ""


def refused(message: str, kind: str, status: int) -> Script:
    """A refusal in Bedrock's words, with its type in a header."""
    head = {**JSON, "x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/"}
    return Script([json.dumps({"message": message}).encode()], status, head)


class StrictBedrock:
    """The `answer` of a `ScriptedUpstream`. `refused` has the messages of its refusals, `models` the
    requested models. `token` is the session token that requests have to carry. `bearer`, unless it is None,
    is the key that they have to carry instead of a signature; "" accepts any."""

    def __init__(self, rule: Callable[[Asked], Said], address: Callable[[], str]) -> None:
        self.strict = StrictUpstream(Converse(), rule)
        self.models: list[str] = []
        self.token: str | None = None
        self.bearer: str | None = None
        self._address = address

    @property
    def refused(self) -> list[str]:
        return self.strict.refused

    def __call__(self, received: Received) -> Script:
        if self.bearer is not None:
            authorization = received.headers.get("authorization", "")
            fits = (
                authorization == f"Bearer {self.bearer}"
                if self.bearer
                else authorization.startswith("Bearer ")
            )
            wrong = "" if fits else "Invalid API Key"
        else:
            wrong = wrong_signature(received, self._address(), self.token)
        if wrong:
            self.refused.append(wrong)
            return refused(wrong, "AccessDeniedException", 403)
        self.models.append(unquote(received.path.split("/")[2]))
        answer = self.strict(received)
        if answer.status == 200:
            return Script(answer.steps, headers=converse.HEADERS)
        return refused(self.refused[-1] if self.refused else "", "ValidationException", answer.status)


def whole(events: list[Json]) -> Mapping[str, Any]:
    """The answer that these events add up to, for a request that is not streamed."""
    content: dict[int, Json] = {}
    answer: Json = {}
    for event in events:
        ((kind, fields),) = event.items()
        if kind == "contentBlockStart":
            content[fields["contentBlockIndex"]] = {"toolUse": {**fields["start"]["toolUse"], "input": ""}}
        elif kind == "contentBlockDelta":
            _grow(content.setdefault(fields["contentBlockIndex"], {}), fields["delta"])
        elif kind in ("messageStop", "metadata"):
            answer |= fields
    for block in content.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    message = {"role": "assistant", "content": [content[index] for index in sorted(content)]}
    return {**answer, "output": {"message": message}}


def _grow(block: Json, delta: Json) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    elif "reasoningContent" in delta:
        thought = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})["reasoningText"]
        for name, piece in delta["reasoningContent"].items():
            thought[name] = thought.get(name, "") + piece
