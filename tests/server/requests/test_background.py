"""Responses in the background: queued, then made with or without a listener."""

import time
from typing import Any

import pytest

from openresponses_bridge.protocol.request import RESTART, CreateResponse
from openresponses_server.api.app import create_app
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.background import enqueue
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.settings import Settings
from openresponses_server.store.base import Lease, StoredResponse, StoreError
from openresponses_server.store.logs.base import LogError
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.writers import WAITING
from tests.support.serving import call, respond, response_of, stream, violations, wait_for

SLOW = {"model": "demo-slow", "input": "20 words", "background": True}
VERY_SLOW = {"model": "demo-slow", "input": "4000 words", "background": True}


def test_background_is_answered_at_once_and_ends_by_itself(stored: str) -> None:
    queued = respond(stored, **SLOW).json
    assert (queued["status"], queued["output"], queued["background"]) == ("queued", [], True)
    running = wait_for(stored, queued["id"], "in_progress", "completed")
    assert running["created_at"] == queued["created_at"]
    done = wait_for(stored, queued["id"], "completed")
    assert len(done["output"][0]["content"][0]["text"].split()) == 20


def test_poll_shows_what_there_is_so_far(stored: str) -> None:
    response_id = respond(stored, **VERY_SLOW).json["id"]
    while not (response := response_of(stored, response_id))["output"]:
        pass
    content = response["output"][0]["content"]
    while (later := response_of(stored, response_id))["output"][0]["content"] == content:
        pass
    assert response["status"] == later["status"] == "in_progress"
    text = content[0]["text"] if content else ""
    assert later["output"][0]["content"][0]["text"].startswith(text)
    call(stored, "POST", f"/v1/responses/{response_id}/cancel")


def test_background_streams_live_when_asked(stored: str) -> None:
    sent = stream(stored, **SLOW)
    assert sent.types[:2] == ["response.created", "response.in_progress"]
    assert sent.types[-1] == "response.completed"
    assert response_of(stored, sent.final["id"]) == sent.final


def test_background_failure_is_reported_by_its_response(stored: str) -> None:
    response_id = respond(stored, model="demo-overloaded", background=True).json["id"]
    failed = wait_for(stored, response_id, "failed")
    assert failed["error"]["code"] == "rate_limit_exceeded"
    events = call(stored, "GET", f"/v1/responses/{response_id}?stream=true")
    assert events.types == ["response.created", "response.in_progress", "error", "response.failed"]
    assert violations(events) == []


def test_bad_request_is_refused_before_anything_is_queued(stored: str) -> None:
    assert respond(stored, model="no-such-model", background=True).status == 404
    refused = respond(stored, model="demo", background=True, store=False)
    assert (refused.status, refused.error["param"]) == (400, "background")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"background": True, RESTART: "sometimes"}, "not one of: unseen, always"),
        ({RESTART: "always"}, "is for responses with background: true"),
    ],
)
def test_a_restart_that_can_not_be_kept_is_refused(stored: str, fields: dict[str, Any], says: str) -> None:
    refused = respond(stored, model="demo", input="x", **fields)
    assert (refused.status, refused.error["param"]) == (400, RESTART)
    assert says in refused.error["message"]


def test_a_restart_that_asks_for_nothing_is_taken(stored: str) -> None:
    assert respond(stored, model="demo", input="x", **{RESTART: "unseen"}).status == 200


def test_background_waits_for_its_place(narrow: str) -> None:
    """What was accepted as queued is not refused later."""
    ids = [respond(narrow, **each).json["id"] for each in (VERY_SLOW, SLOW, SLOW)]
    wait_for(narrow, ids[0], "in_progress")
    time.sleep(0.3)  # in which the others would have begun
    assert sorted(response_of(narrow, each)["status"] for each in ids) == ["in_progress", "queued", "queued"]
    call(narrow, "POST", f"/v1/responses/{ids[0]}/cancel")
    assert {wait_for(narrow, each, "completed", "failed")["status"] for each in ids[1:]} == {"completed"}


def test_cancel_ends_a_running_response_and_may_be_repeated(stored: str) -> None:
    response_id = respond(stored, **VERY_SLOW).json["id"]
    wait_for(stored, response_id, "in_progress")
    cancelled = call(stored, "POST", f"/v1/responses/{response_id}/cancel").json
    assert (cancelled["status"], cancelled["incomplete_details"]) == ("incomplete", {"reason": "cancelled"})
    assert call(stored, "POST", f"/v1/responses/{response_id}/cancel").json == cancelled
    assert response_of(stored, response_id) == cancelled
    events = call(stored, "GET", f"/v1/responses/{response_id}?stream=true")
    assert events.types[-1] == "response.incomplete"
    assert violations(events) == []


def test_cancel_of_a_queued_response(narrow: str) -> None:
    first, second = (respond(narrow, **VERY_SLOW).json["id"] for _ in range(2))
    cancelled = call(narrow, "POST", f"/v1/responses/{second}/cancel").json
    assert cancelled["incomplete_details"] == {"reason": "cancelled"}
    assert violations(call(narrow, "GET", f"/v1/responses/{second}?stream=true")) == []
    call(narrow, "POST", f"/v1/responses/{first}/cancel")


@pytest.mark.parametrize("model", ["demo", "demo-incomplete"])
def test_response_that_ended_otherwise_is_not_cancelled(stored: str, model: str) -> None:
    response_id = respond(stored, model=model).json["id"]
    refused = call(stored, "POST", f"/v1/responses/{response_id}/cancel")
    assert (refused.status, refused.error["code"]) == (400, "response_not_cancellable")


def test_deleting_a_running_response_ends_it(stored: str) -> None:
    response_id = respond(stored, **VERY_SLOW).json["id"]
    wait_for(stored, response_id, "in_progress")
    assert call(stored, "DELETE", f"/v1/responses/{response_id}").status == 200
    time.sleep(0.3)
    assert call(stored, "GET", f"/v1/responses/{response_id}").status == 404


@pytest.mark.anyio
@pytest.mark.parametrize("failure", [StoreError("store_unavailable", "out"), LogError()])
async def test_what_is_queued_in_the_store_is_answered_so_though_redis_and_the_claim_fail(
    failure: Exception,
) -> None:
    """Else a client that sends it once more has two: an idle worker finds the first one in the store."""

    class Failing(MemoryStore):
        fails = True

        async def acquire(self, response_id: str, lease: Lease, now: float) -> StoredResponse | None:
            if self.fails:
                raise failure
            return await super().acquire(response_id, lease, now)

    class Unreachable:
        async def put(self, response_id: str, owner: str) -> None:
            raise LogError

    service = create_app(Settings()).state.service
    service.runs.store = store = Failing()
    object.__setattr__(service, "store", store)
    service.runs.queue = Unreachable()
    request = CreateResponse(model="demo", input="Hi", background=True)
    run = RunAssembly(await prepare(Received(request, {}, "req_1"), service), service).run()
    queued = await enqueue(service, run)
    assert queued.status == "queued"
    assert service.gate.waiting.count == 0
    store.fails, now = False, await store.now()
    [record] = await store.claim_waiting(Lease("another", now + 60.0), now + WAITING)
    assert (record.response.id, record.response.status) == (queued.id, "queued")
