"""VS Code's language-model interface over HTTP: parts as JSON lines.

A stateful marker in a chat names a stored response. It is used when that response belongs to the owner, has
ended and answered exactly the chat before the marker; then only what follows the marker is input. Any other
marker is ignored, and the whole chat is the input.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from openresponses_bridge.decoder.part_decoder import ErrorPolicy
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    AnswerForm,
    Asked,
    Continuation,
    Description,
    Encoding,
    FormContext,
    KeyPlace,
    OutboundForm,
    Parameter,
    RequestHead,
    Surface,
    SurfacePath,
    http_failure,
    invalid,
)
from openresponses_bridge.dialects.vscode import described
from openresponses_bridge.dialects.vscode.conversation import conversation_digest
from openresponses_bridge.dialects.vscode.errors import LanguageModelErrorBody, error_body
from openresponses_bridge.dialects.vscode.outbound import Outbound
from openresponses_bridge.dialects.vscode.reading import decode_chat
from openresponses_bridge.dialects.vscode.request import from_vscode
from openresponses_bridge.dialects.vscode.types import ChatRequest
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response

FAILURES: Final[dict[str, ErrorPolicy]] = {"text": "text", "line": "notes"}
"""The forms of a failure after the first part: a text for the user, or a last line `{"error": …}`."""
_LINES: Final = b"application/jsonl; charset=utf-8"


def _form(model: str, encrypted_thinking: bool, failures: str, context: FormContext) -> AnswerForm:
    parts = Outbound(
        errors=FAILURES[failures],
        no_response=True,
        model=model,
        include_encrypted_thinking=encrypted_thinking,
        repair=True,
        trace=context.trace,
    )

    def last_line() -> bytes:
        error = parts.result.error
        if error is None or failures != "line":
            return b""
        return encode(error_body(http_failure(error))) + b"\n"

    return OutboundForm(parts, Encoding(b"".join, _LINES, last_line), _never_whole)


def _never_whole(_response: Response) -> bytes | None:
    raise NotImplementedError("this API always streams")


def _read(body: bytes, head: RequestHead) -> Asked:
    failures = head.query.get("errors", "text")
    if failures not in FAILURES:
        raise invalid("errors", f"expected one of: {', '.join(FAILURES)}")
    chat = decode_chat(body)
    request, losses, continuation = read_chat(chat)
    return Asked(
        request=request,
        form=partial(_form, chat.model, chat.include_encrypted_thinking is True, failures),
        losses=losses,
        input_param="messages",
        continuation=continuation,
    )


def read_chat(chat: ChatRequest) -> tuple[CreateResponse, Diagnostics, Continuation | None]:
    """Return the request for a whole chat, its losses, and the request for what follows its last marker.
    Raises InvalidRequestError with `param`."""
    marked, marked_losses = from_vscode(chat, use_markers=True)
    if marked.previous_response_id is None:
        return marked, marked_losses, None
    request, losses = from_vscode(chat)
    if not marked.input:
        return request, losses, None
    whole = request.input if isinstance(request.input, list) else []
    before = conversation_digest(whole[: len(whole) - len(marked.input)])
    return request, losses, Continuation(marked, marked_losses, before, conversation_digest)


SURFACE: Final = Surface(
    paths=(
        SurfacePath(
            path="/vscode/v1/chat",
            stream=True,
            description=Description(
                id="chat_in_parts",
                summary="Answer in VS Code's language-model parts, one JSON line each",
                request=described.ChatRequest,
                text="application/jsonl",
                parameters=(
                    Parameter(
                        "errors",
                        "The form of a failure after the first part: `text` for the user, or a last `line` "
                        "with the error.",
                        {"enum": [*FAILURES]},
                    ),
                ),
                examples={"text": {"model": "demo", "messages": [{"role": 1, "content": "Hello"}]}},
            ),
        ),
    ),
    prefixes=("/vscode/",),
    keys=(KeyPlace("authorization", "Bearer "),),
    read=_read,
    error=lambda error: encode(error_body(error)),
    error_type=LanguageModelErrorBody,
    keep_alive=b"\n",
    stores_if_possible=True,
    leaving_cancels=True,
)
