"""Ids of calls between VS Code and the protocol: our prefix comes off, and what is too long for the
schema is shortened the same way for a call and its result."""

from __future__ import annotations

import hashlib

from openresponses_bridge.decoder import CALL_ID_PREFIX, strip_call_id

MAX_CALL_ID = 64  # schema FunctionCallItemParam


def call_id_of(given: str, prefix: str = CALL_ID_PREFIX) -> str:
    """The protocol's id of a call that VS Code knows as `given`."""
    stripped = strip_call_id(given, prefix) or given
    if 0 < len(stripped) <= MAX_CALL_ID:
        return stripped
    return "call_" + hashlib.sha256(stripped.encode("utf-8", "replace")).hexdigest()[:32]
