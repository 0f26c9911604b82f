"""Builds the messages of a request from a context and a question."""

from openresponses_agent.prompt.anthropic import (
    AnthropicPrompt,
    anthropic_messages_to_raw_messages,
    api_messages_to_anthropic,
)
from openresponses_agent.prompt.assembly import collapse_system_messages
from openresponses_agent.prompt.bodies import (
    create_anthropic_request_body,
    create_capi_request_body,
    create_responses_request_body,
)
from openresponses_agent.prompt.chat import capi_to_raw_messages, raw_messages_to_capi
from openresponses_agent.prompt.context import (
    Attachment,
    ConversationSummary,
    GlobalContext,
    PromptContext,
    Reference,
    ThinkingDataItem,
    ToolCall,
    ToolCallResults,
    ToolCallRound,
    Turn,
)
from openresponses_agent.prompt.fitting import PromptBudgetError
from openresponses_agent.prompt.items import input_items_to_raw_messages, raw_messages_to_input_items
from openresponses_agent.prompt.raw import (
    Base64Image,
    CacheBreakpointPart,
    ChatMessage,
    ChatMessageFunction,
    ChatMessageToolCall,
    ImagePart,
    ImageUrl,
    OpaquePart,
    TextPart,
    ThinkingPart,
)
from openresponses_agent.prompt.renderer import BuildPromptResult, PromptRenderer
from openresponses_agent.prompt.summary import (
    SummaryRequest,
    budget_passed,
    condense,
    share_passed,
    summary_prompt,
)

__all__ = [
    "AnthropicPrompt",
    "Attachment",
    "Base64Image",
    "BuildPromptResult",
    "CacheBreakpointPart",
    "ChatMessage",
    "ChatMessageFunction",
    "ChatMessageToolCall",
    "ConversationSummary",
    "GlobalContext",
    "ImagePart",
    "ImageUrl",
    "OpaquePart",
    "PromptBudgetError",
    "PromptContext",
    "PromptRenderer",
    "Reference",
    "SummaryRequest",
    "TextPart",
    "ThinkingDataItem",
    "ThinkingPart",
    "ToolCall",
    "ToolCallResults",
    "ToolCallRound",
    "Turn",
    "anthropic_messages_to_raw_messages",
    "api_messages_to_anthropic",
    "budget_passed",
    "capi_to_raw_messages",
    "collapse_system_messages",
    "condense",
    "create_anthropic_request_body",
    "create_capi_request_body",
    "create_responses_request_body",
    "input_items_to_raw_messages",
    "raw_messages_to_capi",
    "raw_messages_to_input_items",
    "share_passed",
    "summary_prompt",
]
