"""The data from which a prompt is built: the model's identity, its environment, history, and the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from openresponses_agent.prompt.raw import (
    CacheBreakpointPart,
    ChatMessage,
    ImageSource,
    TextPart,
    ThinkingPart,
)
from openresponses_agent.tools.registry import Tool
from openresponses_agent.tools.results import LanguageModelToolResult
from openresponses_bridge.protocol.hosted import McpApprovalRequest, asks_approval, view
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.text import counted, escaped

# Rounds of tool calling, as data. A loop keeps them, a prompt is built from them, and a loop is resumed from
# a journal of them. In JSON, names are camelCase, except in the messages of a prompt. Results are kept
# separately from the rounds, by the ids of their calls.


class ToolCall(Struct, frozen=True, rename="camel"):
    """A call of the model. `id` is ours and unique, `call_id` is the model's; `arguments` is its JSON
    text."""

    id: str
    name: str
    arguments: str
    call_id: str


class ThinkingDataItem(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The thoughts of the model in a round. `thinking` is for people; `parts` are the unchanged blocks, which
    are sent back to the model. `thinking_tokens` is their count, `associated_round` the round's index."""

    thinking: str
    thinking_tokens: int | None = None
    associated_round: int | None = None
    parts: list[ThinkingPart] = msgspec.field(default_factory=list)

    @property
    def blocks(self) -> list[ThinkingPart]:
        """The blocks; the text as one block if none were kept."""
        return self.parts or ([ThinkingPart(self.thinking)] if self.thinking else [])


class ApprovalRequest(Struct, frozen=True):
    """A call on an MCP server that waits for the user's approval. `id` is the id of its result here,
    `request_id` the server's id; `arguments` is the model's JSON text."""

    id: str
    request_id: str
    server_label: str
    name: str
    arguments: str


class Citation(Struct, frozen=True):
    """A page that the model's text cites, as its server sent it."""

    url: str
    title: str


class ToolCallRound(Struct, frozen=True, omit_defaults=True, kw_only=True, rename="camel"):
    """One request and its answer. `prompt` are the messages sent, `response` the model's text, `timestamp`
    milliseconds since 1970. The answer is the last of its run if both `tool_calls` and `approvals` are empty.

    `items` are those of the tools that the model's server ran, as it sent them, and its requests for
    approval. `citations` are without repetitions. `max_tool_calls` is the limit of the response, if its calls
    reached it.
    """

    prompt: list[ChatMessage]
    response: str
    tool_calls: Sequence[ToolCall]
    id: str = ""
    stateful_marker: str | None = None
    thinking: ThinkingDataItem | None = None
    timestamp: int = 0
    items: list[dict[str, Any]] = field(default_factory=list)
    citations: list[Citation] = field(default_factory=list)
    max_tool_calls: int | None = None

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """The requests for approval among the items."""
        return [request for item in self.items if (request := approval_of(item)) is not None]


def approval_of(item: dict[str, Any]) -> ApprovalRequest | None:
    """Return the request for approval in an item; None for other items, and for one without its fields."""
    unknown_item = UnknownItem(item)
    shown = view(unknown_item) if asks_approval(unknown_item) else None
    if not isinstance(shown, McpApprovalRequest) or not shown.id:
        return None
    return ApprovalRequest(
        f"{_APPROVAL}{shown.id}", shown.id, shown.server_label, shown.name, shown.arguments
    )


ToolCallResults = Mapping[str, LanguageModelToolResult]
"""Results by `ToolCall.id`, and decisions by `ApprovalRequest.id`; a declined request is an error."""


_APPROVAL: Final = "approval_"
"""Separates the ids of a server from those of calls."""
MAX_NAMES: Final = 50
"""The most names that a list in the global context shows."""

SystemPart = str | TextPart | CacheBreakpointPart
"""A piece of the system text: identity, rules, mode, toggles. It is never shortened."""


class GlobalContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place where the model works: paths and names, as they are shown. No file is read.

    Lists show their first fifty names. Names are put on one line, so that a file's name can't add lines to
    the system text; `notes` are the host's own and are added unchanged.
    """

    workspace_root: str = ""
    folders: list[str] = field(default_factory=list)
    open_files: list[str] = field(default_factory=list)
    repository: str = ""
    git_branch: str = ""
    modified_files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return one line for each known thing; "" if nothing is known."""
        branch = self.git_branch
        if branch and self.modified_files:
            branch += f" (modified: {counted(len(self.modified_files), 'file')})"
        lines = {
            "Workspace": self.workspace_root,
            "Folders": _listed(self.folders),
            "Open files": _listed(self.open_files),
            "Repository": self.repository,
            "Git branch": branch,
            "Modified files": _listed(self.modified_files),
        }
        facts = (f"{one_line(name)}: {one_line(value)}" for name, value in lines.items() if value)
        return "\n".join([*facts, *self.notes])


class Attachment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something shown to the model in addition to the question: a file, lines of a file, an image. `name` is
    its path or title. Lines count from 1. `text` may be shortened to fit a budget."""

    name: str
    text: str = ""
    image: ImageSource | None = None
    language: str = ""
    start_line: int | None = None
    end_line: int | None = None


class Reference(Struct, frozen=True, omit_defaults=True):
    """Something named in the question: `#file:README.md`, `@workspace`, `#tool:edit_file`. `value` is its
    meaning, if that is more than its name."""

    name: str
    value: str = ""


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An earlier question with its answer: rounds with their results, a text, or both."""

    query: str
    attachments: list[Attachment] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    rounds: Sequence[ToolCallRound] = ()
    results: ToolCallResults = field(default_factory=dict)
    response: str = ""


class ConversationSummary(Struct, frozen=True):
    """`text` replaces the first `covers` units of the conversation: each question is one, and each round with
    its results. The count is valid as long as the conversation only grows."""

    text: str
    covers: int


class PromptContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of a prompt. `tool_call_rounds` belong to the question that is being answered.
    `stateful_marker` is copied to the request.

    `hosted_tools` are the tools that the model's server runs, as a Responses request declares them; other
    requests leave them out. `granted` has the ids of the approvals that may be sent: those for the last round
    that the user gave to this process. Any other approval was given to a process that has stopped, and its
    call may have run.
    """

    query: str = ""
    attachments: list[Attachment] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    system: Sequence[SystemPart] = ()
    global_context: GlobalContext = GlobalContext()
    history: Sequence[Turn] = ()
    tool_call_rounds: Sequence[ToolCallRound] = ()
    tool_call_results: ToolCallResults = field(default_factory=dict)
    tools: Sequence[Tool] = ()
    hosted_tools: Sequence[dict[str, Any]] = ()
    granted: frozenset[str] = frozenset()
    summary: ConversationSummary | None = None
    stateful_marker: str | None = None

    def with_summary(self, summary: ConversationSummary) -> PromptContext:
        """Return this context with a summary of its beginning."""
        return msgspec.structs.replace(self, summary=summary)


def one_line(text: str) -> str:
    """Return the text without line ends and other control characters."""
    return escaped(text, lambda _: " ")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return shown if len(names) <= MAX_NAMES else f"{shown} and {len(names) - MAX_NAMES} more"
