"""The objects that a test leaves to the cyclic garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def garbage() -> Iterator[set[str]]:
    """Yield a set that is filled at the end of the context with the names of what was left in reference
    cycles: classes with their modules, and functions with their files where frames are left. The collector is
    off during the context. Older objects are frozen and stay frozen: otherwise each later collection would
    examine all collected tests, which takes most of a second."""
    names: set[str] = set()
    enabled, flags = gc.isenabled(), gc.get_debug()
    gc.disable()
    gc.freeze()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        yield names
        gc.collect()
        names.update(_name(each) for each in gc.garbage)
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        if enabled:
            gc.enable()


def _name(left: object) -> str:
    if isinstance(left, FrameType):
        return f"{left.f_code.co_filename}:{left.f_code.co_qualname}"
    return f"{type(left).__module__}.{type(left).__qualname__}"
