"""Finds out which engine is at an address, by its own answers, and what its users should set.

Only its own host is asked, a few times, for answers of limited size. Nothing in them is trusted: values of
wrong types are ignored, and names and versions are cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.text import printable
from openresponses_server.upstreams.http import HttpUpstream

ENOUGH: Final = 32_768
"""Tokens of context for a coding agent: the prompts of Codex and Claude Code take about half of that before
the first word of their users."""
_SECONDS: Final = 5.0  # for all answers of one engine
_LONGEST: Final = 40  # characters of a version
_MOST_TOKENS: Final = 10**9
_TOOL: Final = {
    "type": "function",
    "function": {"name": "noop", "parameters": {"type": "object", "properties": {}}},
}


class Engine(Struct, frozen=True):
    """An engine that was recognised. `profile` is the name of its profile; `advice` has a sentence for each
    thing that should be changed."""

    profile: str
    title: str
    version: str = ""
    context: int | None = None
    """The tokens of one conversation, as configured now."""
    advice: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """The engine's name, version and context, for people."""
        named = f"{self.title} {self.version}".rstrip()
        return f"{named}, {self.context:,} tokens a conversation" if self.context else named


class _Said(Struct, frozen=True):
    """An answer: its status, its headers by names in lower case, and its body if that is a JSON object."""

    status: int
    headers: Mapping[str, str]
    value: Mapping[str, Any]

    def at(self, *path: str) -> Any:
        """Return the value at this path; None if there is none."""
        value: Any = self.value
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def text(self, *path: str) -> str:
        value = self.at(*path)
        return printable(value[:_LONGEST]) if isinstance(value, str) else ""

    def tokens(self, *path: str) -> int | None:
        value = self.at(*path)
        return value if type(value) is int and 0 < value <= _MOST_TOKENS else None


Ask = Callable[..., Awaitable[_Said]]


async def recognised(upstream: HttpUpstream, model: str | None) -> Engine | None:
    """Return the engine at this address; None if it is not known, or does not answer in time. `model` is the
    name in requests, None for the first model that the engine lists."""

    async def ask(path: str, body: Mapping[str, Any] | None = None) -> _Said:
        status, headers, answer = await upstream.look(path, body)
        try:
            value = decode_json(answer)
        except WireError:
            value = {}
        return _Said(status, headers, value if isinstance(value, Mapping) else {})

    try:
        async with asyncio.timeout(_SECONDS):
            return await _recognised(ask, model)
    except OSError:  # includes TimeoutError
        return None


async def _recognised(ask: Ask, model: str | None) -> Engine | None:
    listed = await ask("/v1/models")
    entries = listed.at("data")
    entry = next(
        (each for each in _objects(entries) if model is None or each.get("id") == model),
        next(_objects(entries), {}),
    )
    named = model or entry.get("id")
    owner = entry.get("owned_by")
    if listed.headers.get("server", "").lower() == "llama.cpp" or owner == "llamacpp":
        return await _llamacpp(ask, named)
    if owner == "vllm":
        return await _vllm(ask, named, _Said(200, {}, entry))
    if owner == "sglang":
        window = _Said(200, {}, entry).tokens("max_model_len")
        return Engine("sglang", "SGLang", context=window, advice=_small(window, "--context-length 32768"))
    ollama = await ask("/api/version")
    if ollama.status == 200 and (version := ollama.text("version")):
        return await _ollama(ask, version, named)
    alive = await ask("/health/liveliness")
    if version := alive.headers.get("x-litellm-version", "") or listed.headers.get("x-litellm-version", ""):
        return Engine("litellm", "LiteLLM", printable(version[:_LONGEST]))
    studio = await ask("/api/v0/models")
    loaded = next((each for each in _objects(studio.at("data")) if each.get("id") == named), None)
    known = loaded is not None and loaded.get("type") in ("llm", "vlm")
    return _lmstudio(_Said(200, {}, loaded)) if known and loaded is not None else None


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a list; none for anything else."""
    return (each for each in (value if isinstance(value, list) else ()) if isinstance(each, Mapping))


def _small(window: int | None, setting: str) -> tuple[str, ...]:
    if window is None or window >= ENOUGH:
        return ()
    return (
        f"a context of {window:,} tokens is too small for the prompts of Codex and Claude Code: {setting}",
    )


async def _refuses_tools(ask: Ask, model: Any, word: str) -> bool:
    """Return True if a request with a tool is refused with this word. The request asks for one token."""
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": model, "messages": messages, "tools": [_TOOL], "max_tokens": 1}
    response = await ask("/v1/chat/completions", body)
    message = response.at("error", "message") or response.at("message")
    return response.status >= 400 and isinstance(message, str) and word in message


async def _llamacpp(ask: Ask, model: Any) -> Engine:
    props = await ask("/props")
    window = props.tokens("default_generation_settings", "n_ctx")
    slots = props.tokens("total_slots") or 1
    advice = list(
        _small(window, f"-c {ENOUGH * slots} for its {slots} slots" if slots > 1 else f"-c {ENOUGH}")
    )
    template = props.at("chat_template")
    if await _refuses_tools(ask, model, "--jinja"):
        advice.append("it refuses tools: start it with --jinja")
    elif props.at("chat_template_caps", "supports_tools") is False or (
        isinstance(template, str) and "tools" not in template
    ):
        advice.append(
            "its chat template has no tools: start it with --jinja and a --chat-template-file that has them"
        )
    if props.at("modalities", "vision") is False:
        advice.append(
            "its model takes no images, so they are left out: start it with --mmproj and a model that does"
        )
    return Engine("llamacpp", "llama.cpp", props.text("build_info"), window, tuple(advice))


async def _vllm(ask: Ask, model: Any, entry: _Said) -> Engine:
    window = entry.tokens("max_model_len")
    advice = list(_small(window, f"--max-model-len {ENOUGH}"))
    if await _refuses_tools(ask, model, "--enable-auto-tool-choice"):
        advice.append(
            "it refuses tools: start it with --enable-auto-tool-choice and its model's --tool-call-parser"
        )
    return Engine("vllm", "vLLM", (await ask("/version")).text("version"), window, tuple(advice))


async def _ollama(ask: Ask, version: str, model: Any) -> Engine:
    advice: list[str] = []
    running = await ask("/api/ps")
    entry = next((each for each in _objects(running.at("models")) if each.get("model") == model), {})
    window = _Said(200, {}, entry).tokens("context_length")
    advice += _small(window, f"OLLAMA_CONTEXT_LENGTH={ENOUGH}")
    if isinstance(model, str):
        able = (await ask("/api/show", {"model": model})).at("capabilities")
        if isinstance(able, list) and "tools" not in able:
            advice.append("its chat template has no tools: take a model whose template has them")
        if isinstance(able, list) and "vision" not in able:
            advice.append("its model takes no images, so they are left out")
    return Engine("ollama", "Ollama", version, window, tuple(advice))


def _lmstudio(model: _Said) -> Engine:
    window = model.tokens("loaded_context_length")
    advice = list(_small(window, f"load the model with {ENOUGH:,}"))
    able = model.at("capabilities")
    if isinstance(able, list) and "tool_use" not in able:
        advice.append("its model was not trained for tools: take one that was")
    if model.at("type") == "llm":
        advice.append("its model takes no images, so they are left out")
    return Engine("lmstudio", "LM Studio", context=window, advice=tuple(advice))
