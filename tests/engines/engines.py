"""The engines that are tried: how each is started, what it speaks, and what it can't do by itself."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

import yaml

from openresponses_server.settings import Settings, Timeouts, UpstreamSettings
from tests.engines import installing
from tests.engines.installing import NotInstalled
from tests.engines.scripted import answer
from tests.support.processes import free_port
from tests.support.serving import call, serving
from tests.support.upstream import ScriptedUpstream

_STARTS: Final = 180.0  # seconds
CHAT, RESPONSES, MESSAGES = "chat", "responses", "anthropic"


@dataclass(frozen=True)
class Running:
    """An engine that answers at `url`; its `model` is the one to ask for."""

    url: str
    model: str
    version: str
    is_idle: Callable[[], bool] | None = None
    """Whether it works on nothing, where it can be asked."""
    key: str | None = None


@dataclass(frozen=True)
class Engine:
    """`start` raises NotInstalled. `limits` are cases, by the dialect or `*`, in which the engine itself does
    something else than it was asked: what we send is right and what comes is passed on."""

    name: str
    dialects: tuple[str, ...]
    start: Callable[[], AbstractContextManager[Running]] = field(repr=False)
    profile: str | None = None
    limits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    foreign: bool = True
    """Whether others made it."""

    def limit(self, dialect: str, case: str) -> str:
        """What keeps the engine from this, or nothing."""
        return self.limits.get(dialect, {}).get(case) or self.limits.get("*", {}).get(case, "")


@contextmanager
def bridge(engine: Engine, running: Running, dialect: str, record: str | None = None) -> Iterator[str]:
    """The address of a server of ours in front of it; `record` is a folder for what is sent and received."""
    upstream = UpstreamSettings(
        url=running.url,
        name="engine",
        dialect=dialect,
        profile=engine.profile,
        model=running.model,
        api_key=running.key,
    )
    settings = Settings(store="memory://", upstreams=[upstream], timeouts=Timeouts(idle=60), record=record)
    with serving(settings) as base:
        yield base


@contextmanager
def llama_server(model: str = installing.SCRIPTED) -> Iterator[Running]:
    """llama.cpp's server with four slots."""
    program, port = installing.llama_server(), free_port()
    command = [program, "-m", installing.weights(model), "--jinja", "--alias", model]
    command += ["-c", "16384", "-np", "4"]
    command += ["--chat-template-file", installing.template(), "-t", "1", "--slots"]
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = next(line for line in (output.stderr + output.stdout).splitlines() if "version" in line)
    base = f"http://127.0.0.1:{port}"
    with _process([*command, "--host", "127.0.0.1", "--port", port], f"{base}/health"):
        yield Running(f"{base}/v1", model, version.removeprefix("version: "), lambda: _slots_are_idle(base))


def _slots_are_idle(base: str) -> bool:
    return not any(slot["is_processing"] for slot in call(base, "GET", "/slots").json)


@contextmanager
def transformers_serve() -> Iterator[Running]:
    """transformers' server on the processor."""
    environment, model, port = installing.transformers(), installing.transformers_model(), free_port()
    command = [environment / "bin" / "transformers", "serve", "--device", "cpu", model]
    variables = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    base = f"http://127.0.0.1:{port}"
    with _process([*command, "--host", "127.0.0.1", "--port", port], f"{base}/health", variables):
        yield Running(f"{base}/v1", str(model), f"{installing.TRANSFORMERS}, torch {installing.TORCH}")


@contextmanager
def litellm() -> Iterator[Running]:
    """LiteLLM's proxy in front of a scripted Chat upstream of ours."""
    environment, port = installing.litellm(), free_port()
    with ScriptedUpstream() as behind:
        behind.answer = answer
        parameters = {"model": "hosted_vllm/scripted", "api_base": behind.url, "api_key": "none"}
        parameters["use_chat_completions_api"] = True
        config = {"model_list": [{"model_name": "scripted", "litellm_params": parameters}]}
        file = environment / f"config-{port}.yaml"
        file.write_text(yaml.safe_dump(config))
        command = [environment / "bin" / "litellm", "--config", file, "--host", "127.0.0.1", "--port", port]
        key = secrets.token_hex(16)
        variables = {"LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        base = f"http://127.0.0.1:{port}"
        try:
            with _process(command, f"{base}/health/liveliness", variables):
                yield Running(f"{base}/v1", "scripted", installing.LITELLM, lambda: _all_left(behind), key)
        finally:
            file.unlink()


def _all_left(behind: ScriptedUpstream) -> bool:
    return behind.received[-1].gone_at is not None


@contextmanager
def scripted() -> Iterator[Running]:
    """The scripted upstream itself, which keeps to Chat Completions: what fails here is no engine's doing."""
    with ScriptedUpstream() as upstream:
        upstream.answer = answer
        yield Running(upstream.url, "scripted", "", lambda: _all_left(upstream))


@contextmanager
def _process(command: list[object], ready: str, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """A process, as soon as this address answers with 200; what it writes is shown if it ends before."""
    with tempfile.TemporaryFile("w+") as log, ExitStack() as stack:
        process = subprocess.Popen(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(variables or {})},
        )
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)
        address, deadline = urlsplit(ready), time.monotonic() + _STARTS
        while not _answers(f"{address.scheme}://{address.netloc}", address.path):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise NotInstalled(f"{command[0]} did not start: {log.read()[-800:]}")
            time.sleep(0.2)
        yield


def _answers(base: str, path: str) -> bool:
    try:
        return call(base, "GET", path).status == 200
    except (OSError, HTTPException, json.JSONDecodeError):
        return False


ENGINES: Final = {
    each.name: each
    for each in (
        Engine("scripted", (CHAT,), scripted, foreign=False),
        Engine(
            "llama.cpp",
            (CHAT, RESPONSES, MESSAGES),
            llama_server,
            "llamacpp",
            {"*": {"bytes that are not UTF-8": "half a character at the end of an answer is not sent"}},
        ),
        Engine(
            "transformers",
            (CHAT, RESPONSES),
            transformers_serve,
            "transformers",
            {"*": {"beyond the window": "a prompt beyond the window is answered"}},
        ),
        Engine(
            "LiteLLM",
            (CHAT, RESPONSES, MESSAGES),
            litellm,
            "litellm",
            {RESPONSES: {"log probabilities": "they are left out"}},
        ),
    )
}
