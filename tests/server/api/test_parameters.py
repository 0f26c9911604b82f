"""Parameters in the query of a URL: what they may be, and how a wrong one is refused."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from openresponses_bridge.errors import InvalidRequestError
from openresponses_server.api.parameters import (
    BEFORE_FIRST,
    flag_of,
    limit_of,
    order_of,
    starting_after_of,
    time_of,
)

Read = Callable[[QueryParams], Any]
refresh, since = (lambda asked: flag_of(asked, "refresh")), (lambda asked: time_of(asked, "since"))
rows = partial(limit_of, default=50, most=200)


@pytest.mark.parametrize(
    ("read", "query", "found"),
    [
        *((refresh, f"refresh={text}", True) for text in ("true", "True", "TRUE", "1")),
        *((refresh, f"refresh={text}", False) for text in ("false", "False", "0")),
        (refresh, "stream=true", False),
        (limit_of, "", 20),
        (limit_of, "limit=100", 100),
        (rows, "", 50),
        (rows, "limit=200", 200),
        (order_of, "", "desc"),
        (order_of, "order=asc", "asc"),
        (starting_after_of, "", BEFORE_FIRST),
        (starting_after_of, "starting_after=0", 0),
        (starting_after_of, "starting_after=999999999999999", 10**15 - 1),
        (since, "", None),
        (since, "since=1800000000", 1.8e9),
    ],
)
def test_what_is_read(read: Read, query: str, found: object) -> None:
    assert read(QueryParams(query)) == found


@pytest.mark.parametrize(
    ("read", "query", "said"),
    [
        (refresh, "refresh=", "it must be true or false, not ''"),
        (refresh, "refresh=perhaps", "it must be true or false, not 'perhaps'"),
        (limit_of, "limit=0", "it must be a number from 1 to 100, not '0'"),
        (limit_of, "limit=101", "it must be a number from 1 to 100, not '101'"),
        (limit_of, "limit=x", "it must be a number from 1 to 100, not 'x'"),
        (rows, "limit=201", "it must be a number from 1 to 200, not '201'"),
        (order_of, "order=up", "it must be asc or desc, not 'up'"),
        (starting_after_of, "starting_after=-1", "it must be the number of an event, not '-1'"),
        (starting_after_of, "starting_after=%C2%B2", "it must be the number of an event, not '²'"),
        (
            starting_after_of,
            "starting_after=" + "9" * 16,
            f"it must be the number of an event, not '{'9' * 16}'",
        ),
        (since, "since=today", "it must be a time in Unix seconds, not 'today'"),
        (since, "since=" + "x" * 100, f"it must be a time in Unix seconds, not '{'x' * 40}'"),
    ],
)
def test_what_is_refused(read: Read, query: str, said: str) -> None:
    name = query.partition("=")[0]
    with pytest.raises(InvalidRequestError) as refused:
        read(QueryParams(query))
    assert (refused.value.param, refused.value.message) == (name, f"{name}: {said}")
