"""What real clients sent, replayed at the server: accepted and answered without violations."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import call, respond, violations
from tests.support.shared import shared_files
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk
from tests.support.upstream import call as tool_call


def requests(recording: Path) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """(body, headers) of each create request that a recording holds."""
    pairs = []
    for line in recording.read_text().splitlines():
        record = json.loads(line)
        if record.get("method") != "POST" or not record.get("path", "").endswith("/responses"):
            continue
        body = record["body"]
        parsed = json.loads(body) if isinstance(body, str) else body
        headers = {
            name: value for name, value in record["headers"] if name in ("user-agent", "x-stainless-lang")
        }
        pairs.append((parsed, headers))
    return pairs


@pytest.mark.parametrize("recording", shared_files("client-requests", "*.jsonl"))
def test_recorded_requests_are_answered(recording: Path, bridged: str, upstream: ScriptedUpstream) -> None:
    for body, headers in requests(recording):
        script = [chunk(reasoning_content="Hm"), chunk(content="Hello"), chunk("stop"), DONE]
        upstream.scripts[body["model"]] = Script(script)
        # earlier turns are another server's and are not stored here
        body = {name: value for name, value in body.items() if name != "previous_response_id"}
        reply = call(bridged, "POST", "/v1/responses", body, headers)
        assert reply.status == 200, (reply.body, body)
        if body.get("stream"):
            assert violations(reply) == []
            assert reply.final["status"] == "completed"
        sent = upstream.last(body["model"]).body
        assert sent["messages"]
        assert all(message["role"] in ("system", "user", "assistant", "tool") for message in sent["messages"])


@pytest.mark.parametrize("recording", shared_files("client-requests", "codex_exec_gpt-5.5.jsonl"))
def test_codex_gets_its_custom_tool_back(recording: Path, bridged: str, upstream: ScriptedUpstream) -> None:
    body, headers = requests(recording)[0]
    patch = "*** Begin Patch\n*** Add File: a\n+b\n*** End Patch\n"
    arguments = json.dumps({"input": patch})
    pieces = [arguments[at : at + 9] for at in range(0, len(arguments), 9)]
    calls = [tool_call(0, "", "apply_patch", "call_1"), *(tool_call(0, piece) for piece in pieces)]
    upstream.scripts[body["model"]] = Script([*calls, chunk("tool_calls"), DONE])
    reply = respond(bridged, headers, **body)
    assert violations(reply) == []
    (item,) = reply.final["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", patch)
    assert reply.types.count("response.custom_tool_call_input.delta") > 3
