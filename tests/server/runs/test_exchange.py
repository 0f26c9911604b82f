"""The two tables of a run: what has come of an upstream's answer, and where a batch is on its way."""

import asyncio
from typing import Any, cast

import pytest

from openresponses_server.errors import UpstreamError
from openresponses_server.runs.exchange import ANSWERS, PASSAGES, AnswerStage, Outflow, Passage
from tests.support.pipelines import Bench, Persistence, refusing
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


def test_a_batch_is_sent_when_nothing_has_to_be_stored_before() -> None:
    """Law S1: no way leads from the store to the client but over the stage in which it is stored."""
    assert set(PASSAGES) == set(Passage)
    for stage in (Passage.LOGGING, Passage.STORING, Passage.SENDING):
        assert PASSAGES[stage] == {Passage.FREE, Passage.HELD}
    assert PASSAGES[Passage.HELD] == {Passage.SENDING}


def test_an_answer_is_read_once_and_a_refusal_may_become_it() -> None:
    """Law S5: what has begun is the answer; from a cut nothing leads on."""
    assert set(ANSWERS) == set(AnswerStage)
    reached, ways = {AnswerStage.SILENT}, [AnswerStage.SILENT]
    while ways:
        for stage in ANSWERS[ways.pop()].next - reached:
            reached.add(stage)
            ways.append(stage)
    assert reached == set(AnswerStage)
    assert AnswerStage.REFUSED not in ANSWERS[AnswerStage.OPEN].next
    assert not any(ANSWERS[stage].reads for stage in (AnswerStage.CUT, AnswerStage.READ, AnswerStage.REFUSED))
    assert not ANSWERS[AnswerStage.CUT].next


async def test_a_stage_that_may_not_follow_is_a_defect() -> None:
    bench = Bench(Persistence())
    await bench.begin()
    outflow = bench.pipeline.outflow
    outflow.stage = Passage.HELD
    with pytest.raises(AssertionError, match="from HELD to STORING"):
        outflow._leave_to_task(Passage.STORING, asyncio.get_running_loop().create_future())
    answer = outflow.exchange
    assert answer is not None
    answer.stage = AnswerStage.CUT
    with pytest.raises(AssertionError, match="from CUT to OPEN"):
        answer._move(AnswerStage.OPEN)
    bench.running.cancel()


async def test_a_log_that_answers_between_an_interruption_and_the_end_leaves_nothing_to_be_awaited() -> None:
    """The client takes nothing then: what would send the batch is closed, and the batch leaves with the
    end."""
    bench = Bench(Persistence(far=True))
    await bench.begin()
    assert bench.persistence is not None
    bench.running.cancel()
    await asyncio.wait([bench.running])
    bench = Bench(Persistence(far=True, begun=True))
    bench.running.cancel()
    following = asyncio.create_task(bench.pipeline.follow(cast(Any, bench)))
    await asyncio.sleep(0)
    assert bench.persistence is not None
    bench.body.feed(b"a")
    following.cancel()
    await asyncio.wait([following])
    bench.takes.clear()
    await bench.have_it()
    outflow = bench.pipeline.outflow
    work = outflow.work
    assert outflow.stage is Passage.SENDING
    bench.takes.set()
    await bench.pipeline.finish(bench.spoken.cancel(), 1.0, lambda _instead: None)
    assert outflow.work is None
    assert cast(Any, work).cr_frame is None, "it is neither awaited nor closed"
    assert bench.text == "a"
    assert bench.numbers == list(range(len(bench.numbers)))


async def test_a_defect_is_not_forgotten_when_the_answer_ends_before_the_run_looks() -> None:
    bench = Bench()
    await bench.begin()
    answer = bench.pipeline.outflow.exchange
    assert answer is not None
    bench.spoken.feed = None  # type: ignore[method-assign, assignment]
    answer.feed(b"b")
    answer.end(None)
    with pytest.raises(TypeError):
        await bench.running


@pytest.mark.parametrize("ended", [False, True])
async def test_what_arrives_behind_a_refusal_waits_for_the_other_request(ended: bool) -> None:
    """It may pause too late. The refusal is the answer here, with all that came behind it, in its order."""
    bench = refusing(None, None)
    await asyncio.sleep(0)
    answer = bench.pipeline.outflow.exchange
    assert answer is not None
    answer.feed(b'data: {"error": {"code": "x"}}\n\n')
    assert answer.stage is AnswerStage.REFUSED
    assert answer.is_paused
    answer.feed(b"one ")
    answer.feed(b"two")
    if ended:
        answer.end(None)
    assert bench.asking is not None
    bench.asking.set()
    await until(lambda: "two" in bench.text)
    if not ended:
        answer.feed(b".")
    await asyncio.wait_for(bench.running, 60)
    assert bench.text.endswith("one two")


async def test_cancelled_while_another_request_is_made_in_the_place_of_a_refusal() -> None:
    bench = refusing(None, None)
    await asyncio.sleep(0)
    bench.body.feed(b'data: {"error": {"code": "x"}}\n\n')
    await asyncio.sleep(0)
    bench.running.cancel()
    await bench.running
    outflow: Outflow = bench.pipeline.outflow
    assert outflow.exchange is None
    assert bench.sent[-1].type == "response.incomplete"


async def test_cancelled_twice_a_run_ends_once() -> None:
    bench = Bench(Persistence(far=True))
    await bench.begin()
    bench.body.feed(b"b")
    bench.running.cancel()
    bench.running.cancel()
    await bench.end()
    assert bench.text == "ab"


async def test_a_refusal_that_comes_as_the_end_is_the_answer_where_nothing_else_spares_it() -> None:
    bench = refusing(None, None)
    await asyncio.sleep(0)
    assert bench.asking is not None
    bench.asking.set()
    bench.body.end(ConnectionResetError())
    with pytest.raises(UpstreamError):
        await bench.running
