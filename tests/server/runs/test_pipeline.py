"""What comes from an upstream is kept and sent where it arrives, in its order, once; what has to be waited
for pauses the upstream."""

import asyncio
import gzip
import random
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from openresponses_bridge.protocol.events import OutputTextDelta
from openresponses_server.errors import HttpError, UpstreamError
from openresponses_server.http.client.body import PIECE, FairScheduler, ResponseBody
from openresponses_server.runs.pipeline import STAGES, Stage
from openresponses_server.runs.schema_workers import SchemaCheck
from openresponses_server.store.base import StoreError
from openresponses_server.upstreams.http import HttpReply
from tests.support.pipelines import REFUSED, Bench, Connection, Persistence, refusing
from tests.support.scale import FACTOR
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

GONE = StoreError(StoreError.UNAVAILABLE, "The store is gone.")


@pytest.fixture
async def far() -> AsyncIterator[Bench]:
    bench = Bench(Persistence(far=True))
    await bench.begin()
    yield bench
    bench.running.cancel()


@pytest.fixture
async def plain() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.begin()
    yield bench
    bench.running.cancel()


def test_stages_lead_from_asking_to_ended_alone() -> None:
    reached, ways = {Stage.ASKING}, [Stage.ASKING]
    while ways:
        for stage in STAGES[ways.pop()].next - reached:
            reached.add(stage)
            ways.append(stage)
    assert reached == set(Stage)
    assert [stage for stage in Stage if not STAGES[stage].next] == [Stage.ENDED]
    for stage, rules in STAGES.items():
        assert Stage.ENDED not in rules.next or stage is Stage.ENDING, (
            "nothing ends without having been stored"
        )
        assert Stage.ASKING not in rules.next
        assert not (rules.asks and stage not in (Stage.ASKING, Stage.BUFFERING, Stage.BETWEEN))


async def test_a_stage_that_may_not_follow_is_a_defect() -> None:
    bench = Bench()
    await bench.begin()
    bench.body.feed(b".")
    await bench.end()
    with pytest.raises(AssertionError, match="from ENDED to ENDING"):
        await bench.pipeline.finish([], 1.0, lambda _instead: None)


async def test_what_waits_for_nothing_is_sent_when_the_call_returns(plain: Bench) -> None:
    for text in ("b", "c"):
        plain.body.feed(text.encode())
        assert plain.text.endswith(text)
    assert plain.text == "abc"
    plain.body.end()
    await plain.end()


async def test_s1_what_is_kept_in_this_process_is_kept_and_then_sent() -> None:
    bench = Bench(persistence := Persistence())
    await bench.begin()
    bench.body.feed(b"b")
    assert bench.text == "ab"
    assert persistence.kept == bench.numbers
    assert bench.frames[-1] == persistence.batch.data
    bench.client.detach()
    bench.body.feed(b"c")
    assert (bench.text, persistence.kept[-1]) == ("ab", bench.numbers[-1] + 1)
    bench.running.cancel()


async def test_s1_what_the_log_answers_for_when_the_run_is_lost_is_not_sent() -> None:
    bench = Bench(persistence := Persistence(far=True))
    await bench.begin()
    bench.body.feed(b"b")
    persistence.lost = True
    await bench.have_it()
    assert "b" not in bench.text
    bench.running.cancel()


async def test_s1_nothing_is_sent_before_the_beginning_is_stored() -> None:
    bench = Bench(persistence := Persistence())
    await asyncio.sleep(0)
    for text in (b"a", b"b", b"c"):
        bench.body.feed(text)
    await asyncio.sleep(0.01)
    assert (bench.sent, bench.body.size) == ([], 2)
    persistence.beginning.set()
    bench.body.end()
    await bench.end()
    assert bench.text == "abc"


async def test_s1_what_is_kept_elsewhere_leaves_when_it_is_there_without_the_task_of_the_run(
    far: Bench,
) -> None:
    assert far.persistence is not None
    for number, text in enumerate(("b", "c", "d"), 1):
        before = far.text
        far.body.feed(text.encode())
        assert len(far.persistence.asked) == number
        assert far.text == before
        await far.have_it()
        assert far.text == before + text
    far.body.end()
    await far.end()


async def test_s4_what_comes_meanwhile_is_not_read_and_is_the_next_batch(far: Bench) -> None:
    """The piece that has paused the source and those behind it are given to the log together."""
    assert far.persistence is not None
    for text in (b"b", b"c", b"d", b"e"):
        far.body.feed(text)
    assert far.body.size == 2  # the second piece has paused it
    await far.have_it()
    assert (far.body.size, len(far.persistence.asked), far.body.is_waiting) == (0, 2, False)
    assert far.text == "ab"
    far.body.end()
    await far.have_it()
    await far.end()
    assert far.text == "abcde"
    assert [event.delta for event in far.sent if isinstance(event, OutputTextDelta)] == ["a", "b", "cde"]


async def test_s4_what_comes_meanwhile_joins_up_to_a_piece_of_the_source(far: Bench) -> None:
    assert far.persistence is not None
    for text in (b"b", b"c", b"d" * PIECE, b"e" * PIECE):
        far.body.feed(text)
    await far.have_it()
    assert (far.body.size, len(far.persistence.asked)) == (PIECE, 2)
    await far.have_it()
    assert far.text == "abc" + "d" * PIECE
    await until(lambda: far.body.size == 0)
    await far.have_it()
    far.body.end()
    await far.end()
    assert far.text.endswith("e" * PIECE)


async def test_end_that_came_behind_what_waits_for_the_log_comes_behind_it(far: Bench) -> None:
    assert far.persistence is not None
    far.body.feed(b"b")
    far.body.feed(b"c")
    far.body.end()
    await far.have_it()
    assert (far.text, len(far.persistence.asked)) == ("ab", 2)
    await far.have_it()
    await far.end()
    assert far.text == "abc"


async def test_s4_source_is_not_paused_while_nothing_more_arrives(far: Bench) -> None:
    for text in (b"b", b"c"):
        far.body.feed(text)
        assert far.connection.paused == 0
        await far.have_it()
    far.body.feed(b"d")
    far.body.end()  # before the log has answered
    assert not far.pipeline.last
    await far.have_it()
    await far.end()
    assert far.text == "abcd"


async def test_s4_client_that_cannot_take_it_pauses_its_upstream_and_nothing_passes_it(plain: Bench) -> None:
    plain.takes.clear()
    plain.body.feed(b"b")
    plain.body.feed(b"x" * 100_000)
    await asyncio.sleep(0.01)
    assert (plain.text, plain.body.size, plain.connection.paused) == ("a", 100_000, 1)
    assert plain.pipeline.draining
    assert not plain.pipeline.send_keepalive(as_event=True)
    plain.takes.set()
    await until(lambda: plain.body.size == 0)
    assert plain.connection.paused == 0
    assert not plain.pipeline.draining
    plain.body.end()
    await plain.end()


async def test_client_that_takes_nothing_when_the_log_has_it_is_waited_for_by_the_task(far: Bench) -> None:
    assert far.persistence is not None
    far.takes.clear()
    far.body.feed(b"b")
    await far.have_it()
    far.body.feed(b"c")
    await asyncio.sleep(0.01)
    assert (far.text, far.body.size) == ("a", 1)
    far.takes.set()
    await until(lambda: len(far.persistence.asked) == 2)
    await far.have_it()
    far.body.end()
    await far.end()


@pytest.mark.parametrize("failure", [RuntimeError("a defect"), HttpError(500, "refused")])
async def test_sending_that_fails_fails_in_the_task_of_the_run(plain: Bench, failure: Exception) -> None:
    """What calls is a connection to an upstream, which could do nothing with it."""
    plain.failure = failure
    plain.body.feed(b"b")
    with pytest.raises(type(failure)):
        await plain.running


async def test_client_that_may_leave_is_detached_when_sending_fails() -> None:
    bench = Bench(persistence := Persistence())
    await bench.begin()
    bench.failure = OSError("gone")
    bench.body.feed(b"b")
    await until(lambda: bench.body.is_waiting)
    bench.failure = None
    bench.body.feed(b"c")
    bench.body.end()
    await bench.running
    assert bench.text == "a"
    assert persistence.kept == list(range(len(persistence.kept)))


async def test_s1_what_cannot_be_kept_is_not_sent() -> None:
    bench = Bench(persistence := Persistence())
    persistence.failure = GONE
    await asyncio.sleep(0)
    bench.body.feed(b"a")
    with pytest.raises(StoreError):
        await bench.running
    assert bench.sent == []


async def test_what_came_before_a_cut_is_sent_before_the_cut_is_raised(plain: Bench) -> None:
    plain.body.feed(b"b")
    plain.body.end(ConnectionResetError())
    with pytest.raises(UpstreamError, match="was lost"):
        await plain.running
    assert plain.text == "ab"


async def test_a_defect_ends_the_run_and_does_no_harm_to_the_connection(plain: Bench) -> None:
    plain.spoken.feed = None  # type: ignore[method-assign, assignment]
    plain.body.feed(b"b")
    plain.body.feed(b"c")
    with pytest.raises(TypeError):
        await plain.running


async def test_a_stream_without_a_byte_is_an_error() -> None:
    bench = Bench()
    bench.body.end()
    with pytest.raises(UpstreamError, match="empty stream"):
        await bench.running


async def test_gzip_without_its_header_is_an_error_that_names_it() -> None:
    bench = Bench()
    bench.body.feed(gzip.compress(b"data: {}\n\n"))
    with pytest.raises(UpstreamError, match="gzip and no content-encoding"):
        await bench.running


async def test_s6_nothing_is_sent_to_keep_a_connection_alive_before_the_status_is_known() -> None:
    bench = Bench()
    assert not bench.pipeline.send_keepalive(as_event=True)
    await asyncio.sleep(0)
    assert bench.pipeline.send_keepalive(as_event=True)
    assert [event.type for event in bench.sent] == ["response.created", "response.in_progress"]
    bench.body.feed(b"a.")
    await bench.end()


async def test_what_is_kept_alive_while_an_answer_is_judged_is_sent_before_its_end(plain: Bench) -> None:
    plain.spoken.question = SchemaCheck({}, "")
    plain.spoken.is_complete = True
    plain.body.feed(b"b")
    await asyncio.sleep(0.01)
    assert plain.text == "ab"
    plain.spoken.is_complete = False
    plain.takes.clear()
    assert plain.pipeline.send_keepalive(as_event=True)
    plain.objection.set_result(None)
    await asyncio.sleep(0)
    plain.takes.set()
    await plain.end()


async def test_an_answer_that_is_judged_waits_for_what_its_log_has_not(far: Bench) -> None:
    far.spoken.question = SchemaCheck({}, "")
    far.spoken.is_complete = True
    far.body.feed(b"b")
    far.objection.set_result(None)
    await asyncio.sleep(0.01)
    assert far.text == "a"
    far.spoken.is_complete = False
    await far.have_it()
    await far.end()
    assert far.text == "ab"


@pytest.mark.parametrize("kept", ["", "near", "far"])
async def test_s5_another_answer_goes_on_where_the_first_was_a_refusal(kept: str) -> None:
    """What was sent meanwhile to keep the connection alive comes before it."""
    body = ResponseBody(Connection(), FairScheduler())
    other = HttpReply("one", cast(Any, SimpleNamespace(content=body, headers={})), 10.0, "")
    bench = refusing(Persistence(far=kept == "far") if kept else None, other)
    await asyncio.sleep(0)
    bench.body.feed(REFUSED)
    await asyncio.sleep(0)
    assert bench.pipeline.stage is Stage.BUFFERING
    assert bench.pipeline.send_keepalive(as_event=False)
    assert bench.asking is not None
    bench.asking.set()
    bench.replaceable = None
    body.feed(b"b.")
    if bench.persistence is not None:
        bench.persistence.beginning.set()
    for _ in range(20):
        await asyncio.sleep(0)
        for future in bench.persistence.asked if bench.persistence is not None else ():
            if not future.done():
                future.set_result(None)
    await bench.end()
    assert (bench.text, bench.committed) == ("b", 1)


async def test_s5_a_refusal_that_nothing_else_spares_is_the_answer() -> None:
    bench = refusing(None, None)
    await asyncio.sleep(0)
    bench.body.feed(REFUSED + b"x")
    assert bench.asking is not None
    bench.asking.set()
    await until(lambda: bench.pipeline.stage is Stage.OPEN)
    bench.body.feed(b".")
    await bench.end()
    assert bench.text.startswith("data: ")


@pytest.mark.parametrize("takes", [True, False])
async def test_interrupted_run_sends_what_was_on_its_way_before_its_end_and_once(
    far: Bench, takes: bool
) -> None:
    if not takes:
        far.takes.clear()
    far.body.feed(b"b")
    far.running.cancel()
    await asyncio.sleep(0)
    await far.have_it()
    far.takes.set()
    await far.end()
    assert far.text == "ab"
    assert far.sent[-1].type == "response.incomplete"


class Schedule:
    """What happens to a run, at random: a stream in pieces, a client, a log and a store that take their time,
    and an interruption."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.text = "".join(self.random.choice("abcdefgh") for _ in range(self.random.randrange(1, 30)))
        kind = self.random.choice(["plain", "near", "far"])
        persistence = None if kind == "plain" else Persistence(far=kind == "far")
        self.bench = Bench(persistence)
        self.cut = self.random.random() < 0.2
        self.interrupted = self.random.random() < 0.3
        self.ends_itself = self.random.random() < 0.5

    async def play(self) -> None:
        await asyncio.sleep(0)
        bench, left = self.bench, self.text.encode() + (b"." if self.ends_itself else b"")
        while left or not self.over():
            await self.step()
            if left and self.random.random() < 0.5:
                size = self.random.randrange(1, len(left) + 1)
                bench.body.feed(left[:size])
                left = left[size:]
                if self.cut and self.random.random() < 0.3:
                    break
                if not left:
                    bench.body.end()
            elif self.interrupted and self.random.random() < 0.1:
                break
        if self.interrupted and not STAGES[bench.pipeline.stage].next <= {Stage.ENDED}:
            bench.running.cancel()
        elif not bench.body.ended:
            bench.body.end(ConnectionResetError())
        while not self.over():
            await self.step()

    def over(self) -> bool:
        return self.bench.running.done()

    async def step(self) -> None:
        bench = self.bench
        if self.random.random() < 0.3:
            bench.takes.set() if self.random.random() < 0.7 else bench.takes.clear()
        if bench.persistence is not None:
            if self.random.random() < 0.3:
                bench.persistence.beginning.set()
            for future in bench.persistence.asked:
                if not future.done() and self.random.random() < 0.5:
                    future.set_result(None)
        if self.random.random() < 0.1:
            bench.pipeline.send_keepalive(as_event=self.random.random() < 0.5)
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)


async def test_any_schedule_sends_the_same_events_once_and_leaves_nothing() -> None:
    """A thousand of them: nothing twice, nothing out of order, nothing before it was kept, no task and no
    bytes left; the text is what came, or its beginning where the run was interrupted or cut."""
    tasks = asyncio.all_tasks()
    for seed in range(1000 * FACTOR):
        schedule = Schedule(seed)
        bench = schedule.bench
        try:
            await asyncio.wait_for(schedule.play(), 60)  # names the schedule
        except TimeoutError:
            pytest.fail(f"schedule {seed} hangs")
        failed = bench.running.exception()
        where = f"schedule {seed}"
        assert bench.numbers == list(range(len(bench.numbers))), where
        assert schedule.text.startswith(bench.text), where
        if failed is not None:
            assert isinstance(failed, UpstreamError), where
        else:
            assert bench.lasts[-1], where
            assert bench.pipeline.stage is Stage.ENDED, where
            if not (schedule.interrupted or schedule.cut):
                assert bench.text == schedule.text, where
        assert bench.pipeline.outflow.work is None, where
        assert asyncio.all_tasks() == tasks, where
        assert schedule.bench.body.size == 0 or failed or schedule.interrupted, where
