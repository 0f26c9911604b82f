"""What waits for the cyclic collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def garbage() -> Iterator[set[str]]:
    """What the context leaves in cycles, known when it has ended: names of classes with their modules, and of
    functions whose frames stay with their files. The collector is off meanwhile; what there was before is
    neither looked through nor collected."""
    found: set[str] = set()
    enabled, flags = gc.isenabled(), gc.get_debug()
    gc.disable()
    gc.freeze()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        yield found
        gc.collect()
        found.update(_name(each) for each in gc.garbage)
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        gc.unfreeze()
        if enabled:
            gc.enable()


def _name(left: object) -> str:
    if isinstance(left, FrameType):
        return f"{left.f_code.co_filename}:{left.f_code.co_qualname}"
    return f"{type(left).__module__}.{type(left).__qualname__}"
