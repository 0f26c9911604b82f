"""The Chat Completions wire as structs, for both directions.

When read, everything is optional, null means absent, and unknown fields are skipped; a field of another type
than here is read by `decoding`. When written, defaults are left out. Counts are tokens, `created` is Unix
seconds, log probabilities are natural logarithms.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from openresponses_bridge.protocol.unknown import EXTRA, Extra


class ChatFunction(Struct, omit_defaults=True, gc=False):
    """A function call or a fragment of one. Some servers send `arguments` as an object, or under another
    API's name."""

    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None
    input: str | dict[str, Any] | None = None
    args: str | dict[str, Any] | None = None
    parameters: str | dict[str, Any] | None = None


class ChatCustom(Struct, omit_defaults=True, gc=False):
    """A free-text call or a fragment of one."""

    name: str | None = None
    input: str | None = None


class ChatToolCall(Struct, omit_defaults=True, gc=False):
    """A tool call: in a stream, a fragment; in a message, a whole one (without `index`). Some servers send
    the fields of `function` beside it, or without it."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: ChatFunction | None = None
    custom: ChatCustom | None = None
    extra_content: dict[str, Any] | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None
    input: str | dict[str, Any] | None = None
    args: str | dict[str, Any] | None = None
    parameters: str | dict[str, Any] | None = None


class ChatTopLogProb(Struct, omit_defaults=True, gc=False):
    """An alternative token."""

    token: str | None = None
    logprob: float | None = None
    bytes: list[int] | None = None


class ChatLogProb(Struct, omit_defaults=True, gc=False):
    """A sampled token; `bytes` are its UTF-8 bytes, null if they are those of `token`."""

    token: str | None = None
    logprob: float | None = None
    bytes: list[int] | None = None
    top_logprobs: list[ChatTopLogProb] | None = None


class ChatLogProbs(Struct, omit_defaults=True, gc=False):
    """Log probabilities of one choice's new tokens."""

    content: list[ChatLogProb] | None = None
    refusal: list[ChatLogProb] | None = None


class ChatUrlCitation(Struct, omit_defaults=True, gc=False):
    """The fields of a url_citation: content[start_index:end_index] cites `url`."""

    url: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class ChatAnnotation(Struct, omit_defaults=True, gc=False):
    """A citation; OpenAI nests its fields, others put them beside `type`."""

    type: str | None = None
    url_citation: ChatUrlCitation | None = None
    url: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class ChatDelta(Struct, omit_defaults=True, gc=False):
    """The fields that a chunk adds, or the whole of an assistant's message.

    Reasoning goes by three names: `reasoning_content` (DeepSeek, xAI, vLLM, llama.cpp), `reasoning`
    (OpenRouter, Groq, Ollama), `reasoning_text` with its opaque form in `reasoning_opaque` (Copilot).
    OpenRouter's `reasoning_details` are of type reasoning.text, .summary or .encrypted, LiteLLM's
    `thinking_blocks` Anthropic's.
    """

    role: str | None = None
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    reasoning_opaque: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    thinking_blocks: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[ChatToolCall] | None = None
    function_call: ChatFunction | None = None
    annotations: list[ChatAnnotation] | None = None
    audio: dict[str, Any] | None = None
    images: list[Any] | None = None
    executed_tools: list[Any] | None = None
    extra_content: dict[str, Any] | None = None


class PromptTokensDetails(Struct, omit_defaults=True, gc=False):
    """Counts of the prompt's tokens by kind."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None


class CompletionTokensDetails(Struct, omit_defaults=True, gc=False):
    """Counts of the completion's tokens by kind."""

    reasoning_tokens: int | None = None


class ChatUsage(Struct, omit_defaults=True, gc=False):
    """Token counts, also in the fields where DeepSeek, Moonshot and Perplexity put details, and under the
    names of other dialects, which gateways pass on; `estimated` is ours (see `Usage`)."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool | None = None
    num_cached_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: PromptTokensDetails | None = None
    output_tokens_details: CompletionTokensDetails | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class ChatChoice(Struct, omit_defaults=True, gc=False):
    """One of n answers: `delta` in a chunk, `message` in a completion, `text` in a completion of the API
    before Chat. Some servers also put `usage` here."""

    index: int | None = None
    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: ChatLogProbs | None = None
    usage: ChatUsage | None = None
    error: Any = None


class GroqExtras(Struct, omit_defaults=True, gc=False):
    """Groq's envelope: the usage of a stream is in that of its last chunk."""

    usage: ChatUsage | None = None
    error: Any = None


class ChatOutput(Struct, omit_defaults=True, gc=False):
    """The fields of a chunk or a completion that an inbound reads."""

    choices: list[ChatChoice] | None = None
    usage: ChatUsage | None = None
    error: Any = None
    citations: list[Any] | None = None
    search_results: list[Any] | None = None
    web_search: list[Any] | None = None
    x_groq: GroqExtras | None = None
    base_resp: Any = None
    """The status in every answer of MiniMax, also for a failure."""


class ChatChunk(Struct, omit_defaults=True, gc=False, kw_only=True):
    """A chunk (`chat.completion.chunk`) or a completion (`chat.completion`) as we send it."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage | None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    error: dict[str, Any] | None = None


class ChatMessage(Struct, omit_defaults=True, kw_only=True):
    """A message of a request; `content` is text or a list of parts in the form of the wire."""

    role: str
    content: str | list[dict[str, Any]] | UnsetType | None = UNSET
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    thinking_blocks: list[dict[str, Any]] | None = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None
    function_call: ChatFunction | None = None
    extra_content: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None


class ChatFunctionDefinition(Struct, omit_defaults=True, kw_only=True):
    """A function that the model may call; `parameters` is JSON Schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatTool(Struct, tag="function", tag_field="type"):
    """A tool of a request."""

    function: ChatFunctionDefinition


class ChatRequest(Struct, omit_defaults=True, kw_only=True):
    """The body of a request. None stands for "not given"; limits are in tokens. `extra` has further fields of
    the body, which never replace these."""

    model: str
    messages: list[ChatMessage]
    n: int | None = None
    tools: list[ChatTool | dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[ChatFunctionDefinition] | None = None
    function_call: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    thinking: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    verbosity: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    user: str | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    logit_bias: dict[str, float] | None = None
    prediction: dict[str, Any] | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    extra: Extra = field(default=UNSET, name=EXTRA)
