"""What one server wants where servers of the dialect differ."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.calls.call_ids import call_id_form
from openresponses_bridge.dialects.base import NO_TAGS, THINK_TAGS, UnansweredCalls
from openresponses_bridge.dialects.chat_completions.types import ChatRequest
from openresponses_bridge.schemas.rewriting import Form


class ThinkingFields(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Fields of the body by which servers turn thinking on or off."""

    chat_template_kwargs: dict[str, Any] | None = None
    """Arguments of the model's template (vLLM, SGLang, llama.cpp)."""
    enable_thinking: bool | None = None
    """Alibaba Cloud."""
    thinking: dict[str, Any] | None = None
    """GLM, Kimi, DeepSeek."""
    reasoning: dict[str, Any] | None = None
    """OpenRouter."""


MADE: Final = frozenset(ChatRequest.__struct_encode_fields__) - frozenset(ThinkingFields.__struct_fields__)
"""The fields of the body that the bridge makes itself, and that nothing else is taken for."""
TextCallFormat = Literal["hermes", "glm", "invoke", "dsml", "kimi"]


class ChatOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, where servers differ."""

    developer_role: Literal["system", "developer", "user"] = "system"
    """The role of developer messages; every server knows `system`."""
    system_messages: Literal["all", "one"] = "all"
    """The system messages that its models' templates take: `all`, or `one` at the beginning. Then the leading
    ones are joined, and a later one goes out as the user's, within `<system-reminder>`."""
    cache_breakpoints: bool = False
    """Whether a part may have `cache_control`, behind which its model's prompt cache ends."""
    alternating: bool = False
    """Whether neighbouring messages of the user or of the assistant are joined, for models whose templates
    take one role after the other."""
    user_after_outputs: bool = True
    """Whether a user's message may follow the outputs of calls; otherwise an assistant's `OK.` stands
    between."""
    empty_content: Literal["absent", "null", ""] = "absent"
    """The `content` of an assistant's message that has calls and no text."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The field for the output limit; older servers know `max_tokens` only."""
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_details"] | None = None
    """The field for reasoning of earlier turns; None leaves it out, with a loss."""
    reasoning_turns: Literal["all", "loop"] = "all"
    """The reasoning that is sent: `all`, or that of the `loop` of tool calls since the user's last
    message."""
    returned: frozenset[Literal["extra_content", "reasoning_details", "thinking_blocks"]] = frozenset(
        {"extra_content", "reasoning_details", "thinking_blocks"}
    )
    """What goes back as it came: `extra_content`, in which Google has thought signatures, OpenRouter's
    `reasoning_details` and LiteLLM's `thinking_blocks`. What is not here is a loss."""
    missing_signature: str | None = None
    """The thought signature of the first call of a message that has none, for servers that require it."""
    think: Literal["tagged", "opened", "off"] = "tagged"
    """How a text that reasons begins: with a think tag, or within one that the model's template has
    `opened`; with `off` tags are text."""
    think_tags: tuple[tuple[str, str], ...] = THINK_TAGS
    """The pairs of tags around reasoning in a text, such as `["[THINK]", "[/THINK]"]`."""
    later_think_tags: bool = False
    """Whether tags behind the beginning of the answer count too."""
    repeated_text: bool = False
    """Whether a piece of text or reasoning may begin with all that came before it, which is then left out:
    for servers whose deltas are cumulative, or whose last chunk has the whole text once more."""
    text_tool_calls: frozenset[TextCallFormat] = frozenset()
    """The formats of calls that its models write into the text, where no parser before them reads those:
    `hermes`, `glm`, `invoke` (Claude's, MiniMax's), `dsml` (DeepSeek), `kimi`. Only calls of tools that the
    request declares are read, each with a repair."""
    missing_reasoning: str | None = None
    """The reasoning in a message with tool calls that has none, or in one behind their outputs, for servers
    that require it."""
    stream_usage: bool = True
    """Ask for the usage chunk of a stream."""
    forward_store: bool = False
    """Pass on `store` and `metadata`, so that the upstream stores the completion too."""
    json_schema: Literal["json_schema", "json_object", "function"] = "json_schema"
    """How the server is asked for an answer that fits a schema: by its `json_schema`; by JSON mode and
    instructions; by a `function` that the model must call, or the latter where the request has tools. All
    but the first are a loss, and judged here."""
    takes_n: bool = False
    """Whether the server gives several choices to one request; otherwise it gets one request for each."""
    tools_field: Literal["tools", "functions"] = "tools"
    """The field for tools; servers that know `functions` only make one call an answer."""
    efforts: frozenset[str] | None = None
    """The levels of `reasoning.effort` that the server accepts, of those that the model has; for another one
    the nearest goes out, with a loss. Default: those of the model, all if they are not known."""
    thinking_on: ThinkingFields | None = None
    """Fields of the body that turn thinking on, sent with every level of effort."""
    thinking_off: ThinkingFields | None = None
    """Fields of the body that turn thinking off, sent instead of the effort `none`."""
    forced_while_thinking: bool = True
    """Whether its models can be made to call a tool while they think. Otherwise thinking is turned off where
    that can be said, else the choice is theirs; both are a loss."""
    uniform_strict: bool = False
    """Whether the tools of a request have to agree on `strict`: it goes out where all of them have it."""
    schema_omit: frozenset[str] = frozenset()
    """Keywords that are left out of the schemas of tools and answers, each with a loss."""
    schema_forms: frozenset[Form] = frozenset()
    """What the schemas of tools and answers have to be rewritten to, each with a loss: `const_as_enum`,
    lists of types as `types_as_nullable` or `types_as_any_of`, `arrays_with_items`, `closed_objects`, and for
    tools, whose alternatives at the root become one object, `object_root`."""
    prefill: bool = True
    """Whether a conversation may end with the assistant's message; otherwise a user's `Continue.` follows."""
    wrap_arguments: bool = False
    """Put a call's arguments that are not a JSON object under `INVALID_JSON`, for servers that parse them."""
    unanswered_calls: UnansweredCalls = "refuse"
    """For calls without an output: `refuse` the request, or `answer` them that there is none."""
    call_ids: str | None = None
    """The form of the call ids that the server accepts, as `[a-zA-Z0-9]{9}`; others are replaced.
    None: any of up to 64 characters."""
    web_search: Literal[
        "none", "openai", "perplexity", "openrouter", "groq", "groq_compound", "google", "qwen", "zai"
    ] = "none"
    """How the server is asked to search the web, by whose way of it; what it says of its sources becomes
    items then. With `none` a search is a loss."""
    passes: frozenset[str] = frozenset()
    """Names of fields that a client may give although the Responses API does not have them, which go out as
    they are, as `top_k` or `guided_json`; with `*` all of them. What a client of Chat Completions gives goes
    out in any case. None overrides what the bridge makes itself."""
    extra: dict[str, Any] = {}
    """Fields that are added to the body of every request, before what clients give. The values may be
    objects."""
    omit: frozenset[str] = frozenset()
    """Names of request fields that this upstream refuses; each use is a loss."""

    def __post_init__(self) -> None:
        if not self.think_tags or not all(map(all, self.think_tags)):
            raise ValueError(NO_TAGS)
        if self.call_ids is not None:
            call_id_form(self.call_ids)
        if made := sorted(MADE & self.extra.keys()):
            raise ValueError(f"extra: {made[0]} is made by the bridge itself")


DEFAULT_OPTIONS: Final = ChatOptions()
