"""Ten thousand turns of Codex through one server, some of them interrupted, with restarts: memory stays
constant, and nothing is left behind."""

import asyncio
import gc
import os
import tracemalloc
from pathlib import Path

import pytest

from tests.support.codex_upstream import Codex, codex, text_of
from tests.support.logs import log_as_in_production

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TURNS = 10_000
WARM = 2_000  # turns after which every cache is full
MOST_TRACED = 500_000  # bytes
MOST_RESIDENT = 16_000_000  # bytes


def interrupted(served: Codex) -> None:
    """A response that is cancelled while Codex makes it."""
    queued = served.ask("wait", background=True)
    served.app.run(asyncio.sleep(0.02))
    assert served.app.call("POST", f"/v1/responses/{queued['id']}/cancel").status == 200


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_ten_thousand_turns_leave_nothing(tmp_path: Path) -> None:
    log_as_in_production()  # discarded: lines that the fixture `logs` keeps would count as memory
    restarts, traced, resident = 0, list[int](), list[int]()
    with codex(tmp_path, brief=True, threads=32, stored_responses=64) as served:
        previous = None
        tracemalloc.start()
        for turn in range(1, TURNS + 1):
            if turn % 1000 == 500:
                assert served.ask("die", store=False)["error"]["code"] == "upstream_disconnected"
                restarts, previous = restarts + 1, None
            elif turn % 100 == 50:
                interrupted(served)
            else:
                goes_on = {"previous_response_id": previous} if previous and turn % 4 else {}
                response = served.ask(f"say Turn {turn}", **goes_on)
                assert text_of(response) == f"Turn {turn}"
                previous = response["id"]
            if turn >= WARM and turn % 1000 == 0:
                gc.collect()
                traced.append(tracemalloc.get_traced_memory()[0])
                resident.append(resident_bytes())
        tracemalloc.stop()
        assert len(served.pids) > restarts
    print(f"restarts {restarts}, processes {len(served.pids)}, traced {traced}, resident {resident}")
    assert traced[-1] - traced[0] < MOST_TRACED, traced
    assert resident[-1] - resident[0] < MOST_RESIDENT, resident
