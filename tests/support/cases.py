"""Many cases in one test: each test of its own would cost more than what it runs."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*names: object) -> Iterator[None]:
    """Say in a failure which case it is."""
    try:
        yield
    except Exception as error:
        error.add_note(f"The case: {', '.join(map(repr, names))}")
        raise
