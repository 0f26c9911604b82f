"""Codex's process when it lies, dies, goes silent or stays, and clients that leave or come in crowds."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.http.flow import BodyReader, Discard
from openresponses_server.settings import CodexSettings, SettingsError, load_settings
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.codex.pool import Processes
from openresponses_server.upstreams.codex.process import CodexProcess
from openresponses_server.upstreams.codex.upstream import CodexUpstream
from openresponses_server.upstreams.routing.models import build_router
from tests.support.codex_upstream import codex, is_alive, settings_of, text_of
from tests.support.waiting import until


def upstream_of(folder: Path, **more: Any) -> CodexUpstream:
    (settings,) = settings_of(folder, folder / "log.jsonl", **more).upstreams
    assert isinstance(settings.codex, CodexSettings)
    assert settings.timeouts is not None
    return CodexUpstream("codex", settings.codex, settings.timeouts)


def asking(words: str, owner: str = "") -> UpstreamRequest:
    part = {"type": "text", "text": words, "text_elements": []}
    fields = dict.fromkeys(("model", "instructions", "effort", "summary", "output_schema"))
    body = {**fields, "history": [], "input": [part], "approvals": []}
    return UpstreamRequest("", json.dumps(body).encode(), "req_1", owner=owner)


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


async def until_sent(folder: Path, method: str) -> None:
    while not any(line.get("method") == method for line in log_of(folder)):
        await asyncio.sleep(0.01)


class Stopping(CodexProcess):
    """A process that takes until `may_stop` to be stopped."""

    def __init__(self, may_stop: asyncio.Event) -> None:
        super().__init__("codex", CodexSettings(), "/", str)
        self._may_stop = may_stop
        self.is_stopping = self.is_stopped = False

    async def stop(self) -> None:
        self.is_stopping = True
        await self._may_stop.wait()
        self.is_stopped = True


async def test_whoever_leaves_does_not_keep_others_processes_from_being_stopped() -> None:
    processes = Processes("codex", CodexSettings(), str, lambda _process: None)
    may_stop = asyncio.Event()
    ended = [Stopping(may_stop) for _ in range(2)]
    for each in ended:
        each.failure = UpstreamError(502, "it has ended")
    processes._running = [*ended, Stopping(may_stop)]
    task = asyncio.create_task(processes.least_busy())
    await until(lambda: ended[0].is_stopping)
    task.cancel()
    await asyncio.wait((task,))
    may_stop.set()
    await processes.close()
    assert all(each.is_stopped for each in ended)


# ── starting ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        ({"path": "no-such-program"}, 503, "upstream_unreachable"),
        ({"fault": "exit"}, 503, "upstream_unreachable"),
        ({"fault": "mute", "start_seconds": 0.3}, 503, "upstream_unreachable"),
    ],
)
def test_one_that_can_not_be_started_is_a_clear_error(
    tmp_path: Path, more: dict[str, Any], status: int, code: str
) -> None:
    with codex(tmp_path, **more) as served:
        refused = served.ask("say Hi")
        assert (refused["http"], refused["error"]["code"]) == (status, code)
        again = served.ask("say Hi")
        assert (again["http"], again["headers"]["retry-after"]) == (503, "1"), (
            "it is not started at once again"
        )
        assert len(served.pids) <= 1


@pytest.mark.parametrize(
    ("setting", "value", "at"),
    [
        ("url", "http://127.0.0.1:1", "url"),
        ("api_key_env", "PATH", "api_key_env"),
        ("headers", {"a": "b"}, "headers"),
        ("codex", {"cwd": "no/such/folder"}, "codex.cwd"),
    ],
)
def test_settings_that_make_no_sense_name_their_field(setting: str, value: Any, at: str) -> None:
    with pytest.raises(SettingsError) as raised:
        build_router(load_settings(upstreams=[{"profile": "codex", setting: value}]), Sealer())
    assert raised.value.at == f"$.upstreams[0].{at}"


# ── lies ───────────────────────────────────────────────────────────────────────────────────────────
def test_lines_that_are_no_messages_and_messages_of_others_are_left_out(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        response = served.ask("lie")
        assert (response["status"], text_of(response)) == ("completed", "Truth.")
        assert not [item for item in response["output"] if item["type"] != "message"]


def test_a_line_without_end_is_refused_and_ends_the_process(tmp_path: Path) -> None:
    with codex(tmp_path, line_bytes=100_000) as served:
        refused = served.ask("endless")
        assert (refused["http"], refused["error"]["code"]) == (502, "upstream_invalid_response")
        assert text_of(served.ask("say Hi")) == "Hi"
        assert len(served.pids) == 2
        assert not is_alive(served.pids[0])


def test_a_refused_turn_says_why_without_secrets(tmp_path: Path) -> None:
    with codex(tmp_path, secret="sk-secret-of-this-test") as served:
        refused = served.ask("refuse")
        assert refused["http"] == 502
        assert "no such model" in refused["error"]["message"]
        assert text_of(served.ask("say Hi")) == "Hi"
        assert len(served.pids) == 1


def test_a_failed_turn_keeps_its_meaning(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        failed = served.ask("fail")
        assert (failed["http"], failed["error"]["code"]) == (503, "server_is_overloaded")


@pytest.mark.parametrize("words", ["mute", "wait"])
def test_one_that_goes_silent_ends_as_a_timeout_and_is_interrupted(tmp_path: Path, words: str) -> None:
    with codex(tmp_path, idle=0.3) as served:
        response = served.ask(words)
        assert response["error"]["code"] == "upstream_timeout"
        while not served.sent("turn/interrupt"):
            served.ask("say Hi")
        assert len(served.pids) == 1


def test_more_than_a_client_takes_is_not_kept(tmp_path: Path) -> None:
    async def flood() -> None:
        upstream = upstream_of(tmp_path, turn_bytes=100_000)
        try:
            async with upstream.open(asking("flood 1000")) as reply:
                reply.start(Discard())
                reply.pause()
                await until_sent(tmp_path, "flooded")
                with pytest.raises(UpstreamError, match="did not read"):
                    await BodyReader(reply).collect(1 << 30)
        finally:
            await upstream.close()

    asyncio.run(flood())


# ── its end ────────────────────────────────────────────────────────────────────────────────────────
def test_one_that_dies_in_a_turn_fails_the_turn_and_the_next_request_has_another(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        before = served.ask("say Before")
        failed = served.ask("die")
        assert (failed["status"], failed["error"]["code"]) == ("failed", "upstream_disconnected")
        assert text_of(failed) == "Wai", "with what had come"
        assert text_of(served.ask("say Hi")) == "Hi"
        assert "Before" in text_of(served.ask("history", previous_response_id=before["id"]))
        assert len(served.pids) == 2


def test_one_that_is_killed_between_two_turns_is_nobody_s_loss(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        first = served.ask("say Before")
        os.kill(served.pids[0], signal.SIGKILL)
        while is_alive(served.pids[0]):
            time.sleep(0.001)
        second = served.ask("history", previous_response_id=first["id"])
        assert (second["status"], "Before" in text_of(second)) == ("completed", True)


def test_a_turn_that_may_have_begun_is_not_begun_again(tmp_path: Path) -> None:
    """It dies while it is asked for a turn: what it ran by then is not run by another process."""
    with codex(tmp_path) as served:
        first = served.ask("say Before")
        died = served.ask("vanish", previous_response_id=first["id"])
        assert (died["http"], died["error"]["code"]) == (502, "upstream_disconnected")
        assert died["headers"]["x-should-retry"] == "false"
        assert [turn["input"][-1]["text"] for turn in served.sent("turn/start")] == ["say Before", "vanish"]


def test_s8_a_line_that_is_too_long_fails_its_turn_and_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        upstream = upstream_of(tmp_path, line_bytes=100_000, processes=1)
        try:
            async with upstream.open(asking("wait", "you")) as waiting:
                reader = BodyReader(waiting)
                while b"Wait" not in await reader.read():
                    pass
                for _ in range(2):
                    async with upstream.open(asking("long", "me")) as reply:
                        with pytest.raises(UpstreamError) as raised:
                            await BodyReader(reply).collect(1 << 30)
                    assert "a line of more than 100000 bytes" in raised.value.cause
                async with upstream.open(asking("say Hi", "me")) as reply:
                    assert await BodyReader(reply).read()
                reading = asyncio.create_task(reader.read())
                await asyncio.sleep(0)
                assert not reading.done(), "the other turn goes on"
                reading.cancel()
            assert len([line for line in log_of(tmp_path) if "argv" in line]) == 1
        finally:
            await upstream.close()

    asyncio.run(run())


def test_one_that_dies_again_and_again_is_started_less_often(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        codes = [served.ask("die")["error"]["code"] for _ in range(4)]
        assert codes == ["upstream_disconnected"] * 2 + ["upstream_unreachable"] * 2
        assert len(served.pids) == 2


def test_what_it_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        child = int(text_of(served.ask("spawn")))
        assert is_alive(child)
    assert not is_alive(child)


def test_a_killed_server_leaves_no_process(tmp_path: Path) -> None:
    folder = json.dumps(str(tmp_path))
    program = (
        "import sys, time; from pathlib import Path; from tests.support.codex_upstream import Codex\n"
        f"served = Codex(Path({folder}), fault='stays'); served.ask('say Hi'); print('ready', flush=True)\n"
        "time.sleep(30)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        (pid,) = (line["pid"] for line in log_of(tmp_path) if "argv" in line)
        assert is_alive(pid)
        server.kill()
    while is_alive(pid):
        time.sleep(0.01)


def test_one_that_does_not_end_by_itself_is_ended_by_force(tmp_path: Path) -> None:
    with codex(tmp_path, fault="stays", stop_seconds=0.2) as served:
        served.ask("say Hi")


# ── clients ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("words", ["wait", "mute"])
def test_a_client_that_leaves_interrupts_the_turn(tmp_path: Path, words: str) -> None:
    async def leave() -> None:
        upstream = upstream_of(tmp_path)
        try:
            async with upstream.open(asking(words)) as reply:
                reader = BodyReader(reply)
                if words == "wait":
                    # what has come by then, in one read or in several
                    while b"Wait" not in await reader.read():
                        pass
            await until_sent(tmp_path, "turn/interrupt")
            await until_sent(tmp_path, "thread/unsubscribe")
        finally:
            await upstream.close()

    asyncio.run(leave())


def test_a_cancelled_response_interrupts_its_turn(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        queued = served.ask("wait", background=True)

        async def begun() -> None:
            while not served.sent("turn/start"):
                await asyncio.sleep(0.01)

        served.app.run(begun())
        reply = served.app.call("POST", f"/v1/responses/{queued['id']}/cancel")
        assert reply.status == 200
        while not served.sent("turn/interrupt"):
            served.ask("say Hi")
        assert len(served.pids) == 1


def test_one_that_is_not_interrupted_gets_no_new_threads(tmp_path: Path) -> None:
    async def leave() -> None:
        upstream = upstream_of(tmp_path, stop_seconds=0.1)
        try:
            async with upstream.open(asking("wait deaf")) as reply:
                reader = BodyReader(reply)
                await reader.read()
            await until_sent(tmp_path, "turn/interrupt")
            await asyncio.sleep(0.2)
            async with upstream.open(asking("say Hi")) as reply:
                reader = BodyReader(reply)
                assert await reader.read()
            pids = [line["pid"] for line in log_of(tmp_path) if "argv" in line]
            assert len(pids) == 2
        finally:
            await upstream.close()

    asyncio.run(leave())


def test_a_crowd_waits_in_a_bounded_queue(tmp_path: Path) -> None:
    async def crowd() -> list[str]:
        upstream = upstream_of(tmp_path, turns=2, turns_per_key=1, queue=2, queue_seconds=2.0)

        async def ask(words: str, owner: str) -> str:
            try:
                async with upstream.open(asking(words, owner)) as reply:
                    reader = BodyReader(reply)
                    read = b""
                    while b"turn/completed" not in read:
                        read += await reader.read()
                    return "done"
            except UpstreamError as error:
                return f"{error.http_status} {error.code} {error.headers['retry-after']}"

        try:
            assert await ask("say", "d") == "done"  # nothing waits for the process to start
            requests = [("wait", "a"), ("say", "a"), ("say", "a"), ("say", "b"), ("say", "b"), ("say", "c")]
            tasks = []
            for words, owner in requests:
                tasks.append(asyncio.create_task(ask(words, owner)))
                await asyncio.sleep(0)
            outcomes = await asyncio.gather(*tasks[1:])
            tasks[0].cancel()
            await asyncio.gather(tasks[0], return_exceptions=True)
            return outcomes
        finally:
            await upstream.close()

    assert asyncio.run(crowd()) == [
        "503 service_unavailable 1",  # waited too long for the turn of its own key
        "429 rate_limit_exceeded 1",  # has its share of the queue
        "done",
        "done",
        "503 service_unavailable 1",  # the queue is full
    ]


def test_what_it_writes_to_its_errors_is_logged_without_secrets(tmp_path: Path) -> None:
    with codex(tmp_path, secret="sk-secret-of-codex") as served, structlog.testing.capture_logs() as logs:
        served.ask("say Hi")
    lines = [entry["line"] for entry in logs if entry["event"] == "codex.stderr"]
    assert lines == ["the scripted app-server says hello, key=[key]"]


def test_a_kind_of_notification_that_nobody_knows_is_logged_once(tmp_path: Path) -> None:
    with codex(tmp_path) as served, structlog.testing.capture_logs() as logs:
        for _ in range(2):
            assert text_of(served.ask("newer Hi")) == "Hi"
        assert len(served.pids) == 1
    kinds = [entry["method"] for entry in logs if entry["event"] == "codex.unknown_notification"]
    assert kinds == ["turn/invented", "thread/invented", "codex/event/invented"]


def test_no_process_runs_before_the_first_request(tmp_path: Path) -> None:
    with codex(tmp_path) as served:
        assert served.app.call("GET", "/healthz").status == 200
        assert not served.log
