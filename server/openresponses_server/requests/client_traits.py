"""What a request's headers say of its client, beside its body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.wire import ignores_comments
from openresponses_server.http.auth import client_key
from openresponses_server.requests.betas import betas_of
from openresponses_server.requests.reasoning import FORMS
from openresponses_server.upstreams.base import conversation_of

REASONING_HEADER: Final = "openresponses-reasoning-as"


class ClientTraits(Struct, frozen=True):
    """`key` is what the client showed; `beats`: comments do not keep it from giving up; `betas` are the names
    in `anthropic-beta`; `reasoning_as` is the form of raw reasoning that it wants, None where it does not
    say; `conversation` is what it calls its conversation, empty where it does not say."""

    key: str | None
    beats: bool
    betas: list[str]
    reasoning_as: str | None
    conversation: str = ""


def traits_of(headers: Mapping[str, str]) -> ClientTraits:
    """Raises InvalidRequestError for a form of reasoning that is not known."""
    form = headers.get(REASONING_HEADER)
    if form is not None and form not in FORMS:
        raise invalid(REASONING_HEADER, f"expected one of {', '.join(FORMS)}")
    key, beats, betas = client_key(headers), ignores_comments(headers), betas_of(headers)
    return ClientTraits(key, beats, betas, form, conversation_of(headers))
