"""What differs between servers that speak Responses in what they take, as data."""

from __future__ import annotations

from msgspec import Struct


class ResponsesOptions(Struct, frozen=True, kw_only=True):
    """What one upstream wants where servers differ.

    `supersets`: it knows OpenAI's own tools, items and fields; without, tools and their calls leave as
    functions and the rest is a loss.
    `stateful`: it keeps responses, so that `previous_response_id`, `store` and references to items mean
    something there, and what is new is enough to go on; without, nothing is stored and the history goes
    along.
    `item_ids`, `item_statuses`: send the `id` and `status` of items along.
    `reasoning_content`: it takes raw reasoning of earlier turns back (the published schema does not).
    `encrypted_reasoning`: ask for encrypted reasoning, which a conversation that is not stored needs.
    `omit`: request fields that this upstream refuses; each use is a loss.
    """

    supersets: bool = True
    stateful: bool = False
    item_ids: bool = True
    item_statuses: bool = True
    reasoning_content: bool = True
    encrypted_reasoning: bool = False
    omit: frozenset[str] = frozenset()


DEFAULT_OPTIONS = ResponsesOptions()
