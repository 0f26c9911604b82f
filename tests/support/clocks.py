"""A clock that a test moves."""


class Clock:
    """Seconds since the epoch, which go by when a test says so."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
