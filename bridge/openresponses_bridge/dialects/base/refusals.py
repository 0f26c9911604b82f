"""The table of refusals: the codes and words by which servers refuse a request, and what each is about.

Failover, retries, the learning of limits and the codes that clients read all ask this table. A row has the
server, its words and where they were seen. In its words `…` stands for a few others, `{limit}` and `{given}`
for numbers of tokens, `{field}` for the name of a field. `docs/upstreams.md` is drawn from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple


class Cause(StrEnum):
    """The subject of a refusal."""

    TOO_LONG = "too long"
    """The model has no room for the input."""
    ASKS_TOO_MUCH = "asks too much"
    """The request alone asks for more than its key allows."""
    OUTPUT = "too much output"
    """The request asks for more tokens of an answer than there is room for."""
    KEY = "key"
    MONEY = "money"
    RATE = "rate"
    OVERLOAD = "overload"
    MODEL = "model"
    """The server does not have the model, or no longer has it."""
    REGION = "region"
    """The server does not serve this place, or this plan."""
    FIELD = "field"
    """The server does not accept a field, which it names."""
    FORCED_CALL = "forced call"
    """The server does not force a call of a tool while the model thinks."""
    IMAGES = "images"
    FORMAT = "format"
    """The server can't enforce the format of the answer."""
    REASONING = "reasoning"
    """The server has not encrypted or signed the reasoning of earlier turns."""


class Row(NamedTuple):
    """One way of refusing. A refusal matches the row if it has one of the `codes` as its code or type, or the
    `words`, and one of the `statuses`; if there are none, those of its cause."""

    cause: Cause
    provider: str
    seen: str
    words: str = ""
    codes: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()


class Refusal(NamedTuple):
    """The facts in a refusal."""

    cause: Cause
    limit: int | None = None
    """The most tokens, if the refusal names the number."""
    given: int | None = None
    """The number of tokens that were sent, if the refusal names it."""
    fields: tuple[str, ...] = ()
    """The names of the fields that are refused, as the server writes them."""
    is_certain: bool = False
    """True if the refusal has a code, or exactly these words: then they are not words of the request, which a
    server may repeat."""


STATUSES: Final[Mapping[Cause, tuple[int, ...]]] = MappingProxyType(
    {
        Cause.TOO_LONG: (400, 413, 422, 500),
        Cause.OUTPUT: (400, 413, 422),
        Cause.KEY: (400, 401, 403, 407),
        Cause.REGION: (400, 403, 451),
        Cause.FIELD: (400, 422),
        Cause.FORCED_CALL: (400, 422),
        Cause.IMAGES: (400, 404, 415, 422, 500),
        Cause.FORMAT: (400, 422),
        Cause.REASONING: (400,),
        Cause.MODEL: (400, 403, 404, 410, 422),
    }
)
"""The statuses of refusals for a cause; any status for causes that are not here."""

_LONG, _MUCH, _KEY, _MONEY = Cause.TOO_LONG, Cause.ASKS_TOO_MUCH, Cause.KEY, Cause.MONEY
_RATE, _LOAD, _MODEL, _REGION = Cause.RATE, Cause.OVERLOAD, Cause.MODEL, Cause.REGION
_FIELD, _FORCED, _IMAGES, _OUTPUT = Cause.FIELD, Cause.FORCED_CALL, Cause.IMAGES, Cause.OUTPUT
_FORMAT, _REASONING = Cause.FORMAT, Cause.REASONING

_KEPT: Final = "patterns of earlier releases"
_DOCS: Final = "the provider's documentation"
_SOURCE: Final = "the library's source"
_PI: Final = "earendil-works/pi, its list of overflows"
TABLE: Final[tuple[Row, ...]] = (
    # ── the input is too long ────────────────────────────────────────────────────────────────────────────
    Row(
        _LONG,
        "any",
        "OpenAI's reference of errors",
        codes=("context_length_exceeded",),
        statuses=(400, 413, 422, 429, 500, 503),  # whatever a gateway makes of the status
    ),
    Row(
        _LONG,
        "OpenAI, vLLM, DeepSeek",
        "weixi-feng/LayoutGPT#9",
        "maximum context length is {limit}…resulted in {given}",
    ),
    Row(
        _LONG,
        "OpenAI, vLLM, DeepSeek",
        "vllm-project/vllm#20409",
        "maximum context length is {limit}…requested {given}",
    ),
    Row(_LONG, "OpenAI, vLLM, OpenRouter", _KEPT, "maximum context length is {limit}"),
    Row(_LONG, "SGLang", "zed-industries/zed#64424", "maximum context length of {limit}"),
    Row(
        _LONG,
        "Mistral",
        _PI,
        "{given} tokens…too large for model with {limit} maximum context length",
    ),
    Row(_LONG, "Fireworks", _KEPT, "maximum context length: {limit}"),
    Row(_LONG, "any", _KEPT, "maximum context length"),
    Row(_LONG, "OpenAI", _PI, "exceeds the context window"),
    Row(_LONG, "xAI", "cline/cline#3120", "maximum prompt length is {limit}…contains {given}"),
    Row(_LONG, "xAI", _KEPT, "maximum prompt length"),
    Row(_LONG, "Anthropic", "earendil-works/pi#102", "prompt is too long: {given} tokens > {limit}"),
    Row(_LONG, "Anthropic, Fireworks", _KEPT, "prompt is too long"),
    Row(_LONG, "Anthropic", _KEPT, "exceed context limit: {given} +…> {limit}"),
    Row(_LONG, "Anthropic", "Anthropic's reference of errors", codes=("request_too_large",), statuses=(413,)),
    Row(_LONG, "Gemini", _PI, "input token count ({given}) exceeds…({limit})"),
    Row(_LONG, "Gemini", _PI, "input token count…exceeds"),
    Row(
        _LONG,
        "llama.cpp",
        "ggml-org/llama.cpp#16109",
        codes=("exceed_context_size_error",),
    ),
    Row(
        _LONG,
        "llama.cpp",
        _PI,
        "({given} tokens) exceeds the available context size ({limit}",
    ),
    Row(_LONG, "llama.cpp", _PI, "exceeds the available context"),
    Row(_LONG, "any", _KEPT, "exceed the context"),
    Row(_LONG, "any", _KEPT, "exceeds the context"),
    Row(_LONG, "any", _KEPT, "exceeds context"),
    Row(_LONG, "LM Studio", "lmstudio-ai/lmstudio-bug-tracker#546", "context length of only {limit} tokens"),
    Row(_LONG, "LM Studio", _PI, "greater than the context length"),
    Row(_LONG, "LM Studio", _PI, "context size has been exceeded"),
    Row(_LONG, "Codex, MiniMax, any", "openai/codex", codes=("context_window_exceeded",)),
    Row(_LONG, "Z.ai", "Z.ai's list of errors", codes=("1261", "model_context_window_exceeded")),
    Row(_LONG, "Z.ai", "Z.ai's list of errors", "Prompt exceeds max length"),
    Row(_LONG, "Z.ai", "Z.ai's list of errors", "Prompt 超长"),
    Row(_LONG, "MiniMax", "MiniMax's code 2013", "context window exceeds limit"),
    Row(
        _LONG,
        "Moonshot",
        _PI,
        "exceeded model token limit: {limit} (requested: {given})",
    ),
    Row(_LONG, "Moonshot", _PI, "exceeded model token limit"),
    Row(_LONG, "DashScope", "QwenLM/qwen-code#3652", "Range of input length should be [1, {limit}]"),
    Row(_LONG, "Bedrock", _PI, "Input is too long for requested model"),
    Row(_LONG, "Bedrock", _DOCS, "Number of input tokens exceeds maximum length"),
    Row(_LONG, "Vertex", _DOCS, "input token count is {given} but model only supports up to {limit}"),
    Row(_LONG, "MiniMax", "MiniMax's code 2013", "tokens limit exceeded (2013)"),
    Row(_LONG, "vLLM", _SOURCE, "(length {given}) is longer than the maximum model length of {limit}"),
    Row(_LONG, "TensorRT-LLM", _SOURCE, "Prompt length ({given}) exceeds maximum input length ({limit})"),
    Row(_LONG, "SambaNova", _DOCS, "the maximum supported sequence length is just {limit}"),
    Row(_LONG, "Cloudflare", _DOCS, "({given}) exceeded this model context window limit ({limit})"),
    Row(
        _LONG, "watsonx", _DOCS, "number of input tokens {given} cannot exceed the total tokens limit {limit}"
    ),
    Row(_LONG, "Volcengine", _DOCS, "exceed max message tokens"),
    Row(_LONG, "Baidu", _DOCS, "the max length of current question is {limit}"),
    Row(_LONG, "Baidu", _DOCS, "prompt tokens too long"),
    Row(_LONG, "Perplexity", _DOCS, "total length of all messages is too long"),
    Row(_LONG, "Databricks", _DOCS, "max context length"),
    Row(_LONG, "Poolside", "earendil-works/pi#4943", "maximum allowed input length of {limit} tokens"),
    Row(_LONG, "Perplexity", _DOCS, codes=("too_many_prompt_tokens",)),
    Row(_LONG, "Ollama", "gsd-build/gsd-2#6143", "prompt too long; exceeded max context length"),
    Row(_LONG, "Ollama", "gsd-build/gsd-2#6143", "prompt too long; exceeded context length"),
    Row(
        _LONG,
        "GitHub Copilot",
        "code-yeongyu/oh-my-openagent#2356",
        "prompt token count of {given} exceeds the limit of {limit}",
    ),
    Row(
        _LONG,
        "GitHub Copilot",
        "code-yeongyu/oh-my-openagent#2356",
        codes=("model_max_prompt_tokens_exceeded",),
    ),
    Row(_LONG, "GitHub Models", _DOCS, "Request body too large…Max size: {limit} tokens"),
    Row(_LONG, "GitHub Models", _DOCS, codes=("tokens_limit_reached",)),
    Row(
        _LONG,
        "SGLang, Together",
        "QwenLM/Qwen3#1321",
        "input ({given} tokens) is longer than the model's context length ({limit} tokens)",
    ),
    Row(_LONG, "SGLang, Together", "QwenLM/Qwen3#1321", "is longer than the model's context length"),
    Row(
        _LONG,
        "SGLang",
        "sgl-project/sglang#4048",
        "Input length ({given} tokens) exceeds the maximum allowed length ({limit} tokens)",
    ),
    Row(_LONG, "TGI", "huggingface/text-generation-inference", "`inputs` must have less than {limit} tokens"),
    Row(
        _LONG,
        "Together, TGI",
        "huggingface/text-generation-inference",
        "`inputs` tokens + `max_new_tokens` must be <= {limit}. Given: {given}",
    ),
    Row(
        _LONG,
        "DS4",
        _PI,
        "Prompt has {given} tokens, but the configured context size is {limit}",
    ),
    Row(
        _LONG,
        "Cerebras",
        _PI,
        "reduce the length of the messages or completion. Current length is {given} while limit is {limit}",
    ),
    Row(_LONG, "Groq", _PI, "reduce the length of the messages"),
    Row(_LONG, "any", _KEPT, "reduce the length of the prompt"),
    Row(_LONG, "any", _KEPT, "reduce the length of the input"),
    Row(_LONG, "SiliconFlow", _DOCS, "must be less than max_seq_len ({limit})"),
    Row(_LONG, "Cohere", _PI, "too many tokens: size limit exceeded by"),
    Row(
        _LONG,
        "Cohere",
        _DOCS,
        "number of tokens in the prompt cannot exceed {limit} - received {given}",
    ),
    Row(_LONG, "any", _KEPT, "context window exceeded"),
    Row(_LONG, "any", _KEPT, "context window is exceeded"),
    Row(_LONG, "any", _KEPT, "context length exceeded"),
    Row(_LONG, "any", _KEPT, "context size exceeded"),
    Row(_LONG, "any", _KEPT, "context length is exceeded"),
    Row(_LONG, "any", _KEPT, "context overflow"),
    Row(
        _LONG,
        "Groq",
        "groq's rate limits, under 413",
        "Request too large…Limit {limit}, Requested {given}",
        statuses=(413,),
    ),
    Row(_LONG, "Groq, Anthropic", _KEPT, "Request too large", statuses=(413,)),
    # ── the request asks for more than its key may ever ask for ──────────────────────────────────────────
    Row(_MUCH, "OpenAI, Groq", "OpenAI's rate limits", "Request too large"),
    Row(_MUCH, "OpenRouter", "can1357/oh-my-pi#9569", "can only afford {limit}"),
    Row(_MUCH, "OpenRouter", "can1357/oh-my-pi#9569", "can only afford"),
    Row(_MUCH, "OpenRouter", "can1357/oh-my-pi#9569", "fewer max_tokens"),
    Row(
        _MUCH,
        "Anthropic",
        "Wei-Shaw/sub2api#572",
        "Extra usage is required for long context requests",
    ),
    Row(_MUCH, "Anthropic", "anthropics/claude-code#50784", "Extra usage is required for 1M context"),
    Row(_MUCH, "Anthropic", "griffinmartin/opencode-claude-auth#209", "You're out of extra usage"),
    Row(_MUCH, "Anthropic", _DOCS, "long context beta is not yet available"),
    # ── more tokens of an answer than there is room for ──────────────────────────────────────────────────
    *(
        Row(_OUTPUT, provider, _KEPT, words)
        for provider, words in (
            ("OpenAI, vLLM, Anthropic", "max_tokens"),
            ("OpenAI", "max tokens"),
            ("OpenAI", "max_completion_tokens"),
            ("OpenAI", "max_output_tokens"),
            ("TGI", "max_new_tokens"),
            ("Gemini", "maxOutputTokens"),
            ("OpenAI", "completion"),
            ("Anthropic", "output tokens"),
        )
    ),
    # ── the key ──────────────────────────────────────────────────────────────────────────────────────────
    Row(
        _KEY,
        "OpenAI, Anthropic, Google, AWS",
        "their references of errors",
        codes=(
            "invalid_api_key",
            "InvalidApiKey",
            "API_KEY_INVALID",
            "authentication_error",
            "invalid_authentication_error",
            "UNAUTHENTICATED",
            "UnrecognizedClientException",
            "InvalidSignatureException",
            "IncompleteSignatureException",
            "MissingAuthenticationTokenException",
            "ExpiredTokenException",
        ),
    ),
    Row(_KEY, "AWS", "Bedrock's own description of its service", codes=("AccessDeniedException",)),
    Row(
        _KEY,
        "any",
        _KEPT,
        codes=("access_denied", "forbidden", "permission_denied", "permission_error", "unauthorized"),
        statuses=(401, 403),
    ),
    Row(_KEY, "Google", "google-gemini/gemini-cli#25198", "API key not valid. Please pass a valid API key."),
    Row(_KEY, "Google", _DOCS, "API key expired. Please renew the API key."),
    Row(_KEY, "xAI", "continuedev/continue#10778", "Incorrect API key provided"),
    Row(_KEY, "Cerebras", _DOCS, codes=("wrong_api_key",)),
    Row(_KEY, "Z.ai", "Z.ai's list of errors", codes=("1000", "1001"), statuses=(200, 400, 401, 403)),
    Row(_KEY, "OpenRouter", _DOCS, "No auth credentials found"),
    Row(_KEY, "MiniMax", "MiniMax's codes 1004 and 2049", codes=("1004", "2049"), statuses=(200, 401)),
    Row(_KEY, "MiniMax", "MiniMax's codes 1004 and 2049", "login fail: Please carry the API secret key"),
    Row(_KEY, "MiniMax", "MiniMax's codes 1004 and 2049", "invalid api key"),
    # ── money ────────────────────────────────────────────────────────────────────────────────────────────
    Row(
        _MONEY,
        "OpenAI, Moonshot, DashScope, Volcengine, Perplexity",
        "their references of errors",
        codes=(
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "exceeded_current_quota_error",
            "insufficient_balance",
            "Arrearage",
            "AccountOverdueError",
        ),
    ),
    Row(
        _MONEY,
        "Anthropic",
        _KEPT,
        "Your credit balance is too low to access the…API. Please go to Plans & Billing to upgrade or "
        "purchase credits.",
    ),
    Row(_MONEY, "Anthropic", _KEPT, "Your credit balance is too low"),
    Row(_MONEY, "MiniMax", "milind-soni/OpenMausBot#1200", codes=("1008",), statuses=(200, 402, 429)),
    Row(
        _MONEY, "MiniMax, Z.ai, DeepSeek, SiliconFlow", "milind-soni/OpenMausBot#1200", "insufficient balance"
    ),
    Row(_MONEY, "Z.ai", "Z.ai's list of errors", codes=("1113",), statuses=(200, 400, 429)),
    Row(_MONEY, "SiliconFlow", _DOCS, codes=("30001",)),
    # ── limits over time ─────────────────────────────────────────────────────────────────────────────────
    Row(
        _RATE,
        "OpenAI, Anthropic, Google, AWS",
        "their references of errors",
        codes=(
            "rate_limit_exceeded",
            "rate_limit_error",
            "rate_limit_reached_error",
            "too_many_requests",
            "RESOURCE_EXHAUSTED",
            "ThrottlingException",
            "Throttling",
            "Throttling.RateQuota",
        ),
    ),
    Row(_RATE, "MiniMax", "MiniMax's codes 1002 and 1039", codes=("1002", "1039"), statuses=(200, 429)),
    Row(_RATE, "Z.ai", "Z.ai's list of errors", codes=("1302", "1303"), statuses=(200, 429)),
    # ── overload ─────────────────────────────────────────────────────────────────────────────────────────
    Row(
        _LOAD,
        "OpenAI, Anthropic, Google, Moonshot, AWS",
        "their references of errors",
        codes=(
            "overloaded_error",
            "server_is_overloaded",
            "service_unavailable",
            "engine_overloaded_error",
            "UNAVAILABLE",
            "ServiceUnavailableException",
        ),
    ),
    Row(
        _LOAD,
        "AWS",
        "Bedrock's own description of its service",
        codes=(
            "InternalServerException",
            "ModelErrorException",
            "ModelNotReadyException",
            "ModelStreamErrorException",
            "ModelTimeoutException",
        ),
    ),
    Row(_LOAD, "Z.ai", "Z.ai's list of errors", codes=("1305", "1312"), statuses=(200, 429, 503)),
    # ── models ───────────────────────────────────────────────────────────────────────────────────────────
    Row(
        _MODEL,
        "OpenAI, Groq, Azure, DashScope",
        "their references of errors",
        codes=(
            "model_not_found",
            "model_not_available",
            "model_decommissioned",
            "DeploymentNotFound",
            "ModelNotFound",
        ),
    ),
    Row(
        _MODEL,
        "AWS",
        "Bedrock's own description of its service",
        codes=("ResourceNotFoundException",),
        statuses=(404,),
    ),
    Row(_MODEL, "DeepSeek", _DOCS, "Model Not Exist", statuses=(400,)),
    Row(_MODEL, "Z.ai", "Z.ai's list of errors", codes=("1211",), statuses=(200, 400)),
    # ── places and plans ─────────────────────────────────────────────────────────────────────────────────
    Row(
        _REGION,
        "OpenAI",
        "OpenAI's reference of errors",
        codes=("unsupported_country_region_territory",),
    ),
    Row(_REGION, "Google", _DOCS, "User location is not supported for the API use."),
    *(
        Row(_REGION, "any", _KEPT, words, statuses=(403,))
        for words in (
            "country",
            "region",
            "territory",
            "location",
            "subscription",
            " plan",
            " tier",
            "not enabled to use",
            "not allowed to use",
        )
    ),
    # ── fields ───────────────────────────────────────────────────────────────────────────────────────────
    Row(
        _FIELD,
        "OpenAI, Mistral",
        "OpenAI's reference of errors, its `param` being the name",
        codes=("unknown_parameter", "unsupported_parameter", "unsupported_value", "extra_forbidden"),
    ),
    *(
        Row(_FIELD, provider, seen, words)
        for provider, seen, words in (
            ("OpenAI", "lidge-jun/opencodex#4853", "Unknown parameter: {field}"),
            ("OpenAI, xAI", "OpenAI's reference of errors", "Unsupported parameter: {field}"),
            ("OpenAI, Azure", _DOCS, "Unrecognized request argument supplied: {field}"),
            ("OpenAI", _DOCS, "Unsupported value: {field} does not support"),
            ("xAI", _DOCS, "Argument not supported on this model: {field}"),
            ("Anthropic, FastAPI", _SOURCE, "{field}: Extra inputs are not permitted"),
            ("Groq", "janhq/jan#8136, Kilo-Org/kilocode#10375", "property {field} is unsupported"),
            ("Google", "liliMozi/openhanako#394", "Unknown name {field}"),
            ("Go, Volcengine", "rikkahub/rikkahub#713", "unknown field {field}"),
            ("llama.cpp", _SOURCE, "Unsupported param: {field}"),
            ("zod", _SOURCE, "Unrecognized key(s) in object: {field}"),
            ("zod", _SOURCE, "Unrecognized key: {field}"),
            ("JSON Schema", _SOURCE, "Additional properties are not allowed ({field} was unexpected)"),
            ("Python", _SOURCE, "unexpected keyword argument {field}"),
            ("serde", "SaladDay/cc-switch-cli#468", "{field}: unknown variant"),
            ("any", _DOCS, "parameter {field} is not supported"),
            ("any", _DOCS, "{field} is not supported"),
            ("any", _DOCS, "does not support {field}"),
        )
    ),
    # ── a forced call while the model thinks ─────────────────────────────────────────────────────────────
    Row(
        _FORCED,
        "DeepSeek",
        "deepseek-ai/DeepSeek-V3#1376",
        "Thinking mode does not support this tool_choice",
    ),
    Row(_FORCED, "Moonshot", "can1357/oh-my-pi#1077", "tool_choice…incompatible with thinking"),
    Row(_FORCED, "Qwen", "cloudwego/eino#994", "tool_choice…not support…in thinking mode"),
    Row(_FORCED, "Anthropic", _DOCS, "Thinking may not be enabled when tool_choice forces"),
    # ── images ───────────────────────────────────────────────────────────────────────────────────────────
    *(
        Row(_IMAGES, provider, _KEPT, words)
        for provider, words in (
            ("DeepSeek", "unknown variant `image"),
            ("DeepSeek", "unknown variant image"),
            ("OpenAI, xAI", "not support image"),
            ("any", "not support vision"),
            ("any", "not support multimodal"),
            ("OpenRouter", "support image input"),
            ("Groq", "image is not supported"),
            ("Groq", "images are not supported"),
            ("Groq", "image is not allowed"),
            ("Groq", "images are not allowed"),
            ("vLLM", "image input is not supported"),
            ("vLLM", "image input is not allowed"),
            ("vLLM", "images input are not supported"),
            ("vLLM", "not a multimodal model"),
            ("llama.cpp", "missing mmproj"),
        )
    ),
    # ── the format of the answer ─────────────────────────────────────────────────────────────────────────
    *(
        Row(_FORMAT, "any", _KEPT, words)
        for words in (
            "response_format",
            "json_schema",
            "json_object",
            "json mode",
            "text.format",
            "output_config",
            "output_format",
            "responseschema",
            "response_schema",
            "responsejsonschema",
            "response_json_schema",
            "structured output",
            "guided",
            "grammar",
            "tool_choice",
        )
    ),
    # ── reasoning of earlier turns ───────────────────────────────────────────────────────────────────────
    Row(_REASONING, "OpenAI", _KEPT, codes=("invalid_encrypted_content",)),
    *(
        Row(_REASONING, provider, _KEPT, words)
        for provider, words in (
            ("Anthropic", "invalid `signature` in `thinking` block"),
            ("Anthropic", "invalid signature in thinking block"),
            ("Anthropic", "invalid `signature` in `redacted_thinking` block"),
            ("Google", "corrupted thought signature"),
            ("Google", "corrupted thought_signature"),
            ("Google", "invalid thought signature"),
            ("Google", "invalid thought_signature"),
            ("Google", "thought signature is not valid"),
            ("Google", "thought_signature is not valid"),
        )
    ),
)

LONGEST_READ: Final = 4000
"""The characters of a message that are read."""
_SPECIAL: Final = re.compile(r"…|\{limit\}|\{given\}|\{field\}")
_NUMBER: Final = r"\d{1,3}(?:,\d{3}){1,3}(?!\d)|\d{1,9}(?!\d)"
_PATTERNS: Final = {
    "…": r"[^\n]{0,200}?",
    "{limit}": f"(?P<limit>{_NUMBER})",
    "{given}": f"(?P<given>{_NUMBER})",
    "{field}": r"""['"`‘“]?(?P<field>[A-Za-z_][\w.\[\]-]{0,99})['"`’”]?""",
}
_WINDOW_FACTS: Final = ("n_ctx", "max_context_length", "context_length", "max_tokens_limit")
_GIVEN_FACTS: Final = ("n_prompt_tokens", "prompt_tokens")
_MOST_TOKENS: Final = 10**9
_MOST_FIELDS: Final = 16
_BY_CODE: Final[Mapping[str, tuple[Row, ...]]] = MappingProxyType(
    {
        code: tuple(row for row in TABLE if code in (each.lower() for each in row.codes))
        for code in {each.lower() for row in TABLE for each in row.codes}
    }
)
_BY_WORDS: Final[Mapping[Cause, tuple[Row, ...]]] = MappingProxyType(
    {cause: tuple(row for row in TABLE if row.cause is cause and row.words) for cause in Cause}
)


@cache
def _pattern(words: str) -> re.Pattern[str]:
    """Return the words as a pattern: each `…` and each name stands for a limited number of characters."""
    pattern, end = "", 0
    for special in _SPECIAL.finditer(words):
        pattern += re.escape(words[end : special.start()]) + _PATTERNS[special[0]]
        end = special.end()
    return re.compile(pattern + re.escape(words[end:]), re.IGNORECASE)


@cache
def _literal(words: str) -> str:
    """Return the longest part of the words without placeholders, in lower case."""
    return max(_SPECIAL.split(words), key=len).lower()


def _holds(row: Row, status: int | None) -> bool:
    statuses = row.statuses or STATUSES.get(row.cause)
    return status is None or not statuses or status in statuses


def _means_so(row: Row, status: int | None) -> bool:
    """Return whether the row's words apply: words that are unambiguous only with a status of their own mean
    nothing within a stream, which has none."""
    return _holds(row, status) and (status is not None or not row.statuses)


def _by_code(cause: Cause | None, status: int | None, codes: Iterator[str]) -> Row | None:
    for code in codes:
        for row in _BY_CODE.get(code.lower(), ()):
            if (cause is None or row.cause is cause) and _holds(row, status):
                return row
    return None


def refusal_for(
    cause: Cause,
    status: int | None,
    codes: tuple[str | None, ...],
    message: str,
    facts: Mapping[str, object] = MappingProxyType({}),
) -> Refusal | None:
    """Return what a refusal says about this cause; None if it is not about it. `status` is None within a
    stream, `codes` are the refusal's code and type, `facts` the fields of its error."""
    row = _by_code(cause, status, (code for code in codes if code))
    text = message[:LONGEST_READ]
    lowered = text.lower()
    first_match = None
    for each in _BY_WORDS[cause]:
        if _means_so(each, status) and _literal(each.words) in lowered:
            match = _pattern(each.words).search(text)
            if match is not None:
                first_match = match
                break
    if row is None and first_match is None:
        return None
    named = {} if first_match is None else first_match.groupdict()
    limit = _count(named.get("limit")) or _fact(facts, _WINDOW_FACTS)
    given = _count(named.get("given")) or _fact(facts, _GIVEN_FACTS)
    is_whole = first_match is not None and first_match.start() == 0 and first_match.end() == len(text)
    fields = () if first_match is None or "field" not in named else _fields_in(first_match.re, text)
    return Refusal(cause, limit, given, fields, row is not None or is_whole)


def cause_of(status: int | None, codes: tuple[str | None, ...], message: str) -> Refusal | None:
    """Return the main cause of a refusal; None if it is not known. The causes in the request come first, by
    code or words, then the cause of its code, then that of its words."""
    for cause in _OF_THE_REQUEST:
        if (refusal := refusal_for(cause, status, codes, message)) is not None:
            return refusal
    row = _by_code(None, status, (code for code in codes if code))
    if row is not None and row.cause in _WHOLE:
        return refusal_for(row.cause, status, codes, message)
    return next(
        (refusal for cause in _WHOLE if (refusal := refusal_for(cause, status, codes, message))), None
    )


_OF_THE_REQUEST: Final = (Cause.TOO_LONG, Cause.ASKS_TOO_MUCH)
_WHOLE: Final = (
    Cause.MONEY,
    Cause.KEY,
    Cause.MODEL,
    Cause.REGION,
    Cause.RATE,
    Cause.OVERLOAD,
)

STATUS_OF: Final[Mapping[Cause, int]] = MappingProxyType(
    {
        Cause.TOO_LONG: 400,
        Cause.ASKS_TOO_MUCH: 429,
        Cause.MONEY: 402,
        Cause.KEY: 401,
        Cause.MODEL: 404,
        Cause.REGION: 403,
        Cause.RATE: 429,
        Cause.OVERLOAD: 503,
    }
)
"""The status for a refusal whose answer has the status of a success."""
CODE_OF: Final[Mapping[Cause, str]] = MappingProxyType(
    {
        Cause.TOO_LONG: "context_length_exceeded",
        Cause.ASKS_TOO_MUCH: "rate_limit_exceeded",
        Cause.MONEY: "insufficient_quota",
        Cause.KEY: "invalid_api_key",
        Cause.MODEL: "model_not_found",
        Cause.REGION: "permission_denied",
        Cause.RATE: "rate_limit_exceeded",
        Cause.OVERLOAD: "service_unavailable",
    }
)
"""The code that clients know for a cause."""


def code_for(code: str | None, refusal: Refusal | None) -> str | None:
    """Return the code of a refusal for clients. It is the server's own, unless that is missing or a number,
    or the input is too long: for that, clients know only one code."""
    if refusal is None:
        return code
    says_nothing = code is None or code.lstrip("-").isdecimal()
    return CODE_OF[refusal.cause] if says_nothing or refusal.cause is Cause.TOO_LONG else code


def _count(text: str | None) -> int | None:
    return int(text.replace(",", "")) if text else None


def _fields_in(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    """Return all fields that are named in these words."""
    names = (match["field"].rstrip(".") for match in islice(pattern.finditer(text), _MOST_FIELDS))
    return tuple(dict.fromkeys(names))


def _fact(facts: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    values = (facts.get(name) for name in names)
    return next((value for value in values if type(value) is int and 0 < value <= _MOST_TOKENS), None)
