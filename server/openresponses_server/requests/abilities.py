"""Leaves tools and images out of a request for a model that can't use them, and reports the loss: the
upstream would refuse the whole request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import call_view, output_view
from openresponses_bridge.dialects.base import AnyItem, History, invalid
from openresponses_bridge.protocol.content import InputTextContent
from openresponses_bridge.protocol.input_items import AdditionalTools, MessageParam, ToolSearchOutputParam
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.settings import Capabilities

_IMAGE: Final = InputTextContent("[image, which this model can't see]")
_NO_TOOLS: Final = "the model does not have any"
_TOOL_ITEMS: Final = (AdditionalTools, ToolSearchOutputParam)

Loss = tuple[str, str]
"""Where something was lost, and what."""


class FittedRequest(Struct, frozen=True):
    """A request without what its model can't use."""

    request: CreateResponse
    earlier: History
    own: History
    """The items of the request's own input."""
    losses: Sequence[Loss] = ()


def fit_to_model(
    request: CreateResponse, earlier: History, own: History, able: Capabilities
) -> FittedRequest:
    """Fit a request to the model's known capabilities; unknown ones are assumed. Raises InvalidRequestError
    when `tool_choice` requires a tool and the model has none."""
    losses: dict[Loss, None] = {}
    if able.tools is False:
        request = _without_tools(request, losses)
        earlier, own = (list(_as_text(items, losses)) for items in (earlier, own))
    if able.images is False:
        earlier, own = ([_without_images(item, losses) for item in items] for items in (earlier, own))
    return FittedRequest(request, earlier, own, tuple(losses))


def offers_tools(request: CreateResponse, fit: FittedRequest) -> bool:
    """Return True if the request or an item of its conversation declares tools."""
    return bool(request.tools) or any(isinstance(item, _TOOL_ITEMS) for item in (*fit.earlier, *fit.own))


def _without_tools(request: CreateResponse, losses: dict[Loss, None]) -> CreateResponse:
    if not request.tools:
        return request
    if request.tool_choice not in (None, "auto", "none"):
        raise invalid("tool_choice", f"a tool must be called, and {_NO_TOOLS}")
    losses["tools", _NO_TOOLS] = None
    return replace(request, tools=None, tool_choice=None, parallel_tool_calls=None, max_tool_calls=None)


def _as_text(items: History, losses: dict[Loss, None]) -> Iterator[AnyItem]:
    """Calls and their outputs as messages: upstreams refuse calls in a request without tools."""
    identities = ToolIdentityMap()
    for item in items:
        call = call_view(item, identities)
        output = output_view(item, identities) if call is None else None
        if isinstance(item, _TOOL_ITEMS):
            losses[item.type, _NO_TOOLS] = None
        elif call is not None:
            losses["input", "tool calls were sent as text"] = None
            yield MessageParam("assistant", f"[called {call.name}, {call.call_id}]\n{call.arguments}")
        elif output is not None:
            losses["input", "tool calls were sent as text"] = None
            yield MessageParam("user", _output_content(output.call_id, output.output))
        else:
            yield item


def _output_content(call_id: str, output: str | list[Any]) -> Any:
    head = f"[output of {call_id}]"
    return f"{head}\n{output}" if isinstance(output, str) else [InputTextContent(head), *output]


def _without_images(item: Any, losses: dict[Loss, None]) -> Any:
    for field in ("content", "output"):
        parts = getattr(item, field, None)
        if isinstance(parts, list) and any(map(_is_image, parts)):
            losses[f"input.{field}", "images, which the model can't see"] = None
            return replace(item, **{field: [_IMAGE if _is_image(part) else part for part in parts]})
    return item


def _is_image(part: Any) -> bool:
    return getattr(part, "type", "") == "input_image"
