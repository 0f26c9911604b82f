"""One table of the notifications of all three generations, with what is done with each.

A generation's reader has a handler for a notification that is READ. One that is SHOWN becomes an extension
event, for clients that display it. One that is IGNORED has nothing that a response could have. A request that
is ASKED waits for an answer and becomes an event; one that is UNANSWERED is reported, since a response can't
have it. A notification in no row is unknown, and is reported once per name.

The rows are the whole protocol of Codex 0.80 and 0.169, and OpenAI's streaming events.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from openresponses_bridge.dialects.codex.turn import SLUG
from openresponses_bridge.dialects.codex.types import Generation, Notification, notification_of


class Action(Enum):
    """The ways to handle a notification."""

    READ = "read"
    SHOWN = "shown"
    IGNORED = "ignored"
    ASKED = "asked"
    UNANSWERED = "unanswered"


class Route(NamedTuple):
    """What is done with a notification; `kind` is the type of the extension event for one that is SHOWN."""

    action: Action
    kind: str = ""


_READ, _IGNORED = Route(Action.READ), Route(Action.IGNORED)
_ASKED, _UNANSWERED = Route(Action.ASKED), Route(Action.UNANSWERED)


def _shown(kind: str) -> Route:
    return Route(Action.SHOWN, SLUG + kind)


def _rows(route: Route, names: str, under: str = "") -> dict[str, Route]:
    return dict.fromkeys((under + name for name in names.split()), route)


_APP_SERVER: Final = {
    **_rows(_READ, "error turn/completed thread/tokenUsage/updated item/started item/completed"),
    **_rows(_READ, "agentMessage/delta reasoning/textDelta reasoning/summaryTextDelta", "item/"),
    **_rows(_READ, "commandExecution/outputDelta fileChange/outputDelta", "item/"),
    "turn/diff/updated": _shown("turn_diff"),
    "turn/plan/updated": _shown("turn_plan"),
    "serverRequest/resolved": _shown("request_resolved"),
    "model/rerouted": _shown("model_rerouted"),
    "item/plan/delta": _shown("plan.delta"),
    "item/mcpToolCall/progress": _shown("mcp_tool_call.progress"),
    "item/fileChange/patchUpdated": _shown("file_change.patch_updated"),
    "item/commandExecution/terminalInteraction": _shown("command_execution.terminal_interaction"),
    "item/autoApprovalReview/started": _shown("auto_approval_review.started"),
    "item/autoApprovalReview/completed": _shown("auto_approval_review.completed"),
    # repeated by the items and the end of the turn
    **_rows(_IGNORED, "turn/started item/reasoning/summaryPartAdded rawResponseItem/completed"),
    **_rows(_IGNORED, "rawResponse/completed turn/moderationMetadata hook/started hook/completed"),
    # about the thread
    **_rows(_IGNORED, "started status/changed readState/changed archived deleted unarchived", "thread/"),
    **_rows(
        _IGNORED, "closed reverted name/updated section/changed attachment/updated goal/updated", "thread/"
    ),
    **_rows(_IGNORED, "prediction/updated goal/cleared queue/changed project/updated compacted", "thread/"),
    **_rows(
        _IGNORED, "environment/connected environment/disconnected settings/updated search/partial", "thread/"
    ),
    **_rows(_IGNORED, "started itemAdded item/started item/completed sdp error closed", "thread/realtime/"),
    **_rows(_IGNORED, "item/transcript/delta transcript/delta transcript/done", "thread/realtime/"),
    **_rows(_IGNORED, "outputAudio/delta", "thread/realtime/"),
    # about the account, the process, and what it runs for its own client
    **_rows(_IGNORED, "updated rateLimits/updated login/completed gatewayOAuth/changed", "account/"),
    **_rows(_IGNORED, "oauthLogin/completed startupStatus/updated event/stream/notification", "mcpServer/"),
    **_rows(_IGNORED, "import/progress import/completed", "externalAgentConfig/"),
    **_rows(_IGNORED, "sessionUpdated sessionCompleted", "fuzzyFileSearch/"),
    **_rows(_IGNORED, "authRecoveryStarted authRecoveryCompleted", "modelProvider/"),
    **_rows(_IGNORED, "model/verification model/safetyBuffering/updated skills/changed project/changed"),
    **_rows(_IGNORED, "app/list/updated remoteControl/status/changed fs/changed command/exec/outputDelta"),
    **_rows(_IGNORED, "process/outputDelta process/exited autoApprovalReview/strictReviewRequired"),
    **_rows(_IGNORED, "windows/worldWritableWarning windowsSandbox/setupCompleted"),
    **_rows(_IGNORED, "warning guardianWarning deprecationNotice configWarning"),
    # requests
    **_rows(_ASKED, "commandExecution/requestApproval fileChange/requestApproval", "item/"),
    **_rows(_ASKED, "item/permissions/requestApproval applyPatchApproval execCommandApproval"),
    **_rows(_UNANSWERED, "item/tool/requestUserInput item/tool/call mcpServer/elicitation/request"),
    **_rows(_UNANSWERED, "account/chatgptAuthTokens/refresh attestation/generate currentTime/read"),
}

_LEGACY: Final = {
    **_rows(_READ, "agent_message agent_message_delta agent_message_content_delta agent_reasoning"),
    **_rows(_READ, "agent_reasoning_delta agent_reasoning_raw_content agent_reasoning_raw_content_delta"),
    **_rows(_READ, "agent_reasoning_section_break reasoning_content_delta reasoning_raw_content_delta"),
    **_rows(_READ, "item_started item_completed token_count"),
    **_rows(_READ, "exec_command_begin exec_command_output_delta exec_command_end"),
    **_rows(_READ, "patch_apply_begin patch_apply_end mcp_tool_call_begin mcp_tool_call_end"),
    **_rows(_READ, "web_search_begin web_search_end exec_approval_request apply_patch_approval_request"),
    **_rows(_READ, "error stream_error turn_aborted task_complete"),
    "turn_diff": _shown("turn_diff"),
    "plan_update": _shown("turn_plan"),
    "terminal_interaction": _shown("command_execution.terminal_interaction"),
    # repeated by the items and the end of the turn
    **_rows(_IGNORED, "task_started turn_started turn_completed user_message raw_response_item"),
    **_rows(_IGNORED, "view_image_tool_call"),
    # about the session, the account, and what its own client asked for
    **_rows(_IGNORED, "session_configured mcp_startup_update mcp_startup_complete background_event"),
    **_rows(_IGNORED, "context_compacted thread_rolled_back undo_started undo_completed shutdown_complete"),
    **_rows(_IGNORED, "entered_review_mode exited_review_mode elicitation_request skills_update_available"),
    **_rows(_IGNORED, "get_history_entry_response mcp_list_tools_response list_custom_prompts_response"),
    **_rows(_IGNORED, "list_skills_response auth_status_change login_chat_gpt_complete"),
    **_rows(_IGNORED, "warning config_warning deprecation_notice"),
}

_RESPONSE: Final = {
    **_rows(_READ, "output_text.delta output_text.annotation.added refusal.delta", "response."),
    **_rows(_READ, "reasoning.delta reasoning_text.delta", "response."),
    **_rows(_READ, "reasoning_summary.delta reasoning_summary_text.delta", "response."),
    **_rows(_READ, "output_item.added output_item.done", "response."),
    **_rows(_READ, "function_call_arguments.delta function_call_arguments.done", "response."),
    **_rows(_READ, "custom_tool_call_input.delta custom_tool_call_input.done", "response."),
    **_rows(_READ, "completed done incomplete failed error", "response."),
    # repeated by the items and the end of the response
    **_rows(_IGNORED, "created queued in_progress content_part.added content_part.done", "response."),
    **_rows(_IGNORED, "output_text.done refusal.done reasoning.done reasoning_text.done", "response."),
    **_rows(_IGNORED, "reasoning_summary.done reasoning_summary_text.done", "response."),
    **_rows(_IGNORED, "reasoning_summary_part.added reasoning_summary_part.done", "response."),
    # progress of items that a server fills by itself
    **_rows(_IGNORED, "in_progress searching completed", "response.web_search_call."),
    **_rows(_IGNORED, "in_progress searching completed", "response.file_search_call."),
    **_rows(_IGNORED, "in_progress interpreting completed", "response.code_interpreter_call."),
    **_rows(_IGNORED, "delta done", "response.code_interpreter_call_code."),
    **_rows(_IGNORED, "in_progress generating partial_image completed", "response.image_generation_call."),
    **_rows(_IGNORED, "in_progress completed failed", "response.mcp_call."),
    **_rows(_IGNORED, "delta done", "response.mcp_call_arguments."),
    **_rows(_IGNORED, "in_progress completed failed", "response.mcp_list_tools."),
    # the spoken answer, whose words come as text
    **_rows(_IGNORED, "audio.delta audio.done", "response."),
    **_rows(_IGNORED, "audio.transcript.delta audio.transcript.done", "response."),
}

ROUTES: Final[Mapping[Generation, Mapping[str, Route]]] = {
    Generation.LEGACY: _LEGACY,
    Generation.APP_SERVER: _APP_SERVER,
    Generation.RESPONSE: _RESPONSE,
}
"""Generation → name of the notification → what is done with it."""


_STARTS = frozenset({"turn/started", "task_started", "turn_started", "response.created"})
_COUNTS = frozenset({"thread/tokenUsage/updated", "token_count"})


def opens_turn(notification: Notification) -> bool:
    """Return True if this notification is enough to know the turn that it names. Counts of tokens are not: a
    resumed thread begins with those of its last turn."""
    if not notification.turn_id or notification.name in _COUNTS:
        return False
    route = ROUTES.get(notification.generation, {}).get(notification.name)
    if route is None:
        return notification.name.startswith(("turn/", "item/"))
    return notification.name in _STARTS or route.action is not Action.IGNORED


def is_known(method: str) -> bool:
    """Return True if the table has a notification of the app-server with this method."""
    notification = notification_of({"method": method})
    return notification is not None and notification.name in ROUTES[notification.generation]
