"""What one server wants where servers of the dialect differ."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from openresponses_bridge.calls.call_ids import call_id_form
from openresponses_bridge.dialects.base import NO_TAGS, THINK_TAGS, UnansweredCalls
from openresponses_bridge.dialects.chat_completions.types import ChatRequest
from openresponses_bridge.schemas.rewriting import Form


class ThinkingFields(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The fields of the body with which servers turn thinking on or off."""

    chat_template_kwargs: dict[str, Any] | None = None
    """Arguments of the model's template (vLLM, SGLang, llama.cpp)."""
    enable_thinking: bool | None = None
    """The field of Alibaba Cloud."""
    thinking: dict[str, Any] | None = None
    """The field of GLM, Kimi and DeepSeek."""
    reasoning: dict[str, Any] | None = None
    """The field of OpenRouter."""


MADE: Final = frozenset(ChatRequest.__struct_encode_fields__) - frozenset(ThinkingFields.__struct_fields__)
"""The fields of the body that the bridge makes itself, and that nothing else is taken for."""
TextCallFormat = Literal["hermes", "glm", "invoke", "dsml", "kimi"]


class ChatOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, for differences between its servers."""

    developer_role: Literal["system", "developer", "user"] = "system"
    """The role in which developer messages are sent. Every server accepts `system`."""
    system_messages: Literal["all", "one"] = "all"
    """The system messages that the templates of its models accept: `all`, or `one` at the beginning. With
    `one`, the leading ones are joined, and later ones are sent as the user's, within `<system-reminder>`."""
    cache_breakpoints: bool = False
    """Whether the server accepts `cache_control` in a content part, after which the prompt cache of its model
    ends."""
    alternating: bool = False
    """Whether adjacent messages of the user, or of the assistant, are joined, for models whose templates need
    alternating roles."""
    user_after_outputs: bool = True
    """Whether a user's message may follow the outputs of calls. If not, an assistant's message `OK.` is put
    between them."""
    empty_content: Literal["absent", "null", ""] = "absent"
    """The `content` of an assistant's message that has calls but no text."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The field with the output limit. Older servers accept only `max_tokens`."""
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_details"] | None = None
    """The field with the reasoning of earlier turns. Without it, reasoning is left out, with a loss."""
    reasoning_turns: Literal["all", "loop"] = "all"
    """The reasoning that is sent: `all`, or with `loop` only that since the user's last message."""
    returned: frozenset[Literal["extra_content", "reasoning_details", "thinking_blocks"]] = frozenset(
        {"extra_content", "reasoning_details", "thinking_blocks"}
    )
    """The fields of an answer that are sent back unchanged in later turns: `extra_content`, in which Google
    has thought signatures, OpenRouter's `reasoning_details` and LiteLLM's `thinking_blocks`. Those that are
    not listed are a loss."""
    missing_signature: str | None = None
    """The thought signature that is sent with the first call of a message whose calls have none, to servers
    that require one."""
    think: Literal["tagged", "opened", "off"] = "tagged"
    """How a text that contains reasoning begins: `tagged` with a think tag, `opened` within one that the
    model's template has opened. With `off`, such tags are text."""
    think_tags: tuple[tuple[str, str], ...] = THINK_TAGS
    """The pairs of tags around reasoning in a text, such as `["[THINK]", "[/THINK]"]`."""
    later_think_tags: bool = False
    """Whether think tags after the beginning of the answer count too."""
    repeated_text: bool = False
    """Whether a piece of text or reasoning may begin with everything that was sent before it, which is then
    left out. This is for servers whose deltas are cumulative, or whose last chunk repeats the whole text."""
    text_tool_calls: frozenset[TextCallFormat] = frozenset()
    """The formats of tool calls that its models write into the text, if the server does not parse them:
    `hermes`, `glm`, `invoke` (Claude's, MiniMax's), `dsml` (DeepSeek), `kimi`. Only calls of tools that the
    request declares are read, each with a repair."""
    missing_reasoning: str | None = None
    """The reasoning that is sent with a message that has none, if it has tool calls or follows their outputs,
    to servers that require it."""
    stream_usage: bool = True
    """Whether a stream is asked to report usage."""
    forward_store: bool = False
    """Whether `store` and `metadata` are sent, so that the upstream stores the completion too."""
    json_schema: Literal["json_schema", "json_object", "function"] = "json_schema"
    """How the server is asked for an answer that fits a schema: `json_schema` by its own field, `json_object`
    by JSON mode and instructions, `function` by a function that the model must call, or as `json_object` if
    the request has tools. The last two are a loss, and the answer is validated here."""
    takes_n: bool = False
    """Whether one request may ask the server for several choices. If not, a request is sent for each."""
    tools_field: Literal["tools", "functions"] = "tools"
    """The field with the tools. Servers that accept only `functions` make one call per answer."""
    efforts: frozenset[str] | None = None
    """The levels of `reasoning.effort` that the server accepts, among those of the model. Any other level is
    replaced by the nearest one, with a loss. Default: those of the model; all if these are unknown."""
    thinking_on: ThinkingFields | None = None
    """The fields of the body that turn thinking on. They are sent with every level of effort."""
    thinking_off: ThinkingFields | None = None
    """The fields of the body that turn thinking off. They are sent instead of the effort `none`."""
    forced_while_thinking: bool = True
    """Whether a request can require a tool call of its models while they think. If not, thinking is turned
    off if that is possible, otherwise the call is left to the model. Both are a loss."""
    uniform_strict: bool = False
    """Whether the server needs one value of `strict` for all tools of a request. If they differ, it is
    `false` for all, with a loss."""
    schema_omit: frozenset[str] = frozenset()
    """Keywords that are removed from the schemas of tools and answers, each with a loss."""
    schema_forms: frozenset[Form] = frozenset()
    """How the schemas of tools and answers are rewritten, each with a loss: `const_as_enum`, lists of types
    as `types_as_nullable` or `types_as_any_of`, `arrays_with_items`, `closed_objects`, and for tools
    `object_root`, which merges alternatives at the root into one object."""
    prefill: bool = True
    """Whether a conversation may end with the assistant's message. If not, a user's message `Continue.` is
    added."""
    wrap_arguments: bool = False
    """Whether arguments of calls that are not a JSON object are sent under the key `INVALID_JSON`, for
    servers that parse arguments."""
    unanswered_calls: UnansweredCalls = "refuse"
    """What is done with calls that have no output: `refuse` refuses the request, `answer` sends an output
    that says there is none."""
    call_ids: str | None = None
    """The form of the call ids that the server accepts, such as `[a-zA-Z0-9]{9}`. Other ids are replaced.
    Default: any id of up to 64 characters."""
    web_search: Literal[
        "none", "openai", "perplexity", "openrouter", "groq", "groq_compound", "google", "qwen", "zai"
    ] = "none"
    """Whose way of asking for a web search the server has. The sources that it reports become items. With
    `none`, a search is a loss."""
    passes: frozenset[str] = frozenset()
    """The names of fields that clients may send although the Responses API does not have them, such as
    `top_k` or `guided_json`. They are sent unchanged. `*` stands for all. The fields of Chat Completions' own
    clients are sent in any case. No such field replaces one that the bridge itself makes."""
    extra: dict[str, Any] = {}
    """Fields that are added to the body of every request. They replace fields of clients that are passed on.
    One that the bridge itself makes is refused. Values may be objects."""
    omit: frozenset[str] = frozenset()
    """The names of request fields that this upstream refuses. Each use is a loss."""

    def __post_init__(self) -> None:
        if not self.think_tags or not all(map(all, self.think_tags)):
            raise ValueError(NO_TAGS)
        if self.call_ids is not None:
            call_id_form(self.call_ids)
        if conflicts := sorted(MADE & self.extra.keys()):
            raise ValueError(f"extra: {conflicts[0]} is made by the bridge itself")


DEFAULT_OPTIONS: Final = ChatOptions()
