"""Anthropic's own search of the web: the tool `web_search_20250305`, and the two blocks of a search. Both
sides read and write them."""

from __future__ import annotations

from typing import Any, Final

from openresponses_bridge.dialects.anthropic_messages.thinking import SEARCH_BLOCKS
from openresponses_bridge.dialects.base import (
    Fields,
    Searched,
    SearchForm,
    Source,
    WebSearch,
    invalid,
    location_of,
    sources_of,
)

NAME: Final = "web_search"
USE, FOUND = SEARCH_BLOCKS
CITATION: Final = "web_search_result_location"
_VERSION: Final = "web_search_20250305"
_VERSIONS: Final = "web_search_2"
_ERROR: Final = "web_search_tool_result_error"
_ID: Final = "srvtoolu_"
_OURS: Final = "ws_"


def is_search_tool(kind: str | None) -> bool:
    """Return True if a tool of this type searches, in any version."""
    return kind is not None and kind.startswith(_VERSIONS)


def wish_of(tool: Fields) -> WebSearch:
    """Return the search that a client's tool asks for. Raises InvalidRequestError with the path of a field
    that can't be read."""
    place = tool.maybe_inner("user_location")
    return WebSearch(
        allowed_domains=_texts(tool, "allowed_domains"),
        blocked_domains=_texts(tool, "blocked_domains"),
        location={} if place is None else location_of(place),
        max_uses=tool.get("max_uses", int),
    )


def _texts(tool: Fields, name: str) -> list[str]:
    texts = tool.get(name, list) or []
    if not all(isinstance(each, str) for each in texts):
        raise invalid(tool.at(name), "expected strings")
    return texts


def _tool(search: WebSearch) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_uses": search.max_uses,
        "allowed_domains": search.allowed_domains,
        "blocked_domains": search.blocked_domains,
        "user_location": {"type": "approximate", **search.location} if search.location else None,
    }
    return {"type": _VERSION, "name": NAME, **{name: value for name, value in options.items() if value}}


# Anthropic's documentation, Web search tool
FORM: Final = SearchForm(
    _tool, frozenset({"allowed_domains", "blocked_domains", "location", "max_uses"}), either=True
)


def is_use(block: dict[str, Any]) -> bool:
    """Return True if a block calls the search."""
    return block.get("type") == USE and block.get("name") == NAME and bool(own_id(block, "id"))


def own_id(block: dict[str, Any], field: str) -> str:
    """Return an id in a block; "" if it has none."""
    value = block.get(field)
    return value if isinstance(value, str) else ""


def query_of(block: dict[str, Any]) -> str:
    """Return the query of a call."""
    arguments = block.get("input")
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return query if isinstance(query, str) else ""


def found_in(block: dict[str, Any]) -> tuple[list[Source], str]:
    """Return (the pages, the status of the item) of a block of results."""
    content = block.get("content")
    return list(sources_of(content)), "completed" if isinstance(content, list) else "failed"


def item_id(own: str) -> str:
    """Return the id of the item of a call; for a call that `blocks_of` made, that of the original item."""
    return own.removeprefix(_ID) if is_made_here(own) else f"{_OURS}{own}"


def is_made_here(own: str) -> bool:
    """Return True if `blocks_of` made the call with this id, so that the API does not know its results."""
    return own.startswith(_ID + _OURS)


def blocks_of(web_search: Searched, item: str) -> list[dict[str, Any]]:
    """Return the blocks of a search that another upstream ran."""
    own = f"{_ID}{item}" if item.startswith(_OURS) else f"{_ID}{_OURS}{item}"
    pages: Any = [
        {
            "type": "web_search_result",
            "url": each.url,
            "title": each.title or each.url,
            "encrypted_content": "",
            "page_age": None,
        }
        for each in web_search.sources
    ]
    if web_search.failed:
        pages = {"type": _ERROR, "error_code": "unavailable"}
    return [
        {"type": USE, "id": own, "name": NAME, "input": {"query": web_search.query}},
        {"type": FOUND, "tool_use_id": own, "content": pages},
    ]
