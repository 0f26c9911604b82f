"""Prompts as the bodies of requests: Chat Completions, Anthropic's Messages, and Responses.

`options` are further fields of the body, for instance `temperature`. A prompt that asks nothing has no body.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import msgspec

from openresponses_agent.prompt.anthropic import api_messages_to_anthropic
from openresponses_agent.prompt.chat import raw_messages_to_capi
from openresponses_agent.prompt.items import raw_messages_to_input_items
from openresponses_agent.prompt.raw import ChatMessage
from openresponses_agent.prompt.renderer import BuildPromptResult
from openresponses_agent.tools.offering import ToolForm, tools_in_body
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages.upstream.request import tools_called
from openresponses_bridge.errors import LocalError
from openresponses_bridge.protocol.unknown import enc_hook
from openresponses_bridge.seal import Sealer


class ChatFields(TypedDict, total=False):
    """Additional fields of a Chat Completions body."""

    frequency_penalty: float
    logit_bias: dict[str, float]
    logprobs: bool
    max_completion_tokens: int
    max_tokens: int
    metadata: dict[str, str]
    n: int
    parallel_tool_calls: bool
    prediction: dict[str, Any]
    presence_penalty: float
    reasoning_effort: str
    response_format: dict[str, Any]
    seed: int
    service_tier: str
    stop: str | list[str]
    store: bool
    stream: bool
    stream_options: dict[str, Any]
    temperature: float
    top_logprobs: int
    top_p: float
    user: str
    verbosity: str


class MessagesFields(TypedDict, total=False):
    """Additional fields of a Messages body."""

    container: str
    context_management: dict[str, Any]
    mcp_servers: list[dict[str, Any]]
    metadata: dict[str, Any]
    output_config: dict[str, Any]
    service_tier: str
    stop_sequences: list[str]
    stream: bool
    temperature: float
    thinking: dict[str, Any]
    top_k: int
    top_p: float


class ResponsesFields(TypedDict, total=False):
    """Additional fields of a Responses body."""

    background: bool
    include: list[str]
    instructions: str
    max_output_tokens: int
    max_tool_calls: int
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str
    prompt_cache_key: str
    reasoning: dict[str, Any]
    safety_identifier: str
    service_tier: str
    store: bool
    stream: bool
    stream_options: dict[str, Any]
    temperature: float
    text: dict[str, Any]
    top_logprobs: int
    top_p: float
    truncation: str
    user: str


def create_capi_request_body(
    result: BuildPromptResult,
    model: str,
    *,
    functions: bool = False,
    tool_choice: str | None = "auto",
    cache_control: bool = False,
    reasoning_field: str | None = None,
    diagnostics: Diagnostics | None = None,
    **options: Unpack[ChatFields],
) -> dict[str, Any]:
    """Return a Chat Completions body. `functions` declares the tools in the older field of that name, for
    endpoints that do not know `tools`. Raises LocalError (`bridge.prompt.empty`) for a prompt that asks
    nothing."""
    messages = raw_messages_to_capi(
        _asked(result),
        cache_control=cache_control,
        reasoning_field=reasoning_field,
        diagnostics=diagnostics,
    )
    form = ToolForm.FUNCTIONS if functions else ToolForm.TOOLS
    return {
        "model": model,
        "messages": messages,
        **tools_in_body(result.tools, form, tool_choice),
        **options,
    }


def create_anthropic_request_body(
    result: BuildPromptResult,
    model: str,
    *,
    max_tokens: int,
    tool_choice: str | None = None,
    sealer: Sealer | None = None,
    diagnostics: Diagnostics | None = None,
    **options: Unpack[MessagesFields],
) -> dict[str, Any]:
    """Return a Messages body. `max_tokens` is the limit of the answer. If the prompt offers no tools, those
    of earlier calls are declared, and none may be called. Raises LocalError (`bridge.prompt.empty`)."""
    system, messages = api_messages_to_anthropic(_asked(result), sealer=sealer, diagnostics=diagnostics)
    return {
        "model": model,
        **({"system": system} if system else {}),
        "messages": messages,
        **(tools_in_body(result.tools, ToolForm.ANTHROPIC, tool_choice) or tools_called(messages)),
        "max_tokens": max_tokens,
        **options,
    }


def create_responses_request_body(
    result: BuildPromptResult,
    model: str,
    *,
    tool_choice: str | None = None,
    sealer: Sealer | None = None,
    diagnostics: Diagnostics | None = None,
    **options: Unpack[ResponsesFields],
) -> dict[str, Any]:
    """Return a Responses body, with all messages as its input, and the tools that the server runs. Raises
    LocalError (`bridge.prompt.empty`)."""
    items = raw_messages_to_input_items(_asked(result), sealer=sealer, diagnostics=diagnostics)
    body = {
        "model": model,
        "input": [msgspec.to_builtins(item, enc_hook=enc_hook) for item in items],
        **tools_in_body(result.tools, ToolForm.RESPONSES, tool_choice),
        **options,
    }
    if result.hosted_tools:
        body["tools"] = [*body.get("tools", ()), *result.hosted_tools]
    return body


def _asked(result: BuildPromptResult) -> list[ChatMessage]:
    if result.is_empty:
        raise LocalError("bridge.prompt.empty", "the prompt asks nothing, so there is nothing to request")
    return result.messages
