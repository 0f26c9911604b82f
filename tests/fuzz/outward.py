"""Sends events through the outbound of every dialect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from openresponses_bridge import PartDecoder, encode_sse
from openresponses_bridge.dialects import responses
from openresponses_bridge.dialects.base import ClientSide
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.sse import SSEDecoder

CLIENTS = [entry.client for entry in dialects().values() if entry.client is not None]


def _fed(outbound: Any, events: Iterable[Event]) -> list[Any]:
    return [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()


def sent_on(events: list[Event]) -> None:
    """Feed the events to every outbound. Asserts that the output consists of whole frames or lines of JSON,
    and that only a BridgeError is raised."""
    ways: list[Callable[[], bytes]] = [
        lambda: encode_sse(events),
        lambda: encode_sse(_fed(responses.Outbound(), events)),
        *(partial(_written, client, events) for client in CLIENTS),
    ]
    for way in ways:
        try:
            sent = way()
        except BridgeError:
            continue
        _check(sent)
    for thinking in ("text", "drop"):
        try:
            _fed(PartDecoder(thinking=thinking), events)  # type: ignore[arg-type]
        except BridgeError:
            continue


def _written(client: ClientSide, events: list[Event]) -> bytes:
    return client.encode(_fed(client.outbound(), events))


def _check(sent: bytes) -> None:
    """Check server-sent events, or a line of JSON for each chunk."""
    if sent.startswith((b"data:", b"event:")):
        for frame in (decoder := SSEDecoder()).feed(sent) + decoder.close():
            if frame.data != b"[DONE]":
                json.loads(frame.data)
    else:
        for line in sent.split(b"\n"):
            if line:
                json.loads(line)
