"""Time limits of async tests, as a plugin of pytest.

pytest-timeout interrupts a test wherever it is. For an async one that is the event loop, whose task goes on
holding the test, and the teardown waits for it for ever; so an async test is cancelled a little earlier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final

import pytest

_REPORT: Final = 30.0  # seconds that are left for the report, beside other load


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    test = pyfuncitem.obj
    if iscoroutinefunction(test) and (limit := _limit(pyfuncitem)):
        pyfuncitem.obj = _limited(test, max(limit - _REPORT, limit / 2))
    return (yield)


def _limit(item: pytest.Item) -> float:
    """The limit of a test in seconds; 0 for none."""
    marker = item.get_closest_marker("timeout")
    limit = marker.args[0] if marker is not None else item.config.getoption("timeout", None)
    return float(limit if limit is not None else item.config.getini("timeout") or 0)


def _limited(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def limited(**fixtures: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(**fixtures)

    return limited
