"""Estimates the tokens of single texts and items."""

from openresponses_bridge.models.tokens import cost_tokens, measured_items, text_cost
from openresponses_bridge.protocol.input_items import InputItem
from openresponses_bridge.protocol.items import Item


def text_tokens(text: str) -> int:
    """Return the tokens of a text; at least one, unless it is empty."""
    return cost_tokens(text_cost(text), text)


def item_tokens(item: InputItem | Item) -> int:
    """Return the tokens of one item."""
    return measured_items([item]).tokens()
