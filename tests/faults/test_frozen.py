"""A worker that is frozen, and goes on when others have settled its runs, or is killed while the event log
loses what it wrote last: each connection gets one end (law S1), and nothing that was seen is changed (law
S2)."""

import json
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from openresponses_bridge.conformance import StreamValidator
from tests.faults.test_crash import check_all
from tests.support.crashes import check_one_end, follow_all, forget_newest, start_streams, wait_until_settled
from tests.support.scale import MANY
from tests.support.services import own_redis, postgres_database
from tests.support.workers import working


def frozen_and_killed(folder: Path, streams: int, seed: int) -> None:
    chosen = random.Random(seed)
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        log = stack.enter_context(own_redis()).url
        doomed = stack.enter_context(working(folder, store, log))
        other = stack.enter_context(working(folder, store, log))
        readers = start_streams(doomed.base, streams, words=200)
        followers = follow_all(other.base, readers)
        time.sleep(chosen.uniform(0.5, 2.0))
        doomed.freeze()
        time.sleep(0.3)  # what it had sent has arrived
        for reader in readers:
            forget_newest(log, str(reader.response_id), chosen.randint(2, 8), rewound=chosen.random() < 0.5)
        time.sleep(chosen.choice((0.0, 4.0)))  # its leases are over before it is killed, or not
        doomed.kill()
        for reader in readers:
            reader.join()
        for follower in followers:
            follower.join()
            check_one_end(follower)
        check_all(other.base, readers, {})


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(2 * MANY))
def test_s1_thirty_streams_and_a_frozen_worker(tmp_path: Path, seed: int) -> None:
    frozen_and_killed(tmp_path, streams=30, seed=seed)


@pytest.mark.timeout(120)
def test_s1_what_a_thawed_worker_sends_is_what_another_has_settled(tmp_path: Path) -> None:
    """Found by an hour of faults: it sent what it could not log, as if the log alone were gone."""
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        log = stack.enter_context(own_redis()).url
        frozen = stack.enter_context(working(tmp_path, store, log))
        other = stack.enter_context(working(tmp_path, store, log))
        readers = start_streams(frozen.base, 6, words=400)
        time.sleep(1.0)
        frozen.freeze()
        time.sleep(0.3)  # what it had sent has arrived
        settled = wait_until_settled(other.base, [str(each.response_id) for each in readers])
        frozen.thaw()
        for reader in readers:
            reader.join()
            validator = StreamValidator()
            for event in reader.events.values():
                validator.feed(event.split(b"data: ", 1)[1])
            validator.close()
            assert validator.violations == []
            last = json.loads(reader.frames[-2].split(b"data: ", 1)[1])
            assert last["response"] == settled[str(reader.response_id)]
