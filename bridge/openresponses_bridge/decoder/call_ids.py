"""Tool-call ids in a client that talks to several providers: ours carry a prefix, so that they never equal
another's (RFC 00022, "CallId namespacing")."""

from __future__ import annotations

CALL_ID_PREFIX = "gw-"
_MAX_LENGTH = 64


def namespace_call_id(call_id: str, prefix: str = CALL_ID_PREFIX) -> str:
    """The id as the client sees it. The prefix is put on always, so that taking it off gives back the
    id that was there, whatever it began with."""
    return prefix + call_id


def strip_call_id(call_id: str, prefix: str = CALL_ID_PREFIX) -> str:
    """The id on its way back; one without the prefix (another provider's call) stays as it is."""
    return call_id.removeprefix(prefix)


def unique_call_id(call_id: str, taken: set[str]) -> str:
    """`call_id`, or with the first free `_2`, `_3` … when it is taken. Within 64 characters of those that
    every API takes, if the id was; the call and its output then go back under this id together."""
    candidate, turn = call_id, 1
    while candidate in taken:
        turn += 1
        suffix = f"_{turn}"
        candidate = call_id[: max(_MAX_LENGTH, len(call_id)) - len(suffix)] + suffix
    return candidate
