"""Whatever openai-python's types and Codex can send reaches each kind of upstream, is reported as lost or is
refused by name. A row that is silently left out fails."""

import json
from typing import Any, NamedTuple

import pytest

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from tests.support.upstream_requests import CLOSED, COLUMNS, FACTS, drive

USER = {"type": "message", "role": "user", "content": "Hi"}
MARK = "marked"
FUNCTION = {"type": "function", "name": MARK, "parameters": CLOSED}
LOSS, KEPT, REFUSED = "loss", "kept", "refused"
SEARCHED = {"chat": LOSS, "anthropic": KEPT, "published": LOSS}
FUNCTIONS_ONLY = ("chat", "anthropic", "published")


class Row(NamedTuple):
    """What is sent, where a report of its loss begins, what becomes of it (`others` where the upstream is not
    a Responses server of OpenAI's kind), and the text in what goes out that shows that it was kept."""

    sent: dict[str, Any]
    where: tuple[str, ...]
    others: str | dict[str, str] = LOSS
    same: str = KEPT
    shown: str = MARK


def field(name: str, value: Any, **more: Any) -> Row:
    return Row({name: value}, (name,), **more)


def tool(kind: str, others: str = LOSS, **fields: Any) -> Row:
    # a mark that no type takes as its own name
    declaration = {"type": kind, **fields}
    return Row(
        {"tools": [declaration]}, ("tools",), others, shown=json.dumps(declaration, separators=(",", ":"))
    )


def item(given: dict[str, Any], *others: dict[str, Any], outcome: Any = LOSS, shown: str = MARK) -> Row:
    where = (f"input[{1}]", f"item.{given['type']}")
    return Row({"input": [USER, given, *others]}, where, outcome, shown=shown)


SEARCH = {"type": "tool_search", "execution": "client"}
CALL = {"type": "tool_search_call", "execution": "client", "call_id": "c1", "arguments": {"query": "x"}}
NAMESPACE = {"type": "namespace", "name": "mcp__calendar", "tools": [FUNCTION]}
FOUND = {"type": "tool_search_output", "execution": "client", "call_id": "c1", "tools": [NAMESPACE]}
PROGRAM = {"type": "program", "id": "p1", "call_id": "p", "code": MARK, "fingerprint": "f"}
RESULT = {"type": "program_output", "id": "p2", "call_id": "p", "result": "42", "status": "completed"}
APPROVAL = {"id": f"mcpr_{MARK}", "name": "n", "server_label": "s", "arguments": "{}"}


def agent_message(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "agent_message", "author": "/main", "recipient": "/main/a", "content": list(content)}


ROWS: dict[str, Row] = {
    # fields of the request
    "background_options": field("background_options", {"completion_window": "8h"}, same=LOSS),
    "access_programs": field("access_programs", {"cyber": MARK}),
    "prompt_cache_options": field("prompt_cache_options", {"comparison_response_id": MARK, "prewarm": True}),
    "comparison_response_id": field("comparison_response_id", MARK),
    "prewarm": field("prewarm", True, shown='"prewarm":true'),
    "image": field("image", {"context_compression": MARK}),
    "moderation": field("moderation", {"model": MARK}),
    "prompt": field("prompt", {"id": MARK}, others=REFUSED),
    "prompt_cache_retention": field(
        "prompt_cache_retention", MARK, others={"chat": KEPT, "anthropic": LOSS, "published": LOSS}
    ),
    "reasoning.context": Row({"reasoning": {"context": MARK}}, ("reasoning.context",)),
    "reasoning.mode": Row({"reasoning": {"mode": MARK}}, ("reasoning.mode",)),
    "effort max": Row(
        {"reasoning": {"effort": "max"}},
        ("reasoning.effort",),
        {"chat": KEPT, "anthropic": LOSS, "published": KEPT},
        shown='"max"',
    ),
    **{
        f"tier {tier}": field(
            "service_tier", tier, others={"chat": KEPT, "anthropic": LOSS, "published": KEPT}, shown=tier
        )
        for tier in ("fast", "ultrafast")
    },
    # tools
    **{
        kind: tool(kind)
        for kind in (
            "file_search",
            "computer",
            "computer_use_preview",
            "code_interpreter",
            "programmatic_tool_calling",
            "image_generation",
            "tool_search",
        )
    },
    "mcp": tool("mcp", server_label="s", tunnel_id=MARK),
    "web_search": Row({"tools": [{"type": "web_search"}]}, ("tools",), SEARCHED, shown='"web_search'),
    "web_search_preview": Row(
        {"tools": [{"type": "web_search_preview"}]}, ("tools",), SEARCHED, shown='"web_search'
    ),
    "web_search of Codex": Row(
        {"tools": [{"type": "web_search", "external_web_access": True}]},
        ("tools",),
        SEARCHED,
        shown='"web_search',
    ),
    "function": Row({"tools": [FUNCTION]}, ("tools",), KEPT),
    "custom": Row({"tools": [{"type": "custom", "name": MARK}]}, ("tools",), KEPT),
    "namespace": Row({"tools": [NAMESPACE]}, ("tools",), KEPT),
    **{
        kind: Row({"tools": [{"type": kind}]}, ("tools",), KEPT, shown=f'"{kind}"')
        for kind in ("shell", "local_shell", "apply_patch")
    },
    "tool_search of a client": Row({"tools": [SEARCH]}, ("tools",), KEPT, shown='"tool_search"'),
    "allowed_callers": Row(
        {"tools": [{**FUNCTION, "allowed_callers": ["programmatic"]}]},
        ("tools[0].allowed_callers",),
        shown="programmatic",
    ),
    "output_schema": Row(
        {"tools": [{**FUNCTION, "output_schema": {"type": "object"}}]},
        ("tools[0].output_schema",),
        shown='"output_schema"',
    ),
    # items
    "configuration_update": item(
        {"type": "configuration_update", "reasoning": {"effort": "low"}}, outcome=KEPT, shown='"low"'
    ),
    "additional_tools": item(
        {"type": "additional_tools", "role": "developer", "tools": [NAMESPACE]}, outcome=KEPT
    ),
    "agent_message": item(agent_message({"type": "input_text", "text": MARK}), outcome=KEPT),
    "agent_message with a task": item(
        agent_message({"type": "encrypted_content", "encrypted_content": f"Find the {MARK} one"}),
        outcome=KEPT,
    ),
    "agent_message, encrypted": item(
        agent_message({"type": "encrypted_content", "encrypted_content": f"gAAAAAB{MARK * 20}=="})
    ),
    "tool_search_call and output": item(CALL, FOUND, outcome=KEPT),
    "program": item(PROGRAM, RESULT, outcome=KEPT),
    "program that has not ended": item(PROGRAM, outcome=KEPT),
    "program_output alone": item({**RESULT, "result": MARK}, outcome=KEPT),
    "mcp_approval_request": item({"type": "mcp_approval_request", **APPROVAL}),
    "mcp_approval_response": item(
        {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{MARK}", "approve": True}
    ),
    "mcp_call": item({"type": "mcp_call", **APPROVAL, "id": f"mcp_{MARK}"}),
    "mcp_list_tools": item(
        {"type": "mcp_list_tools", "id": f"mcpl_{MARK}", "server_label": "s", "tools": []}
    ),
    "computer_call_output": item(
        {"type": "computer_call_output", "call_id": "c", "output": {"image_url": MARK}}
    ),
    "image_generation_call": item(
        {"type": "image_generation_call", "id": f"ig_{MARK}", "result": "", "status": "x"}
    ),
    # it is followed before an upstream is asked: see the tests of compaction
    "compaction_trigger": item({"type": "compaction_trigger"}, shown='"compaction_trigger"'),
}


def expected(row: Row, column: str) -> str:
    if column not in FUNCTIONS_ONLY:
        return row.same
    return row.others if isinstance(row.others, str) else row.others[column]


@pytest.mark.parametrize("column", [*FUNCTIONS_ONLY, "responses"])
@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_silent(name: str, column: str) -> None:
    row = ROWS[name]
    request = decode_request(json.dumps({"model": "m", "input": [USER], **row.sent}))
    outcome = expected(row, column)
    if outcome == REFUSED:
        with pytest.raises(InvalidRequestError) as refused:
            drive(column, request)
        assert refused.value.param == row.where[0]
        return
    body, losses = drive(column, request)
    lost = [where for where in losses if where.startswith(row.where)]
    shown = row.shown in encode(body).decode()
    assert (bool(lost), shown) == ((True, False) if outcome == LOSS else (False, True)), (losses, body)


def test_every_column_is_an_upstream_dialect() -> None:
    assert {*FUNCTIONS_ONLY, "responses"} <= COLUMNS.keys()
    assert FACTS.efforts == ("low",)  # so that `max` is one that the model has not
