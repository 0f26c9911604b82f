"""Law S1: PostgreSQL commits, and its answer comes too late: the response that the client was sent is the
stored one."""

import asyncio
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.store import writers
from tests.support.failing_store import store_ends_within
from tests.support.relays import Relay
from tests.support.services import postgres_database
from tests.support.serving import Reply, call, serving
from tests.support.upstream import ScriptedUpstream, paced
from tests.support.waiting import wait_until


@pytest.mark.parametrize("streamed", [True, False])
async def test_s1_a_turn_whose_end_was_stored_too_late_is_appended_once(
    streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_ends_within(monkeypatch, 60.0)  # everything else may take as long as it needs
    with postgres_database() as address, ScriptedUpstream() as upstream:
        if streamed:  # the beginning is stored before the end
            upstream.scripts["m"] = paced("Hello", " there", every=0.1)
        url = make_url(address)
        relay = Relay(url.port or 5432, url.host or "127.0.0.1")
        relay.late = lambda asked: b"COMMIT" in asked
        async with relay.listening():
            relayed = url.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
            settings = Settings(
                store=f"{relayed}?sslmode=disable&gssencmode=disable",
                upstreams=[UpstreamSettings(url=upstream.url, name="scripted")],
                checkpoint_interval=0.1,
            )
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(_converse, settings, address, relay, streamed, loop)


def _converse(
    settings: Settings, address: str, relay: Relay, streamed: bool, loop: asyncio.AbstractEventLoop
) -> None:
    with (
        psycopg.connect(address.replace("+psycopg", ""), autocommit=True) as admin,
        serving(settings) as base,
    ):
        conversation_id, other = (call(base, "POST", "/v1/conversations", {}).json["id"] for _ in range(2))

        def ask(conversation: str = conversation_id) -> Reply:
            body = {"model": "m", "input": "Hello?", "conversation": conversation, "stream": streamed}
            return call(base, "POST", "/v1/responses", body)

        def items() -> list[Any]:
            return list(call(base, "GET", f"/v1/conversations/{conversation_id}/items").json["data"])

        assert ask(other).status == 200  # the connection is open
        loop.call_soon_threadsafe(relay.answers.clear)
        with pytest.MonkeyPatch.context() as patch:
            store_ends_within(patch, 0.5)
            patch.setattr(writers, "_BEGINNING", 0.5)
            late = ask()
        assert (late.final["status"] if streamed else late.status) == ("failed" if streamed else 503)
        loop.call_soon_threadsafe(relay.answers.set)

        def stored() -> list[str]:
            rows = admin.execute("SELECT status FROM responses WHERE conversation_id = %s", [conversation_id])
            return sorted(status for (status,) in rows)

        wait_until(lambda: stored() == ["failed"])
        assert items() == []
        again = ask()
        assert (again.final if streamed else again.json)["status"] == "completed"
        assert len(items()) == 2
        assert stored() == ["completed", "failed"]
