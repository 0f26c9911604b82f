"""What Codex asks of its client, and the answers, as one table."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Question(NamedTuple):
    """`accept` and `refuse` are the answers; `asks`: it is for leave, which a client may be asked for."""

    kind: str
    accept: dict[str, Any]
    refuse: dict[str, Any]
    asks: bool = True


# refused and not cancelled: Codex then goes on without it and says so, where a cancelled turn has no answer
_DECISIONS: Final = ({"decision": "accept"}, {"decision": "decline"})
_NO_FORM: Final = {"content": None, "_meta": None}
QUESTIONS: Final = {
    "item/commandExecution/requestApproval": Question("command_execution", *_DECISIONS),
    "item/fileChange/requestApproval": Question("file_change", *_DECISIONS),
    "item/permissions/requestApproval": Question(
        "permissions", {"permissions": {}, "scope": "turn"}, {"permissions": {}, "scope": "turn"}
    ),
    "mcpServer/elicitation/request": Question(
        "mcp_elicitation", {"action": "accept", **_NO_FORM}, {"action": "decline", **_NO_FORM}
    ),
    "item/tool/requestUserInput": Question("user_input", {"answers": {}}, {"answers": {}}, asks=False),
    "item/tool/call": Question(
        "tool_call",
        {"contentItems": [], "success": False},
        {"contentItems": [], "success": False},
        asks=False,
    ),
}


def answer(method: str, params: dict[str, Any], *, accept: bool) -> dict[str, Any] | None:
    """The answer; None for a question of an unknown kind."""
    question = QUESTIONS.get(method)
    if question is None:
        return None
    if accept and question.kind == "permissions":
        asked = params.get("permissions")
        return {**question.accept, "permissions": asked if isinstance(asked, dict) else {}}
    return question.accept if accept else question.refuse
