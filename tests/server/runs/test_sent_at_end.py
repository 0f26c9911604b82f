"""Answers that are sent whole: nothing of them is sent before their end, so that they are stored with it."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.store.base import StoreError
from openresponses_server.store.memory import MemoryStore
from tests.support.serving import call, respond, serving
from tests.support.upstream import Script, ScriptedUpstream, Step, chunk, text
from tests.support.waiting import NEVER, wait_until

_PACED: list[Step] = [each for _ in range(4) for each in (chunk(content="word "), 0.05)]
_SLOW: list[Step] = [each for _ in range(30) for each in (chunk(content="word "), 0.1)]


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    scripts: dict[str, Script | list[Script]] = {
        "paced": Script([*_PACED, *text("end")]),
        "slow": Script([*_SLOW, *text("end")]),
    }
    with ScriptedUpstream(scripts) as started:
        yield started


class Puts(Struct):
    """The statuses that responses had when they were put into the store; it may be `full`."""

    statuses: list[str] = []
    full: bool = False
    base: str = ""


@pytest.fixture
def interval() -> float:
    """Seconds between two checkpoints, which no short answer takes."""
    return NEVER


@pytest.fixture
def puts(upstream: ScriptedUpstream, interval: float) -> Iterator[Puts]:
    puts, real = Puts(), MemoryStore.put

    async def put(self: MemoryStore, record: Any, *more: Any) -> None:
        if puts.full:
            raise StoreError(StoreError.FULL, "The session store is full: nothing was stored.")
        puts.statuses.append(record.response.status)
        await real(self, record, *more)

    settings = Settings(
        store="memory://", upstreams=[UpstreamSettings(url=upstream.url)], checkpoint_interval=interval
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "put", put)
        with serving(settings) as puts.base:
            yield puts


def test_short_answer_is_one_write(puts: Puts) -> None:
    answer = respond(puts.base, model="paced")
    assert puts.statuses == ["completed"]
    assert call(puts.base, "GET", f"/v1/responses/{answer.json['id']}").json == answer.json


def test_streamed_answer_is_stored_before_it_is_sent(puts: Puts) -> None:
    assert respond(puts.base, model="paced", stream=True).status == 200
    assert puts.statuses == ["in_progress"]


@pytest.mark.parametrize("interval", [0.5])
def test_s1_long_answer_is_stored_while_it_is_made(puts: Puts) -> None:
    """So that there is a record when its worker dies."""
    answer = respond(puts.base, model="slow")
    assert answer.status == 200
    assert puts.statuses == ["in_progress"]
    assert call(puts.base, "GET", f"/v1/responses/{answer.json['id']}").json == answer.json


def test_s1_answer_that_cannot_be_stored_is_refused(puts: Puts) -> None:
    """It was not sent, so that it is an HTTP error, whatever was made of it."""
    puts.full = True
    refused = respond(puts.base, model="paced")
    assert (refused.status, refused.error["code"]) == (503, "store_full")


@pytest.mark.parametrize("interval", [0.5])
def test_answer_that_cannot_be_stored_is_not_made_to_its_end(puts: Puts, upstream: ScriptedUpstream) -> None:
    puts.full = True
    refused = respond(puts.base, model="slow")
    assert (refused.status, refused.error["code"]) == (503, "store_full")
    wait_until(lambda: upstream.last("slow").gone_at is not None)
