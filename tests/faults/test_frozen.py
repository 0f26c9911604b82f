"""A worker that is frozen and then killed, while the event log loses its newest entries: each connection gets
one end (law S1), and no event that was seen changes (law S2)."""

import random
import time
from pathlib import Path

import pytest

from tests.support.crashes import check_all, check_one_end, follow_all, forget_newest, start_streams
from tests.support.scale import MANY
from tests.support.workers import working_together


def frozen_and_killed(folder: Path, streams: int, seed: int) -> None:
    chosen = random.Random(seed)
    with working_together(folder) as (doomed, other):
        readers = start_streams(doomed.base, streams, words=200)
        followers = follow_all(other.base, readers)
        time.sleep(chosen.uniform(0.5, 2.0))
        doomed.freeze()
        time.sleep(0.3)  # the events that it had sent have arrived
        for reader in readers:
            rewound = chosen.random() < 0.5
            forget_newest(doomed.event_log, str(reader.response_id), chosen.randint(2, 8), rewound=rewound)
        time.sleep(chosen.choice((0.0, 4.0)))  # its leases may or may not be over before it is killed
        doomed.kill()
        for reader in readers:
            reader.join()
        for follower in followers:
            follower.join()
            check_one_end(follower)
        check_all(other.base, readers, {})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2 * MANY))
def test_s1_thirty_streams_and_a_frozen_worker(tmp_path: Path, seed: int) -> None:
    frozen_and_killed(tmp_path, streams=30, seed=seed)
