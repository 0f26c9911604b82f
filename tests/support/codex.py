"""Codex notifications, in each generation of the protocol."""

from typing import Any

from tests.support.checked_inbound import Frame

TURN = "turn_1"


def notify(method: str, **params: Any) -> Frame:
    """An app-server notification of the turn."""
    return {"method": method, "params": {"threadId": "th", "turnId": TURN, **params}}


def item(when: str, kind: str, id: str, **fields: Any) -> Frame:
    """`item/started` or `item/completed`."""
    return notify(f"item/{when}", item={"type": kind, "id": id, **fields})


def started() -> Frame:
    """`turn/started`."""
    return {"method": "turn/started", "params": {"threadId": "th", "turn": {"id": TURN}}}


def ended(status: str = "completed", **turn: Any) -> Frame:
    """`turn/completed`."""
    return {"method": "turn/completed", "params": {"turn": {"id": TURN, "status": status, **turn}}}


def said(delta: str, id: str = "msg_a") -> Frame:
    """A delta of a message."""
    return notify("item/agentMessage/delta", itemId=id, delta=delta)


def counts(incoming: int, outgoing: int, cached: int = 0, reasoning: int = 0) -> dict[str, int]:
    """Token counts as the app-server spells them."""
    return {
        "inputTokens": incoming,
        "outputTokens": outgoing,
        "cachedInputTokens": cached,
        "reasoningOutputTokens": reasoning,
        "totalTokens": incoming + outgoing,
    }


def spent(total: dict[str, int], last: dict[str, int], turn: str = TURN) -> Frame:
    """`thread/tokenUsage/updated`."""
    return notify("thread/tokenUsage/updated", turnId=turn, tokenUsage={"total": total, "last": last})


def legacy(kind: str, **fields: Any) -> Frame:
    """`codex/event/<kind>`."""
    return {"method": f"codex/event/{kind}", "params": {"id": "0", "msg": {"type": kind, **fields}}}


def proxied(kind: str, **fields: Any) -> Frame:
    """A proxy's `response.<kind>`."""
    return {"type": f"response.{kind}", **fields}
