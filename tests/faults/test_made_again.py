"""A background response whose worker dies before anybody can have seen any output is made again; one whose
output was seen is not, and one that kills its workers ends."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashes import wait_until_settled
from tests.support.services import own_redis, postgres_database
from tests.support.serving import call, respond, violations
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, frame, text
from tests.support.workers import CONFIG, Reader, type_of, working

BEGINNING = ["response.created", "response.in_progress"]
RESTARTED = "openresponses-bridge:restarted"
SILENT = Script([HANG])
RESPONSE = {
    "id": "resp_upstream",
    "object": "response",
    "created_at": 1,
    "status": "in_progress",
    "model": "scripted-2026",
    "output": [],
    "tools": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
}


@contextmanager
def upstream(*scripts: Script, dialect: str = "chat") -> Iterator[tuple[ScriptedUpstream, str]]:
    """An upstream that plays these scripts in turn, then answers with text; and the settings of workers in
    front of it."""
    with ScriptedUpstream({"m": [*scripts, Script(text("Hello", " there"))]}) as scripted:
        yield scripted, f'{CONFIG}\n[[upstreams]]\nurl = "{scripted.url}"\ndialect = "{dialect}"\n'


def wait_for_requests(scripted: ScriptedUpstream, count: int) -> None:
    while len(scripted.received) < count:
        time.sleep(0.02)


def events_of(base: str, response_id: str, final: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a response that has ended as `final`, checked against every rule."""
    sent = call(base, "GET", f"/v1/responses/{response_id}?stream=true")
    assert violations(sent) == []
    assert sent.final == final
    return sent.events


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_s1_response_that_nobody_saw_is_made_again_by_another(tmp_path: Path, kind: str) -> None:
    """A response that is queued behind it is made too, and is not reported as one that had begun."""
    with ExitStack() as stack:
        scripted, config = stack.enter_context(upstream(SILENT, Script([frame(choices=[]), HANG])))
        if kind == "sqlite":
            store, log = f"sqlite:///{tmp_path}/sessions.sqlite3", "memory://"
        else:
            store, log = stack.enter_context(postgres_database()), stack.enter_context(own_redis()).url
        narrow = f"{config}\n[limits]\nconcurrent = 2\n"
        doomed = stack.enter_context(working(tmp_path, store, log, narrow))
        ids = [respond(doomed.base, model="m", background=True).json["id"] for _ in range(3)]
        wait_for_requests(scripted, 2)
        begun = [each for each in ids if status_of(doomed.base, each) == "in_progress"]
        assert len(begun) == 2
        other = stack.enter_context(working(tmp_path, store, log, config))
        followers = [Reader(other.base, "GET", f"/v1/responses/{each}?stream=true") for each in begun]
        doomed.kill()
        ended = wait_until_settled(other.base, ids)
        for response_id in ids:
            final = ended[response_id]
            assert final["status"] == "completed"
            events = events_of(other.base, response_id, final)
            expected = [RESTARTED] if response_id in begun else []
            assert [each["type"] for each in events[:3]][: 2 + len(expected)] == BEGINNING + expected
            assert [each.get("attempt") for each in events if each["type"] == RESTARTED] == [2] * len(
                expected
            )
        for follower in followers:
            follower.join()
            types = [type_of(each) for each in follower.events.values()]
            assert list(follower.events) == list(range(len(types)))
            assert types.count("response.completed") == 1
            assert follower.done
        assert len(scripted.received) == 5


def status_of(base: str, response_id: str) -> str:
    return str(call(base, "GET", f"/v1/responses/{response_id}").json["status"])


def test_s2_events_that_were_sent_are_not_changed_by_the_next_making(tmp_path: Path) -> None:
    """The upstream has sent the data of `response.created` and nothing else; then the worker dies, twice."""
    begun = Script(
        [
            b"data: "
            + json.dumps({"type": "response.created", "sequence_number": 0, "response": RESPONSE}).encode()
            + b"\n\n",
            HANG,
        ]
    )
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    words = [
        {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
        {"type": "response.completed", "sequence_number": 1, "response": {**RESPONSE, "status": "completed"}},
    ]
    whole = Script([b"data: " + json.dumps(each).encode() + b"\n\n" for each in words])
    with upstream(begun, begun, whole, dialect="responses") as (scripted, config):
        with working(tmp_path, store, config=config) as worker:
            reader = Reader(
                worker.base,
                "POST",
                "/v1/responses",
                {"model": "m", "input": "x", "background": True, "stream": True},
            )
            while len(reader.frames) < 2:
                time.sleep(0.02)
            worker.kill()
        response_id = reader.response_id
        with working(tmp_path, store, config=config) as worker:
            wait_for_requests(scripted, 2)
            worker.kill()
        with working(tmp_path, store, config=config) as worker:
            final = wait_until_settled(worker.base, [str(response_id)])[str(response_id)]
            rest = Reader(worker.base, "GET", f"/v1/responses/{response_id}?stream=true&starting_after=1")
            rest.join()
            events = events_of(worker.base, str(response_id), final)
    seen = [json.loads(each.split(b"data: ", 1)[1]) for each in reader.events.values()]
    assert [each["type"] for each in seen] == BEGINNING
    assert events[:2] == seen
    assert [each["type"] for each in events[2:]] == [RESTARTED, RESTARTED, "response.completed"]
    assert list(rest.events) == [2, 3, 4]


@pytest.mark.slow
def test_s1_response_that_kills_its_workers_ends(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    with upstream(SILENT, SILENT, SILENT) as (scripted, config):
        response_id = ""
        for count in (1, 2, 3):
            with working(tmp_path, store, config=config) as worker:
                response_id = response_id or respond(worker.base, model="m", background=True).json["id"]
                wait_for_requests(scripted, count)
                worker.kill()
        with working(tmp_path, store, config=config) as worker:
            final = wait_until_settled(worker.base, [response_id])[response_id]
            events = events_of(worker.base, response_id, final)
        assert final["error"]["code"] == "response_interrupted"
        assert [each.get("attempt") for each in events] == [None, None, 2, 3, None]
        assert len(scripted.received) == 3


@pytest.mark.parametrize("sent", ["words", "an item without words"])
def test_s2_response_of_which_anything_was_sent_is_not_made_again(tmp_path: Path, sent: str) -> None:
    """This holds however much time has passed since the last checkpoint."""
    piece = chunk(role="assistant", content="Half") if sent == "words" else chunk(reasoning_content="Hm")
    rare = CONFIG.replace("checkpoint_interval = 0.2", "checkpoint_interval = 30.0")
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    with upstream(Script([frame(choices=[]), 0.3, piece, HANG])) as (scripted, config):
        config = config.replace(CONFIG, rare)
        with working(tmp_path, store, config=config) as worker:
            body = {"model": "m", "input": "x", "background": True, "stream": True}
            reader = Reader(worker.base, "POST", "/v1/responses", body)
            while len(reader.frames) < 3:
                time.sleep(0.01)
            worker.kill()
        with working(tmp_path, store, config=config) as worker:
            final = wait_until_settled(worker.base, [str(reader.response_id)])[str(reader.response_id)]
            events_of(worker.base, str(reader.response_id), final)
        assert final["error"]["code"] == "response_interrupted"
        assert len(scripted.received) == 1


@pytest.mark.slow  # tests/server/runs/test_withheld_runs.py tests this without workers
@pytest.mark.parametrize("asked", ["by the request", "by the config"])
def test_s1_response_that_is_withheld_is_made_again_whatever_was_made(tmp_path: Path, asked: str) -> None:
    """Its workers are killed in the middle of the text, twice; nobody sees any of the text before its end."""
    store = f"sqlite:///{tmp_path}/sessions.sqlite3"
    half = Script([chunk(role="assistant", content="Half"), chunk(content=" of it"), HANG])
    more = {"openresponses-bridge:restart": "always"} if asked == "by the request" else {}
    with upstream(half, half) as (scripted, config):
        if not more:
            config = 'background_restart = "always"\n' + config
        with working(tmp_path, store, config=config) as worker:
            body = {"model": "m", "input": "x", "background": True, "stream": True, **more}
            reader = Reader(worker.base, "POST", "/v1/responses", body)
            while len(reader.frames) < 2:
                time.sleep(0.02)
            response_id = str(reader.response_id)
            time.sleep(0.5)  # longer than the interval of checkpoints
            polled = call(worker.base, "GET", f"/v1/responses/{response_id}").json
            assert (polled["status"], polled["output"]) == ("in_progress", [])
            worker.kill()
        with working(tmp_path, store, config=config) as worker:
            wait_for_requests(scripted, 2)
            time.sleep(0.5)
            worker.kill()
        with working(tmp_path, store, config=config) as worker:
            rest = Reader(worker.base, "GET", f"/v1/responses/{response_id}?stream=true&starting_after=1")
            final = wait_until_settled(worker.base, [response_id])[response_id]
            rest.join()
            events = events_of(worker.base, response_id, final)
    assert final["status"] == "completed"
    assert [part["text"] for part in final["output"][0]["content"]] == ["Hello there"]
    assert [each["type"] for each in events[:4]] == [*BEGINNING, RESTARTED, RESTARTED]
    assert [type_of(each) for each in reader.events.values()] == BEGINNING
    assert list(rest.events) == list(range(2, len(events)))
