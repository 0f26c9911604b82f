"""Decoders of other projects, compared with the corpus."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from openresponses_bridge.corpus import VERSION, Case, Report, case, case_ids, cases, differences
from openresponses_cli.commands.corpus_serving import cases_app
from tests.clients.seen import SEEN
from tests.support.codex_exec import Codex
from tests.support.document_blocks import blocks
from tests.support.serving import serving_app
from tests.support.shared import REPOSITORY

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]


@pytest.mark.parametrize(("title", "code"), blocks("docs/testing.md", "js"))
def test_the_javascript_of_the_guide(tmp_path: Path, title: str, code: str) -> None:
    if shutil.which("node") is None:
        pytest.skip("needs Node.js")
    (tmp_path / "decoder.test.mjs").write_text(code)
    variables = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["node", "--test", "decoder.test.mjs"]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "# fail 0" in done.stdout or "fail 0" in done.stdout


Made = dict[str, dict[str, Any]]
"""Case → the facts that a client reported, or `raised`."""
FAILS = ("failed", "cut")  # the ends of a stream for which a client may raise
TABLE = REPOSITORY / "docs" / "decoders.json"
SPOKEN = ("text", "reasoning", "refusal", "fail", "fail_at_once", "incomplete", "whitespace", "two_messages")
"""Scripts without calls, for clients that would run the calls and send another request."""


@pytest.fixture(scope="module")
def corpus() -> Iterator[str]:
    with serving_app(cases_app(), lifespan="off") as address:
        yield f"{address}/v1"


def of_node(name: str, base: str, node: Path) -> Made:
    shutil.copy(Path(__file__).parent / "js" / "decoders.mjs", node)
    command = ["node", "decoders.mjs", base, name]
    done = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {report["id"]: report for report in map(json.loads, done.stdout.strip().split("\n"))}


def of_openai_python(base: str) -> Made:
    client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
    reports: Made = {}
    for id in case_ids():
        try:
            with client.responses.stream(model=id, input="Hello") as stream:
                response = stream.get_final_response()
            calls = [
                {
                    "call_id": item.call_id,
                    "name": item.name,
                    "arguments": getattr(item, "arguments", None) or item.input,
                }
                for item in response.output
                if item.type in ("function_call", "custom_tool_call") and item.status == "completed"
            ]
            reports[id] = {"status": response.status, "text": response.output_text, "calls": calls}
        except Exception as error:
            reports[id] = {"raised": f"{type(error).__name__}: {error}"}
    return reports


def of_openai_agents(base: str) -> Made:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)

    async def read(id: str) -> dict[str, Any]:
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            model = agents.OpenAIResponsesModel(model=id, openai_client=client)
            agent = agents.Agent(name="reader", model=model)
            streamed = agents.Runner.run_streamed(agent, "Hello", max_turns=1)
            async for _ in streamed.stream_events():
                pass
            return {"text": agents.ItemHelpers.text_message_outputs(streamed.new_items)}

    reports: Made = {}
    for each in cases(SPOKEN, ["openai"]):
        try:
            reports[each.id] = asyncio.run(asyncio.wait_for(read(each.id), 20))
        except Exception as error:
            reports[each.id] = {"raised": f"{type(error).__name__}: {error}"}
    return reports


def of_codex(base: str, node: Path, folder: Path) -> Made:
    codex = Codex(node, base, folder)
    reports: Made = {}
    for each in cases(SPOKEN, ["openai"]):
        if codex.run("Hello", model=each.id) == 0:
            reports[each.id] = {"text": "".join(item["text"] for item in codex.items("agent_message"))}
        else:
            reports[each.id] = {"raised": "the turn failed"}
    return reports


def judged(wire: str, made: Made) -> dict[str, str]:
    """Script or variant → "right", "raises" or the facts that differ, over all its cases on this wire."""
    verdicts: dict[str, set[str]] = {}
    for id, said in made.items():
        each = case(id)
        if each.wire != wire:
            continue
        differing = verdicts.setdefault(_name(each), set())
        if "raised" in said:
            differing |= set() if each.expected.status in FAILS else {"raises"}
            continue
        facts = {name: value for name, value in said.items() if name != "id"}
        if each.expected.status == "cancelled" and facts.get("status") == "incomplete":
            facts["status"] = "cancelled"  # a client without a word for this
        if each.expected.status in FAILS and "status" not in facts:
            differing.add("ends well")
        if facts.get("status") not in (None, "completed", "incomplete", "failed", "cancelled"):
            differing.add("status")
            del facts["status"]
        report = msgspec.convert({"id": id, **facts}, Report, strict=False)
        differing |= {said.split(" ", 1)[0] for said in plainly(differences(each.expected, report))}
    return {name: ", ".join(sorted(differing)) or "right" for name, differing in verdicts.items()}


def plainly(found: list[str]) -> list[str]:
    return [difference if difference.startswith(("status", "text")) else "calls" for difference in found]


def _name(each: Case) -> str:
    if each.variant is None:
        return each.script
    return "cut-NN" if each.variant.startswith("cut-") else each.variant


def versions() -> dict[str, str]:
    installed = {name: metadata.version(name) for name in ("openai", "openai-agents")}
    npm = ("npm:openai", "npm:@ai-sdk/openai", "npm:@ai-sdk/open-responses", "npm:@openai/codex")
    return {f"pypi:{name}": version for name, version in installed.items()} | {
        name: SEEN[name] for name in npm
    }


def test_what_decoders_of_others_make_of_the_corpus(corpus: str, node: Path, tmp_path: Path) -> None:
    """The results are those in docs/decoders.json, from which docs/conformance.md is made; `DECODERS=write`
    writes it."""
    pytest.importorskip("agents")
    decoders = {
        "pypi:openai": ("openai", of_openai_python(corpus)),
        "npm:openai": ("openai", of_node("openai", corpus, node)),
        "npm:@ai-sdk/openai": ("openai", of_node("@ai-sdk/openai", corpus, node)),
        "npm:@ai-sdk/open-responses": ("openresponses", of_node("@ai-sdk/open-responses", corpus, node)),
        "pypi:openai-agents": ("openai", of_openai_agents(corpus)),
        "npm:@openai/codex": ("openai", of_codex(corpus, node, tmp_path)),
    }
    table = {
        "corpus": VERSION,
        "versions": versions(),
        "made": {name: judged(wire, reports) for name, (wire, reports) in decoders.items()},
    }
    if os.environ.get("DECODERS") == "write":
        TABLE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    assert json.loads(TABLE.read_text()) == table
