"""Whatever value a client of Google's or Amazon's APIs puts into a field of its request, the request is
translated for an upstream or refused: nothing else is raised, and a refusal names a path in the request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import RequestContext, RequestHead
from openresponses_bridge.dialects.gemini.types import camel
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.seal import Sealer
from tests.support import converse_fields, gemini_fields, interactions_fields
from tests.support.hostile_values import Path, changed_at, places

Json = dict[str, Any]
BODIES = {
    "gemini": gemini_fields.fields_in_list()["requests"],
    "interactions": interactions_fields.fields_in_list()["requests"],
    "bedrock": converse_fields.fields_in_list()["requests"],
}
UPSTREAMS = {name: each.upstream for name, each in dialects().items() if each.upstream is not None}
SEALER = Sealer()
OF_ITEMS = re.compile(r"no tool |.* at an address of S3 ")
"""Refusals of items, whose place the server translates into the client's terms."""


def each_field(bodies: dict[str, Json]) -> Iterator[tuple[Json, Path]]:
    """(a body, one of its places), once for each path that several bodies share."""
    seen = set()
    for body in bodies.values():
        for place in places(body):
            kind = tuple(each for each in place if isinstance(each, str))
            if kind not in seen:
                seen.add(kind)
                yield body, place


def is_in(param: str, body: Any) -> bool:
    """Whether this is the path of a place in the body, or of a missing field of an object there."""
    within = body
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", param):
        if index:
            if not isinstance(within, list) or int(index) >= len(within):
                return False
            within = within[int(index)]
        elif isinstance(within, dict):
            spelled = {camel(key): each for key, each in within.items()}
            within = within.get(name, spelled.get(camel(name)))
        else:
            return False
    return bool(param)


@pytest.mark.parametrize("name", BODIES)
def test_no_value_raises_but_a_refusal_that_names_its_place(name: str) -> None:
    surface = dialects()[name].surface
    assert surface is not None
    head = RequestHead(stream=False, fields={"model": "m"}, sealer=SEALER)
    accepted, refused = 0, 0
    for whole, place in each_field(BODIES[name]):
        for body in changed_at(whole, place):
            try:
                request = surface.read(json.dumps(body).encode(), head).request
            except InvalidRequestError as error:
                refused += 1
                shown, param = surface.error(error), error.param or ""
                if not any(is_in(param, each) for each in (body, whole)):
                    raise AssertionError(f"{shown!r} to {body}") from error
                continue
            accepted += 1
            for side in UPSTREAMS.values():
                context = RequestContext((), "m", side.options(), SEALER, ToolIdentityMap())
                try:
                    side.request(request, context)
                except InvalidRequestError as error:
                    is_ours = (error.param or "").startswith("input[") and name != "interactions"
                    if is_ours and not OF_ITEMS.match(error.message):
                        raise AssertionError(f"{error.message} to {body}") from error
    assert accepted > 500
    assert refused > 500
