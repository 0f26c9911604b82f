"""How many calls of the project's own functions, in how many of its files, one thing costs, and for a request
how often its way goes from one file to another: each addition shows. The limits are what it costs now; who
needs more says why in the commit that raises one. The extra `otel`, which the tests have and a server need
not, is left out."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.sse import DONE
from tests.support.call_counts import Count, counting, fewest, leave_out_spans, plain_request
from tests.support.one_loop import Bench, serving
from tests.support.services import redis_server
from tests.support.upstream import call, chunk

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _without_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_spans(monkeypatch.setattr)


async def steady(bench: Bench, **body: Any) -> Count:
    """One of several tokens that come in their time, after the first ones."""
    await bench.ask(stream=True, **body)
    for number in range(5):
        await bench.token(f"first{number}")
    counts = []
    for number in range(5):
        await asyncio.sleep(0.01)
        with counting() as count:
            await bench.token(f"token{number}")
        counts.append(count)
    return fewest(counts)


async def test_a_steady_token() -> None:
    async with serving(store="memory://") as bench:
        (await steady(bench, store=False)).check(11, 9)


async def test_a_steady_token_that_is_stored(tmp_path: Path) -> None:
    async with serving(store=f"sqlite:///{tmp_path}/responses.db") as bench:
        (await steady(bench)).check(16, 13)


async def test_a_steady_token_whose_log_is_in_redis(tmp_path: Path) -> None:
    with redis_server() as url:
        async with serving(store=f"sqlite:///{tmp_path}/responses.db", event_log=url) as bench:
            (await steady(bench)).check(19, 12)


async def test_the_first_chunk_of_a_call() -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    counts = []
    for _ in range(4):  # the first one makes what is made once, and reads may come together
        async with serving(store="memory://") as bench:
            await bench.ask(stream=True, store=False, tools=[tool])
            await bench.token("first")
            await asyncio.sleep(0.01)
            with counting() as count:
                bench.upstream.write(call(0, '{"a', "look", "call_1"))
                await bench.reader.readuntil(b'"delta":"{\\"a"')
            counts.append(count)
    fewest(counts).check(51, 18)


async def test_a_stream_of_twenty_tokens() -> None:
    async with serving(store="memory://") as bench:
        words = [chunk(content=f"word{number} ") for number in range(20)]
        bench.upstream.whole = b"".join([*words, chunk("stop"), DONE])
        for _ in range(3):
            await bench.ask(stream=True, store=False)
            await bench.reader.readuntil(b"0\r\n\r\n")
        counts = []
        for _ in range(5):
            await asyncio.sleep(0.05)
            with counting() as count:
                await bench.ask(stream=True, store=False)
                await bench.reader.readuntil(b"0\r\n\r\n")
            counts.append(count)
        fewest(counts).check(436, 67, 280)


async def test_a_plain_request() -> None:
    (await plain_request()).check(360, 64, 209)


async def test_a_request_that_has_a_choice_of_routes() -> None:
    """Of four upstreams that share a model, in a session. One of the files is the library's reading of
    errors: what begins an answer may be a refusal in the form of any dialect, over which another route is
    asked."""
    async with serving(routes=4, store="memory://", balance="round_robin") as bench:
        bench.upstream.whole = chunk(content="Hello") + chunk("stop") + DONE
        for _ in range(3):
            assert b"Hello" in await bench.ask(store=False, prompt_cache_key="k")
        counts = []
        for _ in range(5):
            await asyncio.sleep(0.05)
            with counting() as count:
                await bench.ask(store=False, prompt_cache_key="k")
            counts.append(count)
        fewest(counts).check(389, 68, 228)
