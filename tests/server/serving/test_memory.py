"""Freed memory is returned to the system."""

import platform
import subprocess
import sys

import pytest

from tests.support.wheel import clean_environment

_SCRIPT = """
import sys
from openresponses_server.serving.memory import fix_malloc_thresholds

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 >> 20

if sys.argv[1] == "given back":
    fix_malloc_thresholds()
largest = bytes(24 << 20)
del largest  # from here on glibc would keep blocks up to this size among the small ones
large, small = [], []
for number in range(64):
    large.append(b"x" * (1 << 20))
    small.append(b"y" * 100_000)
full = resident()
large.clear()
print(full - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps such blocks")
def test_s4_large_blocks_that_were_freed_leave_the_process() -> None:
    def left(how: str, **variables: str) -> int:
        ran = subprocess.run(
            [sys.executable, "-c", _SCRIPT, how],
            env=clean_environment() | variables,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(ran.stdout)

    assert left("given back") >= 60
    assert left("kept") < 30
    assert left("given back", MALLOC_MMAP_THRESHOLD_="33554432") < 30  # what the operator set stays


_OPEN = """
import gc
import sys
from openresponses_server.serving.memory import tune_gc

looked = []
gc.callbacks.append(lambda phase, info: phase == "start" and looked.append(info["generation"]))
tune_gc()
gc.set_threshold(50, *gc.get_threshold()[1:])  # a hundredth
looked.clear()
held = [[number] for number in range(4_000)]  # a hundredth of what 3,000 streams hold
few = looked.count(0), looked.count(1), looked.count(2)
held += [[number] for number in range(96_000)]
print(*few, looked.count(2))
"""


def test_what_open_streams_hold_is_not_looked_at_again_and_again() -> None:
    """It is looked at when it is new, and once more soon, in small parts: what of 2,000 streams is looked at
    together holds everything up for 200 ms. All is looked at after many more."""
    ran = subprocess.run(
        [sys.executable, "-c", _OPEN], env=clean_environment(), capture_output=True, text=True, check=True
    )
    new, soon, again, at_last = map(int, ran.stdout.split())
    assert soon > new / 4
    assert again == 0
    assert at_last > 0
