"""An answer that an upstream streams is the same one when it comes whole."""

import json
from typing import Any

import pytest

from tests.support.calling import CALLING
from tests.support.checked_inbound import CheckedInbound

MADE = ("id", "call_id")  # anew for each response


def shown(fed: CheckedInbound) -> Any:
    """The end and the items."""
    items = [{name: value for name, value in item.items() if name not in MADE} for item in fed.output]
    for item in items:
        if "arguments" in item:
            item["arguments"] = json.loads(item["arguments"])
    details = fed.response.incomplete_details
    return fed.status, details and details.reason, items


@pytest.mark.parametrize("reason", ["", "max_output_tokens"])
@pytest.mark.parametrize("name", [{"name": "find"}, {"name": ""}], ids=["named", "nameless"])
@pytest.mark.parametrize("dialect", sorted(CALLING))
@pytest.mark.untraced
def test_both_are_alike(dialect: str, name: dict[str, Any], reason: str) -> None:
    build, frames = CALLING[dialect]
    streamed, whole = (CheckedInbound(build, frames(name, each, reason)) for each in (False, True))
    left, right = shown(streamed), shown(whole)
    if dialect == "gemini" and reason:  # the call beside the reason may be cut
        assert right[2].pop() == {**left[2].pop(), "status": "incomplete"}
    assert left == right
