"""Counts the calls of the project's own functions that one operation takes, and the files that they are
in."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from openresponses_bridge.sse import DONE
from tests.support.one_loop import serving
from tests.support.upstream import chunk

_OURS = tuple(f"{Path(__file__).parents[2]}/{half}/" for half in ("bridge", "server"))


def leave_out_spans(patch: Callable[[str, object], None]) -> None:
    """Count the calls as without the extra `otel`."""
    for where in ("requests.composition", "upstreams.routing.models", "upstreams.targets"):
        patch(f"openresponses_server.{where}.is_installed", lambda: False)


class Count:
    """Calls by the file and the name of the called function."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.moves = 0
        """The number of calls that went to another file than the call before."""
        self._file = ""

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            name = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
            self.calls[name] = self.calls.get(name, 0) + 1
            self.moves += self._file not in ("", frame.f_code.co_filename)
            self._file = frame.f_code.co_filename

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    @property
    def files(self) -> int:
        return len({name.rpartition(":")[0] for name in self.calls})

    def check(self, calls: int, files: int, moves: int | None = None) -> None:
        """Assert that each count is at most its limit; without `moves`, any number of moves is allowed."""
        shown = [f"{times:4} {name.partition('/openresponses_')[2]}" for name, times in self.calls.items()]
        report = "\n".join((f"{self.total} calls in {self.files} files, {self.moves} moves:", *shown))
        assert self.total <= calls, report
        assert self.files <= files, report
        assert moves is None or self.moves <= moves, report


def fewest(counts: list[Count]) -> Count:
    """Return the count with the fewest calls: on a busy machine one read becomes two, and timers run in
    between."""
    return min(counts, key=lambda each: each.total)


@contextmanager
def counting() -> Iterator[Count]:
    count = Count()
    before = sys.getprofile()
    sys.setprofile(count.note)
    try:
        yield count
    finally:
        sys.setprofile(before)


async def plain_request() -> Count:
    """Return the lowest count of several plain requests. The first ones are not counted, because they create
    what the process needs only once."""
    async with serving(store="memory://") as bench:
        bench.upstream.whole = chunk(content="Hello") + chunk("stop") + DONE
        for _ in range(3):
            assert b"Hello" in await bench.ask(store=False)
        counts = []
        for _ in range(5):
            await asyncio.sleep(0.05)
            with counting() as count:
                await bench.ask(store=False)
            counts.append(count)
        return fewest(counts)
