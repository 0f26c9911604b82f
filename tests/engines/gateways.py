"""Gateways that stand between a client and us, or between us and a model: how each is started, which of its
APIs leads to which of ours, and what does not pass. docs/clients/gateways.md says it in words.

What is behind a gateway is always a server of ours, in front of a scripted model: so one gateway is tried
both as its client and, with a second server of ours before it, as an upstream.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from tests.engines import installing
from tests.engines.programs import listening, npm_program
from tests.support.processes import free_port

PORTKEY: Final = "1.15.2"
# with a later one of these every stream of Portkey's is refused with status 500
NODE_SERVER: Final = "1.13.8"
ROUTER: Final = "2.0.0"
DIALECTS: Final = {"Chat": "chat", "Responses": "responses", "Messages": "anthropic"}


@dataclass(frozen=True)
class Route:
    """An API of a gateway and the one that it asks for it, by the names of `asking.SURFACES`; `headers`
    choose the route, `{behind}` in them is the address of what is behind."""

    surface: str
    behind: str
    model: str = "scripted"
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.surface} to {self.behind}"


@dataclass(frozen=True)
class Gateway:
    """`start` takes the address of what is behind it, gives its own, and raises NotInstalled. `fails` has, by
    the route, the cases that do not pass for its own fault, and what it does instead: with it `before` us, or
    `behind` us."""

    name: str
    version: str
    routes: tuple[Route, ...]
    start: Callable[[str], AbstractContextManager[str]] = field(repr=False)
    before: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    behind: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)


@contextmanager
def litellm(behind: str) -> Iterator[str]:
    """LiteLLM's proxy."""
    environment, port = installing.litellm(), free_port()
    at = {"api_key": "none", "api_base": f"{behind}/v1"}
    models: dict[str, dict[str, Any]] = {
        "openai": {"model": "openai/scripted", **at},
        "anthropic": {"model": "anthropic/scripted", **at, "api_base": behind},
        "vllm": {"model": "hosted_vllm/scripted", **at},
    }
    config = {
        "model_list": [
            {"model_name": name, "litellm_params": parameters, "model_info": {"supports_vision": True}}
            for name, parameters in models.items()
        ],
        # an error is to come through, not to be tried again or to take the model away from the next test
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    file = environment / f"gateway-{port}.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [environment / "bin" / "litellm", "--config", file, "--host", "127.0.0.1", "--port", port]
    variables = {
        "LITELLM_TELEMETRY": "False",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # it is on 127.0.0.1 and leads to a scripted model
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    try:
        with listening(command, port, "/health/liveliness", variables) as base:
            yield base
    finally:
        file.unlink()


@contextmanager
def portkey(behind: str) -> Iterator[str]:
    """Portkey's gateway: the requests say what is behind it."""
    overrides = {"@hono/node-server": NODE_SERVER}
    program, port = npm_program(f"@portkey-ai/gateway@{PORTKEY}", "gateway", overrides), free_port()
    with listening([program, f"--port={port}", "--headless"], port, "/") as base:
        yield base


@contextmanager
def router(behind: str) -> Iterator[str]:
    """claude-code-router, in a home of its own: its file of settings is there."""
    program, port = npm_program(f"@musistudio/claude-code-router@{ROUTER}", "ccr"), free_port()
    home = installing.cache() / f"router-{port}"
    paths = {"chat": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}
    uses: dict[str, list[str]] = {"chat": [], "anthropic": ["Anthropic"], "responses": ["openai-responses"]}
    config = {
        "PORT": port,
        "LOG": False,
        "NON_INTERACTIVE_MODE": True,
        "Providers": [
            {
                "name": name,
                "api_base_url": f"{behind}{path}",
                "api_key": "none",
                "models": ["scripted"],
                **({"transformer": {"use": uses[name]}} if uses[name] else {}),
            }
            for name, path in paths.items()
        ],
        "Router": {"default": "chat,scripted"},
    }
    settings = home / ".claude-code-router" / "config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(config))
    try:
        with listening([program, "start"], port, "/health", {"HOME": str(home)}) as base:
            yield base
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _portkey_route(surface: str, behind: str, provider: str, address: str) -> Route:
    headers = {"x-portkey-provider": provider, "x-portkey-custom-host": address}
    return Route(surface, behind, headers=headers)


GOES_ON: Final = "the model goes on"
_PORTKEY_MESSAGES: Final = {
    "thinking": "left out",
    "schema": "left out",
    "usage": "of the input, what the stream's start estimates",
    "cancel": GOES_ON,
}
GATEWAYS: Final = {
    each.name: each
    for each in (
        Gateway(
            "LiteLLM",
            installing.LITELLM,
            (
                Route("Chat", "Chat", "openai"),
                Route("Chat", "Messages", "anthropic"),
                Route("Responses", "Responses", "openai"),
                Route("Responses", "Chat", "vllm"),
                Route("Messages", "Messages", "anthropic"),
                Route("Messages", "Chat", "vllm"),
            ),
            litellm,
            before={
                "Responses to Responses": {"breaks": "the message is lost"},
                "Responses to Chat": {"breaks": "the message is lost"},
            },
            behind={
                "Responses to Responses": {"breaks": "the message is lost"},
                "Responses to Chat": {"breaks": "the message is lost"},
            },
        ),
        Gateway(
            "Portkey",
            PORTKEY,
            (
                _portkey_route("Chat", "Chat", "openai", "{behind}/v1"),
                _portkey_route("Chat", "Messages", "anthropic", "{behind}/v1"),
                _portkey_route("Responses", "Responses", "openai", "{behind}/v1"),
                _portkey_route("Messages", "Messages", "anthropic", "{behind}/v1"),
            ),
            portkey,
            before={
                "Chat to Chat": {"cancel": GOES_ON},
                "Chat to Messages": {**_PORTKEY_MESSAGES, "breaks": "a finish reason and no error"},
                "Responses to Responses": {"cancel": GOES_ON},
                "Messages to Messages": {"schema": "left out", "cancel": GOES_ON},
            },
            behind={
                "Chat to Chat": {"cancel": GOES_ON},
                "Chat to Messages": {**_PORTKEY_MESSAGES, "breaks": "the message is lost"},
                "Responses to Responses": {"cancel": GOES_ON},
                "Messages to Messages": {"cancel": GOES_ON},
            },
        ),
        Gateway(
            "claude-code-router",
            ROUTER,
            (
                Route("Messages", "Chat", "chat,scripted"),
                Route("Messages", "Messages", "anthropic,scripted"),
                Route("Messages", "Responses", "responses,scripted"),
            ),
            router,
            before={
                "Messages to Chat": {
                    "thinking": "left out",
                    "schema": "left out",
                    "usage": "zeros in streams",
                    "cancel": GOES_ON,
                },
                "Messages to Responses": {
                    "parallel": "the second call is lost",
                    "thinking": "left out",
                    "schema": "left out",
                    "usage": "zeros in streams",
                    "breaks": "ends as if it were whole",
                    "cancel": GOES_ON,
                },
            },
            behind={
                "Messages to Chat": {
                    "thinking": "left out",
                    "usage": "zeros, so estimated",
                    "cancel": GOES_ON,
                },
                "Messages to Responses": {
                    "parallel": "the second call is lost",
                    "thinking": "left out",
                    "usage": "zeros, so estimated",
                    "breaks": "ends as if it were whole",
                    "cancel": GOES_ON,
                },
            },
        ),
    )
}
