"""How many tokens a text or message is, for VS Code's `provideTokenCount`."""

from __future__ import annotations

from msgspec import Struct

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.dialects.vscode import ChatMessage, ChatRequest, from_vscode, read_message
from openresponses_bridge.models.tokens import TokenCounter
from openresponses_bridge.protocol.codec import request_object


class Counted(Struct, frozen=True):
    """What is to be counted, and for which model."""

    model: str
    content: str | ChatMessage


def read_counted(body: bytes) -> Counted:
    """The body `{model, text}` or `{model, message}`; as in VS Code, `text` may be a message too. Raises
    InvalidRequestError with `param`."""
    value = request_object(body)
    model = value.get("model")
    if not isinstance(model, str):
        raise invalid("model", "expected a string")
    given = [name for name in ("text", "message") if value.get(name) is not None]
    if len(given) != 1:
        raise invalid("text", "expected either `text` or `message`")
    (name,) = given
    content = value[name]
    if name == "text" and isinstance(content, str):
        return Counted(model, content)
    return Counted(model, read_message(content, name))


def count(content: str | ChatMessage, counter: TokenCounter, model: str) -> int:
    """About how many tokens it is for this model, by the name under which requests go out to it."""
    if isinstance(content, str):
        return counter.text(content, model)
    request, _ = from_vscode(ChatRequest("", [content]))
    items = request.input if isinstance(request.input, list) else []
    return counter.text(request.instructions or "", model) + sum(counter.item(item, model) for item in items)
