"""The Chat Completions API over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec.structs import replace

from openresponses_bridge.dialects.base import (
    AnswerForm,
    Asked,
    ChoicesForm,
    Description,
    Encoding,
    FormContext,
    KeyPlace,
    OutboundForm,
    RequestHead,
    Surface,
    SurfacePath,
    protocol_error,
)
from openresponses_bridge.dialects.chat_completions.client import described
from openresponses_bridge.dialects.chat_completions.client.choices import Choices, completions
from openresponses_bridge.dialects.chat_completions.client.chunks import (
    ChatCompletion,
    ErrorBody,
    OutboundOptions,
    encode,
)
from openresponses_bridge.dialects.chat_completions.client.completion import completion
from openresponses_bridge.dialects.chat_completions.client.outbound import Outbound
from openresponses_bridge.dialects.chat_completions.client.request import (
    AnswerOptions,
    answer_options,
    from_chat,
)
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.response import Response

_SCHEMAS: Final = {"messages": "response_format.json_schema.schema", "input": "text.format.schema"}


def _form(request_options: AnswerOptions, context: FormContext) -> AnswerForm:
    options: OutboundOptions = {
        "legacy_functions": request_options.legacy_functions,
        "sealer": context.sealer,
        "text_after_tool_call": "pass" if context.text_after_tools else "drop",
    }
    if request_options.n == 1:
        outbound = Outbound(include_usage=request_options.include_usage, **options)
        return OutboundForm(
            outbound, Encoding(encode), lambda response: _body(completion(response, **options))
        )
    first = context.so_far()  # all choices have one id and one time
    answer_id, created = "chatcmpl-" + first.id.removeprefix("resp_"), first.created_at
    choices = Choices(
        request_options.n,
        id=answer_id,
        created=created,
        include_usage=request_options.include_usage,
        **options,
    )

    def whole(*responses: Response) -> bytes | None:
        return _body(completions(responses, id=answer_id, created=created, **options))

    return ChoicesForm(request_options.n, choices, Encoding(encode), whole)


def _body(answer: ChatCompletion | ErrorBody) -> bytes | None:
    return codec.encode(answer) if isinstance(answer, ChatCompletion) else None


def _read(body: bytes, head: RequestHead) -> Asked:
    request, losses = from_chat(body, head.sealer)
    options = answer_options(body)
    return Asked(
        request=replace(request, store=False),  # this API can't refer to stored responses
        form=partial(_form, options),
        losses=losses,
        choices=options.n,
        input_param=options.input_param,
        schema_param=_SCHEMAS[options.input_param],
    )


SURFACE: Final = Surface(
    paths=(
        SurfacePath(
            path="/v1/chat/completions",
            description=Description(
                id="create_chat_completion",
                summary="Create a chat completion",
                request=described.ChatCompletionRequest,
                answer=described.ChatCompletion,
                events="Server-sent events of Chat Completions chunks; the last frame is the literal "
                "`[DONE]`.",
                examples={"whole": {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}},
            ),
        ),
    ),
    keys=(KeyPlace("authorization", "Bearer "), KeyPlace("api-key")),  # the second is of Azure
    read=_read,
    error=lambda error: protocol_error(error, "chat"),
)
