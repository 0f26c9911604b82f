"""A client that leaves, one that is slow, and a server that gets a signal to stop."""

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.serving import opened, stream, wait_for
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, text
from tests.support.waiting import wait_until


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("when", "script"),
    [
        ("before headers", Script(before=HANG)),
        ("before the first byte", Script([HANG])),
        ("in the middle", Script([chunk(content="x "), 0.02] * 20_000)),
    ],
)
def test_case_41_upstream_is_aborted_when_its_client_leaves(
    bridged: str, upstream: ScriptedUpstream, when: str, script: Script, streamed: bool
) -> None:
    model = f"{when} {streamed}"
    upstream.scripts[model] = script
    body = json.dumps({"model": model, "input": "x", "stream": streamed, "store": False}).encode()
    address = urlsplit(bridged)
    lines = ("host: localhost", "content-type: application/json", f"content-length: {len(body)}")
    head = "\r\n".join(("POST /v1/responses HTTP/1.1", *lines, "", "")).encode()
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head + body)
        if when == "in the middle" and streamed:
            assert connection.recv(4096)
        wait_until(lambda: any(each.body.get("model") == model for each in upstream.received))
    wait_until(lambda: upstream.last(model).gone_at is not None)


def test_s3_stored_response_is_finished_without_its_client(bridged: str, upstream: ScriptedUpstream) -> None:
    steps = [step for _ in range(30) for step in (chunk(content="x "), 0.02)]
    upstream.scripts["left"] = Script([*steps, *text("end")])
    body = {"model": "left", "input": "x", "stream": True}
    with opened(bridged, "POST", "/v1/responses", body) as response:
        first = response.readline() + response.readline()
        response_id = json.loads(first.split(b"data: ")[1])["response"]["id"]
    final = wait_for(bridged, response_id, "completed")
    assert final["output"][0]["content"][0]["text"] == "x " * 30 + "end"
    assert upstream.last("left").gone_at is None


def test_s4_slow_client_slows_its_own_upstream_only(bridged: str, upstream: ScriptedUpstream) -> None:
    """A client that does not read: its upstream is not read either, and others are served meanwhile."""
    piece = chunk(content="x" * 10_000)
    upstream.scripts["flood"] = Script([piece] * 1000)
    body = {"model": "flood", "input": "x", "stream": True, "store": False}
    with opened(bridged, "POST", "/v1/responses", body) as response:
        assert response.readline() == b"event: response.created\n"
        time.sleep(2.6)  # longer than the idle timeout, which is about the upstream, and than any timeout
        assert stream(bridged, model="meanwhile").final["status"] == "completed"
        sent = upstream.last("flood").sent
        assert sent < 1000 * len(piece) * 0.9
        rest = response.read()
    assert rest.count(b"response.output_text.delta\n") == 1000
    assert b"response.failed" in rest  # the script ends without a reason


def test_many_streams_at_once(bridged: str, upstream: ScriptedUpstream) -> None:
    from concurrent.futures import ThreadPoolExecutor

    upstream.scripts["many"] = Script([step for _ in range(20) for step in (chunk(content="x "), 0.01)])

    def one(_: int) -> Any:
        return stream(bridged, model="many").final["output"][0]["content"][0]["text"]

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(one, range(20))) == {"x " * 20}
