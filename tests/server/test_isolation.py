"""Law S7 between clients: with `pass_through` each key is an owner of its own, and what was sealed for one
key opens for no other, whatever carries it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette

from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.items import ReasoningItem
from openresponses_bridge.seal import SealError
from openresponses_server.api.app import create_app
from openresponses_server.http.auth import NOBODY, Keys
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.background import claim
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.requests.service import Service
from openresponses_server.settings import FunctionSettings, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.store.base import StoredResponse
from openresponses_server.tasks import OWNER
from tests.support.serving import Reply, call, respond, serving
from tests.support.sockets import opened_socket
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, refusal, text
from tests.support.upstream import call as tool_call

ALICE = {"authorization": "Bearer key-of-alice"}
BOB = {"x-api-key": "key-of-bob"}
NO_KEY: dict[str, str] = {}
SIGNATURE = "EqQBCgIYAhIM-signature"


def sse(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    return [
        sse("content_block_start", index=index, content_block=start),
        *(sse("content_block_delta", index=index, delta=delta) for delta in deltas),
        sse("content_block_stop", index=index),
    ]


THINKING = Script(
    [
        sse("message_start", message={"id": "msg_1", "role": "assistant", "content": []}),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": SIGNATURE},
        ),
        *block(1, {"type": "redacted_thinking", "data": "REDACTED"}),
        *block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Yes."}),
        sse("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        sse("message_stop"),
    ]
)


@pytest.fixture(scope="module", params=["pass_through", "api_keys"])
def shared(request: pytest.FixtureRequest, upstream: ScriptedUpstream) -> Iterator[str]:
    """A server for two clients: each with a key of this server, or of the upstream."""
    through = request.param == "pass_through"
    upstreams = [
        UpstreamSettings(
            name=dialect,
            url=upstream.url,
            dialect=dialect,
            models=[f"{dialect}-*"],
            pass_through=through,
            failover=["anthropic/anthropic-m"] if dialect == "chat" else [],
        )
        for dialect in ("chat", "anthropic")
    ]
    keys = [] if through else [hashed("key-of-alice"), hashed("key-of-bob")]
    with serving(Settings(upstreams=upstreams, api_keys=keys)) as base:
        yield base


@pytest.fixture
def scripted(upstream: ScriptedUpstream) -> ScriptedUpstream:
    upstream.scripts |= {
        "anthropic-m": THINKING,
        "chat-m": Script(text("Sum of it.")),
        "chat-down": refusal(503, message="down"),
    }
    return upstream


def reasoning_of(reply: Reply) -> list[dict[str, Any]]:
    assert reply.status == 200, reply.body
    return [item for item in reply.json["output"] if item["type"] == "reasoning"]


def again(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "Hi"}, *items, {"role": "user", "content": "And?"}]


def test_another_key_s_response_is_not_found(shared: str, scripted: ScriptedUpstream) -> None:
    response_id = respond(shared, ALICE, model="chat-m").json["id"]
    path = f"/v1/responses/{response_id}"
    for method, below in (
        ("GET", ""),
        ("GET", "?stream=true&starting_after=0"),
        ("GET", "/input_items"),
        ("POST", "/cancel"),
        ("DELETE", ""),
    ):
        assert call(shared, method, path + below, headers=BOB).status == 404, below
    assert respond(shared, BOB, model="chat-m", previous_response_id=response_id).status == 400
    item = call(shared, "GET", path, headers=ALICE).json["output"][0]["id"]
    referred = respond(shared, BOB, model="chat-m", input=[{"type": "item_reference", "id": item}])
    assert (referred.status, referred.error["code"]) == (400, "item_not_found")
    assert call(shared, "DELETE", path, headers=ALICE).status == 200


def test_another_key_s_compaction_can_t_be_unsealed(shared: str, scripted: ScriptedUpstream) -> None:
    body = {"model": "chat-m", "input": [{"role": "user", "content": "My password is hunter2."}]}
    window = call(shared, "POST", "/v1/responses/compact", body, ALICE).json
    sealed = [item for item in window["output"] if item["type"] == "compaction"]
    assert respond(shared, ALICE, model="chat-m", input=again(sealed)).status == 200
    for headers, path in ((BOB, "/v1/responses"), (BOB, "/v1/responses/input_tokens")):
        for model in ("chat-m", "anthropic-m"):
            before = len(scripted.received)
            reply = call(shared, "POST", path, {"model": model, "input": again(sealed)}, headers)
            assert (reply.status, reply.error["code"]) == (400, "invalid_encrypted_content")
            assert reply.error["param"] == "input[1].encrypted_content"
            assert len(scripted.received) == before
    trigger = [*sealed, {"type": "compaction_trigger"}]
    assert respond(shared, BOB, model="chat-m", input=trigger).status == 400
    assert (
        call(shared, "POST", "/v1/responses/compact", {"model": "chat-m", "input": sealed}, BOB).status == 400
    )


@pytest.mark.parametrize("model", ["anthropic-m", "chat-down"], ids=["first", "failover"])
def test_thinking_opens_for_its_own_key_alone(shared: str, scripted: ScriptedUpstream, model: str) -> None:
    response = respond(shared, ALICE, model=model)
    sealed = reasoning_of(response)
    assert len(sealed) == 2
    assert respond(shared, ALICE, model="anthropic-m", input=again(response.json["output"])).status == 200
    messages = scripted.last("anthropic-m").body["messages"]
    back = [part for message in messages for part in message["content"]]
    assert {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE} in back
    assert {"type": "redacted_thinking", "data": "REDACTED"} in back
    for each in sealed:
        reply = respond(shared, BOB, model="anthropic-m", input=again([each]))
        assert reply.status == 200
        assert "reasoning: can't be opened here" in reply.headers["openresponses-losses"]
        sent = json.dumps(scripted.last("anthropic-m").body)
        assert not [secret for secret in (SIGNATURE, "REDACTED", each["encrypted_content"]) if secret in sent]


def test_thinking_of_the_messages_surface_goes_to_its_own_key_alone(
    shared: str, scripted: ScriptedUpstream
) -> None:
    """What another upstream keeps opaque is sealed into Anthropic's signature; here it is what was sealed."""
    body = {"model": "anthropic-m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    whole = call(shared, "POST", "/v1/messages", body, ALICE).json
    assert [each["type"] for each in whole["content"]] == ["thinking", "redacted_thinking", "text"]
    assert whole["content"][0]["signature"] == SIGNATURE
    turn = {"role": "assistant", "content": whole["content"]}
    more = body | {"messages": [*body["messages"], turn, {"role": "user", "content": "And?"}]}
    assert call(shared, "POST", "/v1/messages", more, ALICE).status == 200
    assert scripted.last("anthropic-m").body["messages"][1]["content"][0]["signature"] == SIGNATURE


def test_a_websocket_seals_for_the_key_of_its_handshake(shared: str, scripted: ScriptedUpstream) -> None:
    with opened_socket(shared, ALICE) as alice, opened_socket(shared, BOB) as bob:
        response = alice.turn(model="anthropic-m", input="Hi").final
        sealed = [item for item in response["output"] if item["type"] == "reasoning"]
        assert alice.turn(model="anthropic-m", input=again(sealed)).final["status"] == "completed"
        assert bob.turn(model="anthropic-m", input=again(sealed)).final["status"] == "completed"
        assert SIGNATURE not in json.dumps(scripted.last("anthropic-m").body)
        sent = bob.turn(model="chat-m", input="x", previous_response_id=response["id"]).error
        assert sent["error"]["code"] == "previous_response_not_found"


def test_a_run_in_the_background_seals_for_its_owner(shared: str, scripted: ScriptedUpstream) -> None:
    response = respond(shared, ALICE, model="anthropic-m", background=True).json
    path = f"/v1/responses/{response['id']}"
    while (reply := call(shared, "GET", path, headers=ALICE)).json["status"] in ("queued", "in_progress"):
        pass
    sealed = reasoning_of(reply)
    assert respond(shared, ALICE, model="anthropic-m", input=again(sealed)).status == 200
    assert respond(shared, BOB, model="anthropic-m", input=again(sealed)).status == 200
    assert SIGNATURE not in json.dumps(scripted.last("anthropic-m").body)
    assert call(shared, "GET", path, headers=BOB).status == 404


async def made_by_another_worker(app: Starlette) -> StoredResponse:
    """The record that another worker stores of a queued run of Alice's."""
    service: Service = app.state.service
    request = decode_request(b'{"model": "m", "input": "Hi", "background": true}')
    async with app.router.lifespan_context(app):
        run = RunAssembly(await prepare(Received(request, {}, "req_1", "alice"), service), service).run()
        response_id = run.translation.response_id
        assert run.persistence is not None
        await run.persistence.queue(for_anybody=True)
        await claim(service, response_id)
        while (
            record := await service.store.get(response_id, "alice")
        ) is None or record.response.status != "completed":
            await anyio.sleep(0.02)
    return record


async def test_a_run_that_another_worker_takes_seals_for_its_owner(upstream: ScriptedUpstream) -> None:
    """That worker knows the owner from the record, and has no key of theirs."""
    upstream.scripts["m"] = THINKING
    app = create_app(Settings(upstreams=[UpstreamSettings(url=upstream.url, dialect="anthropic")]))
    service: Service = app.state.service
    record = await made_by_another_worker(app)
    (thought, hidden) = (item for item in record.response.output if isinstance(item, ReasoningItem))
    for item in (thought, hidden):
        sealed = str(item.encrypted_content)
        assert service.sealer.bound("alice").open(sealed).kind.startswith("anthropic-")
        for other in (service.sealer, service.sealer.bound("bob")):
            with pytest.raises(SealError):
                other.open(sealed)


OWNERS = """
from openresponses_agent.tools import ToolRegistry
from openresponses_server.tasks import OWNER

registry = ToolRegistry()


@registry.tool(tags={"read-only"})
def owner() -> str:
    \"\"\"Whose turn it is.\"\"\"
    return f"owner: {OWNER.get()}"
"""


async def test_a_run_that_another_worker_takes_works_in_its_owner_s_turn(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Its functions and its pages take the places of that key, and not those of all."""
    (tmp_path / "tools.py").write_text(OWNERS)
    steps = [tool_call(0, "{}", "owner", "call_1"), chunk("tool_calls"), DONE]
    upstream.scripts["m"] = [Script(steps), Script(text("Well."))]
    function = FunctionSettings(module=str(tmp_path / "tools.py"))
    app = create_app(Settings(upstreams=[UpstreamSettings(url=upstream.url)], functions=[function]))
    record = await made_by_another_worker(app)
    assert OWNER.get() == ""
    assert encode(record.response.output[0]).count(b"owner: alice") == 1


def test_with_pass_through_nobody_is_an_owner_too(upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(text("a"))
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url, pass_through=True)])) as base:
        hers, nobodys = (respond(base, headers, model="m").json["id"] for headers in (ALICE, NO_KEY))
        seen = {
            (whose, response_id == hers): call(
                base, "GET", f"/v1/responses/{response_id}", headers=headers
            ).status
            for whose, headers in (("alice", ALICE), ("bob", BOB), ("nobody", NO_KEY))
            for response_id in (hers, nobodys)
        }
    assert {case for case, status in seen.items() if status == 200} == {("alice", True), ("nobody", False)}


def test_the_owner_is_a_hash_of_the_key_that_goes_out() -> None:
    keys = Keys([], pass_through=True)
    owners = [keys.owner(headers) for headers in (ALICE, BOB, ALICE | BOB)]
    assert owners[0] == owners[2] != owners[1]
    assert all("key" not in owner and len(owner) == 32 for owner in owners)
    assert owners[0] == Keys([hashed("key-of-alice")]).owner(ALICE)
    # who shows another key's hash is not that key's owner
    assert keys.owner({"x-api-key": hashed("key-of-alice")}) != owners[0]
    assert keys.owner(NO_KEY) == keys.owner({"authorization": "Basic x"}) == NOBODY
    assert Keys([]).owner(ALICE) == NOBODY
