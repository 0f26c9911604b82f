"""From the links of a chain to its order."""

from __future__ import annotations

from collections.abc import Mapping

from openresponses_server.store.errors import ChainError


def in_order(response_id: str, links: Mapping[str, str | None]) -> list[str]:
    """The ids of a chain, oldest first. `links` holds for each turn that was found the one before it.

    Raises ChainError when a link is missing or leads back to a turn already seen.
    """
    order: dict[str, None] = {}
    link: str | None = response_id
    while link is not None:
        if link in order:
            circle = f"The conversation of response '{response_id[:80]}' leads back to '{link[:80]}'."
            raise ChainError(ChainError.CYCLE, circle)
        if link not in links:
            raise ChainError(ChainError.MISSING, f"Previous response with id '{link[:80]}' not found.")
        order[link] = None
        link = links[link]
    return list(reversed(order))
