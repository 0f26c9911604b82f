"""A worker that stopped for longer than its leases: the clients of responses that another worker has settled
in the meantime get the stored end, and no event is sent that the store will never have (laws S1, E1)."""

from pathlib import Path

import pytest

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.sse import SSEDecoder
from tests.support.crashes import check_one_end, start_streams, wait_until_settled
from tests.support.scale import MANY
from tests.support.waiting import wait_until
from tests.support.workers import Reader, working_together


def broken_rules(reader: Reader) -> list[str]:
    validator = StreamValidator()
    for frame in SSEDecoder().feed(b"".join(reader.frames)):
        validator.feed_frame(frame)
    validator.close()
    return [str(each) for each in validator.violations]


def thawed(folder: Path, streams: int) -> None:
    with working_together(folder) as (frozen, other):
        readers = start_streams(frozen.base, streams, words=400)
        wait_until(lambda: all(b"response.output_text.delta" in each.data for each in readers))
        frozen.freeze()
        settled = wait_until_settled(other.base, [str(reader.response_id) for reader in readers])
        frozen.thaw()
        for reader in readers:
            reader.join()
            check_one_end(reader)
            assert broken_rules(reader) == []
            assert settled[str(reader.response_id)]["error"]["code"] == "response_interrupted"


def test_s1_clients_of_a_thawed_worker_get_the_stored_end(tmp_path: Path) -> None:
    thawed(tmp_path, streams=6)


@pytest.mark.slow
@pytest.mark.parametrize("_round", range(MANY))
def test_s1_thirty_streams_of_a_thawed_worker(tmp_path: Path, _round: int) -> None:
    thawed(tmp_path, streams=30)
