"""Fields that pass unread, from a client to an upstream that may know them.

The next server may read a name in another case as the field, and may have fields that choose another model or
a service that costs more. The first is always refused, the second for a key that may use some models only,
the third for a key with a budget in money.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET

from openresponses_bridge.dialects.anthropic_messages.carried import carried_by
from openresponses_bridge.dialects.chat_completions.carried import carried_by as carried_by_chat
from openresponses_bridge.dialects.chat_completions.types import ChatRequest
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.errors import HttpError
from openresponses_server.http.access import ACCESS
from openresponses_server.upstreams.targets import Target


def _plain(name: str) -> str:
    """The name in either spelling, `extra_body` or `extraBody`, whatever its case."""
    return name.lower().replace("_", "")


_ROUTING: Final = frozenset(
    map(
        _plain,
        (
            "api_base",
            "base_url",
            "context_window_fallbacks",
            "custom_llm_provider",
            "deployment",
            "deployment_id",
            "engine",
            "extra_body",
            "fallback_models",
            "fallbacks",
            "model_fallbacks",
            "model_selection_config",
            "models",
            "route",
            "routing_config",
            "user_config",
        ),
    )
)
"""Fields with which gateways and providers send a request to another model, or add other fields to it."""
_USUAL: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        **dict.fromkeys((*_ROUTING, "plugins", "priority", "provider"), (None,)),
        "inferencegeo": (None, "global"),
        "servicetier": (None, "auto", "default", "flex"),
        "speed": (None, "standard"),
    }
)
"""The values of fields with which what is asked for has the model's usual price, or a lower one."""
_OF_OTHERS: Final = (
    "contents",
    "dimensions",
    "encoding_format",
    "image",
    "inference_geo",
    "input",
    "mask",
    "messages",
    "prompt",
    "size",
    "speed",
    "stop_sequences",
    "system",
    "thinking",
    "voice",
)
_SPELLED: Final = {
    name.lower(): name
    for name in (*CreateResponse.__struct_encode_fields__, *ChatRequest.__struct_encode_fields__, *_OF_OTHERS)
}


def check_name(name: str) -> None:
    """Raises InvalidRequestError for the name of a known field in another case: some servers read names
    whatever their case is, and take the last one. Raises HttpError 403 for a field that names other models,
    where the current request's key is for some alone."""
    known = name.lower()
    spelled = _SPELLED.get(known)
    if spelled is not None and name != spelled:
        what = f"{name[:80]}: the field is called {spelled}"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=name[:80])
    if _plain(name) in _ROUTING and (access := ACCESS.get()) is not None and access.models is not None:
        raise HttpError(
            403,
            f"The API key is for some models alone, and {known} may name others.",
            code="model_not_allowed",
            param=name[:80],
        )


def check_names(names: Iterable[str]) -> None:
    """`check_name` for each of them."""
    for name in names:
        check_name(name)


def priced_apart(fields: Mapping[str, Any]) -> str | None:
    """The field with which a request asks for something that has another price than its model; None without
    one."""
    for name, value in fields.items():
        usual = _USUAL.get(_plain(name))
        if usual is not None and value not in usual:
            return name
    return None


_GENERATION: Final = "generationConfig"


def _named(name: str) -> Iterator[str]:
    """The field of the body that this path begins with, and the one within Gemini's settings."""
    first, _, rest = name.partition(".")
    yield first.partition("[")[0]
    if first == _GENERATION:
        yield rest.partition(".")[0]


def passed_by(body: CreateResponse, targets: Iterable[Target] | None = None) -> dict[str, Any]:
    """The fields of a request's body that no reader here knows; with `targets` those that may be sent to one
    of them."""
    unknown: dict[str, Any] = {}
    for place, fields, _ in body.beyond or ():
        if not place:
            unknown |= fields
    native = body.native
    if native is not UNSET and (
        targets is None or any(each.dialect.dialect.name == native.dialect for each in targets)
    ):
        named = (each for name in native.names for each in _named(name))
        unknown |= {**dict.fromkeys(named, True), **carried_by(body).body, **carried_by_chat(body).body}
    return unknown
