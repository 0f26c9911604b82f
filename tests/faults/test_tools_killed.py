"""`kill -9` while the server itself runs tools: a function, a search, a call of an MCP server. A tool that is
not declared safe to repeat runs once, approvals survive and release one call, every response ends truthfully,
and its stream can be resumed (laws S1, S2, S7)."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashes import check_client, resume_all, wait_until_settled
from tests.support.mcp_http import HttpPeer
from tests.support.serving import call, respond
from tests.support.upstream import DONE, JSON, Received, Script, ScriptedUpstream, chunk, text
from tests.support.upstream import call as tool_call
from tests.support.waiting import wait_until
from tests.support.workers import CONFIG, Reader, Worker, working, working_together

MODULE = """
import asyncio
from pathlib import Path
from openresponses_agent.tools import ToolRegistry
from tests.support.waiting import wait_until

registry = ToolRegistry()
ran, held = (Path(__file__).with_name(name) for name in ("ran", "held"))


@registry.tool
async def pay(n: str) -> str:
    \"\"\"Pays.\"\"\"
    with ran.open("a") as file:
        file.write(n + "\\n")
    while held.exists():
        await asyncio.sleep(0.02)
    return "paid"
"""
TOOL = {"name": "send", "inputSchema": {"type": "object", "properties": {"n": {"type": "string"}}}}
NEVER = {"type": "mcp", "server_label": "mail", "require_approval": "never"}
ALWAYS = {"type": "mcp", "server_label": "mail"}
FUNCTIONS = {"pay": "pay", "send": "mcp__mail__send", "search": "web_search"}
TOOLS: dict[str, list[Any]] = {"pay": [], "send": [NEVER], "search": [{"type": "web_search"}]}
ASKED: dict[str, dict[str, Any]] = {
    "stream": {"stream": True},
    "whole": {},
    "background": {"stream": True, "background": True},
    "again": {"stream": True, "background": True, "openresponses-bridge:restart": "always"},
}


def model(received: Received) -> Script:
    """Call the function that belongs to the model's name, with the question, then end with a text."""
    messages = received.body["messages"]
    if messages[-1]["role"] == "tool":
        return Script(text("Done."))
    argument = "query" if received.model == "search" else "n"
    arguments = json.dumps({argument: messages[-1]["content"]})
    calls = [tool_call(0, "", FUNCTIONS[received.model], "call_1"), tool_call(0, arguments)]
    return Script([*calls, chunk("tool_calls"), DONE])


LONG = 3.0  # seconds that a call takes while it is held; the kill comes before its end


class Tools:
    """The tools that the workers call. While they are held, calls begin, and do not end soon."""

    def __init__(self, folder: Path, upstream: ScriptedUpstream, behind: ScriptedUpstream) -> None:
        upstream.answer = model
        (folder / "tools.py").write_text(MODULE)
        self._folder = folder
        self._peer = HttpPeer(behind)
        self._peer.results["tools/list"] = {"tools": [TOOL]}
        self._peer.results["tools/call"] = {"content": [{"type": "text", "text": "sent"}]}
        self._answers = behind.answer
        behind.answer = self._answer
        self.hold(True)
        self.config = (
            f'{CONFIG}[[upstreams]]\nurl = "{upstream.url}"\n'
            f'[web_search]\nprovider = "searxng"\nurl = "{behind.url}/searxng"\n'
            f'[[functions]]\nmodule = "{folder / "tools.py"}"\nmodels = ["pay"]\n'
            f'[[mcp_servers]]\nname = "mail"\nurl = "{behind.url}/mcp"\n'
        )

    def _answer(self, received: Received) -> Script:
        assert self._answers is not None
        script = self._answers(received)
        if received.body.get("method") != "tools/call" or not self._is_held:
            return script
        return Script([LONG, *script.steps], headers=script.headers)

    def hold(self, held: bool) -> None:
        """Hold the calls, or let them end."""
        self._is_held = held
        file = self._folder / "held"
        file.touch() if held else file.unlink()
        script = Script([LONG if held else 0.0, b'{"results":[]}'], headers=JSON)
        self._peer.upstream.pages["/v1/searxng/search"] = script

    @property
    def ran(self) -> Counter[str]:
        """How often each call has begun, of those that are not declared safe to repeat."""
        paid = self._folder / "ran"
        counts = Counter(paid.read_text().split() if paid.exists() else [])
        counts.update(each.body["params"]["arguments"]["n"] for each in self._peer.asked("tools/call"))
        return counts


@contextmanager
def tools_in(folder: Path) -> Iterator[Tools]:
    with ScriptedUpstream() as upstream, ScriptedUpstream() as behind:
        yield Tools(folder, upstream, behind)


def approval_of(base: str, name: str) -> dict[str, Any]:
    """The request with which a client approves a call for which it was asked."""
    response = respond(base, model="send", input=name, tools=[ALWAYS]).json
    (request,) = (each for each in response["output"] if each["type"].endswith("mcp_approval_request"))
    approval = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    return {"model": "send", "previous_response_id": response["id"], "tools": [ALWAYS], "input": [approval]}


def crash(tools: Tools, doomed: Worker, survivor: Callable[[], str], chosen: random.Random) -> None:
    """One round: all calls begin, the worker dies, and its clients continue at the survivor."""
    base = doomed.base
    in_flight, pending = approval_of(base, "approved"), approval_of(base, "pending")
    bodies = {
        f"{name}-{how}": {"model": name, "input": f"{name}-{how}", "tools": definitions, **fields}
        for name, definitions in TOOLS.items()
        for how, fields in ASKED.items()
    }
    readers = {name: Reader(base, "POST", "/v1/responses", body) for name, body in bodies.items()}
    readers["approved"] = Reader(base, "POST", "/v1/responses", {**in_flight, "stream": True})
    expected = 1 + sum(not name.startswith("search") for name in bodies)
    least = chosen.choice([expected, expected, chosen.randint(1, expected)])
    wait_until(lambda: tools.ran.total() >= least)
    time.sleep(chosen.uniform(0.0, 0.1))
    doomed.kill()
    begun = set(tools.ran)
    tools.hold(False)
    other = survivor()
    retried = call(other, "POST", "/v1/responses", in_flight)  # as SDKs do, and before anything is settled
    for reader in readers.values():
        reader.join()
    sent = {name: each for name, each in readers.items() if "-whole" not in name and each.response_id}
    resumed = resume_all(other, list(sent.values()))
    for each in resumed.values():
        each.join()
    finals = wait_until_settled(other, list(resumed))
    check_approvals(tools, retried.json, other, pending, begun)
    for name, before in sent.items():
        response_id = str(before.response_id)
        whole = Reader(other, "GET", f"/v1/responses/{response_id}?stream=true")
        whole.join()
        final = finals[response_id]
        check_client(before, resumed[response_id], whole, None, final)
        check_truth(name, final, tools.ran[name], began=name in begun)
    assert max(tools.ran.values()) == 1, tools.ran
    if "search-again" in sent:  # it is declared safe to repeat
        assert finals[str(sent["search-again"].response_id)]["status"] == "completed"


def check_approvals(tools: Tools, retried: Any, base: str, pending: Any, begun: set[str]) -> None:
    """The approval that was given before the crash has released one call; the one that was asked for before
    the crash can be given after it."""
    if retried.get("error"):
        assert "has been used" in retried["error"]["message"]
    else:
        (item,) = (each for each in retried["output"] if each["type"].endswith("mcp_call"))
        assert item["status"] == ("failed" if "approved" in begun else "completed"), item
    response = respond(base, **pending).json
    (item,) = (each for each in response["output"] if each["type"].endswith("mcp_call"))
    assert (item["status"], item["output"]) == ("completed", "sent")
    assert tools.ran["pending"] == 1
    # an approval is used once its call is stored as begun, even if the worker died before sending it
    assert tools.ran["approved"] == 1 or (retried.get("error") and "approved" not in begun)


def check_truth(name: str, final: dict[str, Any], runs: int, *, began: bool) -> None:
    """The calls that ran are in the response, each with its output or a note that the output did not
    arrive."""
    calls = [each for each in final["output"] if each["type"].endswith("_call")]
    if final["status"] == "completed":
        assert [each["status"] for each in calls] == ["completed"] or name == "approved", (name, final)
        assert runs == 1 or name.startswith("search")
        return
    assert final["error"]["code"] == "response_interrupted", (name, final)
    assert {each["status"] for each in calls} <= {"incomplete", "completed"}, (name, final)
    if began and not name.startswith("search"):
        assert len(calls) == 1, (name, final)


def one_worker(folder: Path, seed: int) -> None:
    store = f"sqlite:///{folder}/sessions.sqlite3"
    with tools_in(folder) as tools, ExitStack() as stack:
        doomed = stack.enter_context(working(folder, store, config=tools.config))

        def again() -> str:
            return stack.enter_context(working(folder, store, config=tools.config)).base

        crash(tools, doomed, again, random.Random(seed))


def two_workers(folder: Path, seed: int) -> None:
    with tools_in(folder) as tools, working_together(folder, config=tools.config) as (doomed, other):
        crash(tools, doomed, lambda: other.base, random.Random(seed))


@pytest.mark.parametrize("place", [one_worker, two_workers])
def test_s1_s7_killed_during_tools_that_run_once(tmp_path: Path, place: Callable[[Path, int], None]) -> None:
    place(tmp_path, 0)


@pytest.mark.slow
@pytest.mark.parametrize("place", [one_worker, two_workers])
@pytest.mark.parametrize("seed", range(1, 21))
def test_s1_s7_twenty_crashes_during_tools(
    tmp_path: Path, seed: int, place: Callable[[Path, int], None]
) -> None:
    place(tmp_path, seed)
