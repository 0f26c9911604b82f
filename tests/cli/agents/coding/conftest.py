"""A program in an agent's place that writes down what it is started with."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """#!{python}
import json, os, sys, urllib.error, urllib.request
def ask(path, body, headers):
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    try:
        return [200, json.loads(opener.open(request).read())]
    except urllib.error.HTTPError as error:
        return [error.code, None]
if sys.argv[1:] == ["--version"]:
    print("{version}")
    sys.exit()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
settings = dict(word.split("=", 1) for word in sys.argv if "=" in word)
given = os.environ.get
config = json.loads(given("OPENCODE_CONFIG_CONTENT") or "null")
base = json.loads(settings.get("model_providers.openresponses-bridge.base_url", "null"))
if config:
    base = config["provider"]["openresponses-bridge"]["options"]["baseURL"]
base = (base or "").removesuffix("/v1") or given("ANTHROPIC_BASE_URL") or given("GOOGLE_GEMINI_BASE_URL")
key = given("OPENRESPONSES_BRIDGE_KEY") or given("ANTHROPIC_AUTH_TOKEN") or given("GEMINI_API_KEY")
known = {{"authorization": "Bearer " + key, "content-type": "application/json"}}
answers = {{"wrong": ask("/v1/responses", {{}}, dict(known, authorization="Bearer other"))}}
if "model" in settings:
    body = {{"model": json.loads(settings["model"]), "input": "Hello"}}
    answers["right"] = ask("/v1/responses", body, known)
elif config:
    body = {{"model": config["model"].partition("/")[2], "input": "Hello"}}
    answers["right"] = ask("/v1/responses", body, known)
elif given("GEMINI_MODEL"):
    body = {{"contents": [{{"parts": [{{"text": "Hello"}}]}}]}}
    known = {{"x-goog-api-key": key, "content-type": "application/json"}}
    answers["right"] = ask("/v1beta/models/" + given("GEMINI_MODEL") + ":generateContent", body, known)
else:
    messages = [{{"role": "user", "content": "Hello"}}]
    body = {{"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 9, "messages": messages}}
    answers["right"] = ask("/v1/messages", body, known)
catalog = settings.get("model_catalog_json")
seen = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "base": base, "answers": answers,
        "catalog": json.load(open(json.loads(catalog))) if catalog else None,
        "settings": json.load(open(os.path.join(given("GEMINI_CLI_HOME"), ".gemini", "settings.json")))
        if given("GEMINI_MODEL") else config}}
json.dump(seen, open({report!r}, "w"))
sys.exit(5)
"""


@pytest.fixture
def agent_program(tmp_path: Path) -> Callable[[str], str]:
    """Writes such a program, of this version, and returns its path; it exits with 5."""

    def write(version: str = "0.169.0") -> str:
        path = tmp_path / "agent"
        report = str(tmp_path / "seen.json")
        path.write_text(PROGRAM.format(python=sys.executable, version=version, report=report))
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def seen(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """What it has seen, once it has run."""

    def read() -> dict[str, Any]:
        record: dict[str, Any] = json.loads((tmp_path / "seen.json").read_text())
        return record

    return read
