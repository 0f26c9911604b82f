"""The common frame of each generation, a piece of a message, read without making objects of the rest."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from openresponses_bridge.dialects.codex.types import Generation

# by name, since Python 3.11 runs code for each look at an enum's member
_FROM_APP_SERVER, _FROM_LEGACY = Generation.APP_SERVER, Generation.LEGACY
_APP_SERVER = "item/agentMessage/delta"
_LEGACY = "codex/event/agent_message_content_delta"
_RESPONSE = "response.output_text.delta"


class _AppServerParams(Struct):
    itemId: str  # noqa: N815 - the wire's name
    delta: str
    turnId: str = ""  # noqa: N815


class _AppServer(Struct):
    method: str
    params: _AppServerParams


class _Message(Struct):
    item_id: str
    delta: str


class _LegacyParams(Struct):
    msg: _Message


class _Legacy(Struct):
    method: str
    params: _LegacyParams


class _Proxy(Struct):
    type: str
    delta: str
    item_id: str = ""


_app_server = msgspec.json.Decoder(_AppServer).decode
_legacy = msgspec.json.Decoder(_Legacy).decode
_proxy = msgspec.json.Decoder(_Proxy).decode


def read_delta(data: bytes, generation: Generation, open_id: str | None, turn_id: str) -> str | None:
    """The next piece of the open message; None for a frame that is anything else."""
    try:
        if generation is _FROM_APP_SERVER:
            frame = _app_server(data)
            params = frame.params
            ours = params.itemId == open_id and params.turnId in ("", turn_id)
            return params.delta if ours and frame.method == _APP_SERVER else None
        if generation is _FROM_LEGACY:
            older = _legacy(data)
            message = older.params.msg
            # only the spelling that comes with an id can have opened an item of that id
            return message.delta if message.item_id == open_id and older.method == _LEGACY else None
        proxied = _proxy(data)
        return proxied.delta if proxied.item_id == open_id and proxied.type == _RESPONSE else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
