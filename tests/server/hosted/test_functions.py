"""Functions of a module that the server runs, and what becomes of a response whose worker stops in one."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.hosted.functions import ModuleFunctions
from openresponses_server.settings import (
    FunctionSettings,
    HostedLimits,
    Settings,
    SettingsError,
    UpstreamSettings,
)
from openresponses_server.settings.files import hashed
from openresponses_server.store.base import Lease, StoreError
from openresponses_server.store.sql.store import SqlStore
from openresponses_server.store.stores import open_store
from tests.support.crashes import left_by
from tests.support.failing_store import store_ends_within
from tests.support.serving import call, ready, respond, serving, stream, violations, wait_for
from tests.support.upstream import DONE, Received, Script, ScriptedUpstream, chunk, text
from tests.support.upstream import call as tool_call
from tests.support.waiting import wait_until
from tests.support.workers import Reader

MODULE = """
from tests.support.waiting import wait_until
from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool
def add(a: int, b: int) -> int:
    \"\"\"Adds two numbers.\"\"\"
    return a + b


@registry.tool(tags={"read-only"})
async def broken() -> str:
    \"\"\"Breaks.\"\"\"
    raise ValueError("secret of the module")
"""


def calling(name: str, arguments: str) -> Script:
    return Script([tool_call(0, "", name, "call_1"), tool_call(0, arguments), chunk("tool_calls"), DONE])


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "tools.py"
    path.write_text(MODULE)
    return str(path)


@pytest.fixture
def functions(upstream: ScriptedUpstream, module: str) -> Iterator[str]:
    at = UpstreamSettings(url=upstream.url, name="scripted")
    with serving(Settings(upstreams=[at], functions=[FunctionSettings(module=module)])) as base:
        yield base


@pytest.mark.parametrize("arguments", ['{"a":"1","b":2}', "{'a': 1, 'b': 2,}"])
def test_a_functions_input_is_read_as_its_schema_wants_it(
    functions: str, upstream: ScriptedUpstream, arguments: str
) -> None:
    upstream.scripts["m"] = [calling("add", arguments), Script(text("Three."))]
    item, _ = stream(functions, model="m").final["output"]
    assert (item["output"], item["status"]) == ("3", "completed")


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_a_function_is_run_between_two_answers(functions: str, upstream: ScriptedUpstream, wire: str) -> None:
    upstream.scripts["m"] = [calling("add", '{"a":1,"b":2}'), Script(text("Three."))]
    final = stream(functions, {"openresponses-wire": wire}, model="m").final
    item, message = final["output"]
    assert item["type"].removeprefix("openai:") == "mcp_call"
    facts = {name: item[name] for name in ("server_label", "name", "arguments", "output", "status")}
    assert facts == {
        "server_label": "functions",
        "name": "add",
        "arguments": '{"a":1,"b":2}',
        "output": "3",
        "status": "completed",
    }
    assert message["content"][0]["text"] == "Three."
    # the next turn knows of it
    upstream.scripts["m"] = Script(text("Yes."))
    stream(functions, model="m", previous_response_id=final["id"])
    assert [each["role"] for each in upstream.received[-1].body["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize("arguments", ['{"a":1}', '{"a":', "[]"])
def test_wrong_arguments_are_told_to_the_model(
    functions: str, upstream: ScriptedUpstream, arguments: str
) -> None:
    upstream.scripts["m"] = [calling("add", arguments), Script(text("Well."))]
    final = stream(functions, model="m").final
    assert [item["status"] for item in final["output"]] == ["failed", "completed"]


def test_a_module_that_cant_be_used_is_named(tmp_path: Path) -> None:
    for code in ("1/0", "x = 1"):
        (tmp_path / "wrong.py").write_text(code)
        with pytest.raises(SettingsError, match=r"wrong\.py"):
            ModuleFunctions(FunctionSettings(module=str(tmp_path / "wrong.py")))


def test_other_models_are_not_offered_them(upstream: ScriptedUpstream, module: str) -> None:
    at = UpstreamSettings(url=upstream.url, name="scripted")
    function = FunctionSettings(module=module, models=["other-*"])
    upstream.scripts["m"] = Script(text("Hm."))
    with serving(Settings(upstreams=[at], functions=[function])) as base:
        assert respond(base, model="m").status == 200
    assert "tools" not in upstream.received[-1].body


def test_it_needs_no_tool_of_the_request_and_says_nothing_of_itself(
    functions: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = [calling("broken", ""), Script(text("Well."))]
    reply: Any = stream(functions, model="m")
    assert reply.final["tools"] == []
    assert reply.final["output"][0]["error"]
    assert json.dumps(reply.final).count("Traceback") == 0


HOSTILE = """
import argparse, asyncio, os, threading, time
from pathlib import Path
from openresponses_agent.tools import ToolRegistry
from openresponses_agent.tools.errors import ToolInvocationError

registry = ToolRegistry()
folder = Path(__file__).parent
raised = {
    "exit": SystemExit(0),
    "interrupt": KeyboardInterrupt(),
    "cancelled": asyncio.CancelledError(),
    "group": BaseExceptionGroup("", [KeyboardInterrupt()]),
    "stop": StopIteration(),
    "closed": GeneratorExit(),
    "value": ValueError("postgres://admin:secret-of-the-module@db"),
}


@registry.tool(tags={"read-only"})
def raises(kind: str) -> str:
    \"\"\"Raises.\"\"\"
    raise raised[kind]


@registry.tool(tags={"read-only"})
async def raises_async(kind: str) -> str:
    \"\"\"Raises.\"\"\"
    await asyncio.sleep(0)
    raise raised[kind]


async def asked(given):
    raise raised[given["kind"]]


@registry.tool(tags={"read-only"}, confirm=asked)
def raises_before(kind: str) -> str:
    \"\"\"Raises before it is called.\"\"\"
    return "never"


@registry.tool(tags={"read-only"})
def parse(text: str) -> str:
    \"\"\"Parses.\"\"\"
    return str(argparse.ArgumentParser().parse_args(text.split()))


@registry.tool(tags={"read-only"})
def says(what: str) -> str:
    \"\"\"Says what went wrong.\"\"\"
    raise ToolInvocationError(what) from ValueError("secret-of-the-module")


@registry.tool(tags={"read-only"})
def much(times: int, failed: bool = False) -> str:
    \"\"\"Says much.\"\"\"
    if failed:
        raise ToolInvocationError("x" * times)
    return "x" * times


@registry.tool(tags={"read-only"})
def waits() -> str:
    \"\"\"Waits until the test ends.\"\"\"
    (folder / f"began-{threading.get_ident()}").touch()
    while not (folder / "over").exists():
        time.sleep(0.01)
    return "over"


@registry.tool(tags={"read-only"})
async def stays() -> str:
    \"\"\"Ignores that it is cancelled.\"\"\"
    while not (folder / "over").exists():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            pass
    return "over"


@registry.tool(tags={"read-only"})
def quick() -> str:
    \"\"\"Answers at once.\"\"\"
    return "quick"
"""


@contextmanager
def hostile(upstream: ScriptedUpstream, folder: Path, **more: Any) -> Iterator[str]:
    (folder / "tools.py").write_text(HOSTILE)
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        functions=[FunctionSettings(module=str(folder / "tools.py"))],
        **more,
    )
    try:
        with serving(settings) as base:
            yield base
    finally:
        (folder / "over").touch()


KINDS = ["exit", "interrupt", "cancelled", "group", "stop", "closed", "value"]


def test_s8_what_a_function_raises_is_its_own_failure(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """The server goes on, the response too, and neither the model nor the client reads what was raised."""
    with hostile(upstream, tmp_path) as base:
        for name in ("raises", "raises_async", "raises_before"):
            for kind in KINDS:
                upstream.scripts["m"] = [calling(name, json.dumps({"kind": kind})), Script(text("Well."))]
                final = stream(base, model="m").final
                item, message = final["output"]
                assert (final["status"], message["content"][0]["text"]) == ("completed", "Well."), kind
                assert (item["status"], item["name"]) == ("failed", name)
                tool_message = upstream.received[-1].body["messages"][-1]
                assert tool_message["role"] == "tool"
                assert "The function failed." in tool_message["content"], kind
                assert "The function failed." in item["error"]
                assert "secret-of-the-module" not in json.dumps(final) + json.dumps(tool_message)
        upstream.scripts["m"] = [calling("parse", '{"text":"--no-such-flag"}'), Script(text("Well."))]
        assert stream(base, model="m").final["output"][1]["content"][0]["text"] == "Well."


def test_what_a_function_has_to_say_to_the_model_is_said(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with hostile(upstream, tmp_path) as base:
        upstream.scripts["m"] = [calling("says", '{"what":"Ask for a city."}'), Script(text("Well."))]
        final = stream(base, model="m").final
    assert "Ask for a city." in final["output"][0]["error"]
    assert "secret-of-the-module" not in json.dumps(final)


@pytest.mark.parametrize("failed", [False, True])
def test_s8_a_result_is_cut_for_the_model_and_the_client(
    upstream: ScriptedUpstream, tmp_path: Path, failed: bool
) -> None:
    with hostile(upstream, tmp_path, tools=HostedLimits(result_bytes=1000)) as base:
        arguments = json.dumps({"times": 10_000_000, "failed": failed})
        upstream.scripts["m"] = [calling("much", arguments), Script(text("Well."))]
        reply = stream(base, model="m")
        item = reply.final["output"][0]
        assert len(item["error" if failed else "output"]) <= 1000 + len("Error: Tool failed - ")
        assert len(reply.body) < 100_000
        assert len(upstream.received[-1].body["messages"][-1]["content"]) <= 1000


def test_s8_functions_that_wait_hold_up_no_other_key(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """One key has ten calls that do not end."""
    keys = [hashed("key-of-me"), hashed("key-of-you")]
    longest = HostedLimits(seconds=3600.0)
    with ThreadPoolExecutor(1) as apart, hostile(upstream, tmp_path, api_keys=keys, tools=longest) as base:
        mine, yours = ({"authorization": f"Bearer key-of-{who}"} for who in ("me", "you"))
        calls = [tool_call(index, "{}", "waits", f"call_{index}") for index in range(10)]
        upstream.scripts["mine"] = [Script([*calls, chunk("tool_calls"), DONE]), Script(text("Well."))]
        future = apart.submit(stream, base, mine, model="mine")
        wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 4)
        upstream.scripts["m"] = [calling("quick", "{}"), Script(text("Well."))]
        try:
            assert stream(base, yours, model="m").final["output"][0]["output"] == "quick"
            assert len(list(tmp_path.glob("began-*"))) == 4, "more of one key wait for their turn"
        finally:
            (tmp_path / "over").touch()
        outputs = [item.get("output") for item in future.result().final["output"][:10]]
        assert outputs == ["over"] * 10


def test_s8_a_function_that_ignores_its_end_is_left_behind(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    with hostile(upstream, tmp_path, tools=HostedLimits(seconds=0.2)) as base:
        upstream.scripts["m"] = [calling("stays", "{}"), Script(text("Well."))]
        final = stream(base, model="m").final
        assert [item["status"] for item in final["output"]] == ["failed", "completed"]
        (tmp_path / "over").touch()


@pytest.mark.parametrize(
    "code", ["raise SystemExit(0)", "import argparse; argparse.ArgumentParser().parse_args(['-x'])"]
)
def test_a_module_that_exits_when_it_is_imported_is_named(tmp_path: Path, code: str) -> None:
    (tmp_path / "exits.py").write_text(code)
    with pytest.raises(SettingsError, match=r"exits\.py"):
        ModuleFunctions(FunctionSettings(module=str(tmp_path / "exits.py")))


COUNTING = """
import asyncio
from pathlib import Path
from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()
ran = Path(__file__).with_name("ran")


@registry.tool
async def pay() -> str:
    \"\"\"Pays.\"\"\"
    with ran.open("a") as file:
        file.write("x")
    await asyncio.sleep(60)
    return "paid"


@registry.tool(tags={"read-only"})
def look() -> str:
    \"\"\"Looks.\"\"\"
    return "seen"
"""


@pytest.mark.parametrize("restart", ["unseen", "always"])
def test_s1_a_function_is_not_run_again_when_its_worker_was_killed(
    upstream: ScriptedUpstream, tmp_path: Path, restart: Any
) -> None:
    """Also of a response that is made again whatever was made: its output is shown from then on."""
    (tmp_path / "tools.py").write_text(COUNTING)
    ran = tmp_path / "ran"
    upstream.scripts["m"] = [calling("pay", "{}"), Script(text("Never."))]

    def settings(database: Path) -> Settings:
        return Settings(
            upstreams=[UpstreamSettings(url=upstream.url)],
            functions=[FunctionSettings(module=str(tmp_path / "tools.py"))],
            store=f"sqlite:///{database}",
            checkpoint_interval=0.05,
            lease=1.0,
            background_restart=restart,
        )

    database = tmp_path / "sessions.sqlite3"
    with serving(settings(database)) as base:
        response_id = respond(base, model="m", background=True).json["id"]
        wait_until(ran.exists)
        database = left_by(base, response_id, database, 1)
    with serving(settings(database)) as base:
        final = wait_for(base, response_id, "failed")
        assert [item["status"] for item in final["output"]] == ["incomplete"]
        assert final["error"]["code"] == "response_interrupted"
        again = call(base, "GET", f"/v1/responses/{response_id}?stream=true")
        assert violations(again) == []
    assert ran.read_text() == "x"
    assert len(upstream.received) == 1


def paying(upstream: ScriptedUpstream, folder: Path, **more: Any) -> Settings:
    """A server with the function `pay`, whose checkpoints are rare."""
    (folder / "tools.py").write_text(COUNTING)
    upstream.scripts["m"] = [calling("pay", "{}"), Script(text("Never."))]
    return Settings(
        upstreams=[UpstreamSettings(url=upstream.url)],
        functions=[FunctionSettings(module=str(folder / "tools.py"))],
        store=f"sqlite:///{folder / 'sessions.sqlite3'}",
        checkpoint_interval=30.0,
        lease=60.0,
        **more,
    )


@pytest.mark.parametrize("asked", [{"stream": True}, {}, {"background": True}])
def test_s1_what_may_not_run_twice_is_stored_before_it_runs(
    upstream: ScriptedUpstream, tmp_path: Path, asked: dict[str, Any]
) -> None:
    """However the response is read, and however long ago the last checkpoint was."""
    with serving(paying(upstream, tmp_path)) as base:
        Reader(base, "POST", "/v1/responses", {"model": "m", "input": "x", **asked})
        wait_until((tmp_path / "ran").exists)
        with closing(sqlite3.connect(tmp_path / "sessions.sqlite3")) as store:
            ((response_id, stored),) = store.execute(
                "SELECT id, response FROM responses WHERE id LIKE 'resp%'"
            ).fetchall()
        (item,) = json.loads(stored)["output"]
        assert (item["name"], item["status"]) == ("pay", "in_progress")
        assert call(base, "POST", f"/v1/responses/{response_id}/cancel").status == 200


@pytest.mark.parametrize("asked", [{"stream": True}, {"background": True}])
def test_s9_a_worker_that_has_lost_its_run_calls_nothing(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    """It was frozen for longer than its lease while the model answered, and does not know of it."""
    store_ends_within(monkeypatch, 0.1)  # the worker that has it now never settles it
    settings = paying(upstream, tmp_path)

    def answered(received: Received) -> Script:
        async def take() -> bool:
            store = open_store(settings.store)
            taken = await store.claim_orphans(Lease("another", 4e9), 3e9)
            await store.close()
            return bool(taken)

        with ThreadPoolExecutor() as threads:
            taken = threads.submit(asyncio.run, take()).result()
        return calling("pay" if taken else "look", "{}")  # a stream is stored with its first event

    upstream.answer = answered
    with serving(settings) as base:
        reader = Reader(base, "POST", "/v1/responses", {"model": "m", "input": "x", **asked})
        reader.join()
        wait_until(lambda: ready(base).json["running"] == 0)
    assert not (tmp_path / "ran").exists()
    if "stream" in asked:
        assert b"response_lost" in reader.data


@pytest.mark.parametrize("asked", [{"stream": True}, {}])
def test_s1_what_may_not_run_twice_does_not_run_when_it_can_not_be_stored(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise StoreError(StoreError.UNAVAILABLE, "The session store can't be reached.")

    monkeypatch.setattr(SqlStore, "checkpoint", fail)
    if not asked:  # its beginning is stored with the item
        monkeypatch.setattr(SqlStore, "put", fail)
    with serving(paying(upstream, tmp_path)) as base:
        reply = respond(base, model="m", **asked)
        assert b"store_unavailable" in reply.body
    assert not (tmp_path / "ran").exists()
    assert len(upstream.received) == 1
