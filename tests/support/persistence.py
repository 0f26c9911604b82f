"""A machine with its persistence, over a store that a test can make fail."""

from typing import Any

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_server.store.base import StoredResponse
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.persistence import RecordOptions, ResponseSessionPersistenceTransformer
from openresponses_server.store.writers import StoringTimes
from tests.support.clocks import Clock
from tests.support.failing_store import FailingStore, as_store

WORKER = "worker-1"

_NO_TIME = {"timeout": 0.0, "settling": 0.0}
_TIMES = frozenset(StoringTimes.__struct_fields__)


class Bench:
    """A machine, the transformer that persists its events, and the events that the client was sent."""

    def __init__(
        self,
        wire: str = "openresponses",
        request: bytes | None = None,
        log: MemoryLog | None = None,
        **more: Any,
    ) -> None:
        self.machine = ResponseStreamStateMachine("m", wire=wire)
        self.time = Clock(1_000.0)
        self.store = FailingStore(self.time)
        self.log = log or MemoryLog()
        self.woken = 0
        self.sent: list[Event] = []
        options: dict[str, Any] = {"wire": wire, "clock": self.time, "wake": self.wake, **_NO_TIME, **more}
        self.kept = ResponseSessionPersistenceTransformer(
            StoredResponse(self.machine.snapshot, [], request=request),
            lambda: self.machine.snapshot,
            as_store(self.store),
            self.log,
            WORKER,
            StoringTimes(**{name: options[name] for name in options.keys() & _TIMES}),
            RecordOptions(**{name: options[name] for name in options.keys() - _TIMES}),
        )

    @property
    def id(self) -> str:
        return self.machine.response_id

    def wake(self) -> None:
        self.woken += 1

    async def take(self, events: list[Event]) -> list[Event]:
        sent = await self.kept.persist(events)
        self.sent += sent
        return sent

    async def record(self) -> StoredResponse:
        response = await self.store.kept.get(self.id)
        assert response is not None
        return response

    async def stored_bytes(self) -> bytes:
        return b"".join([frames.data async for frames in self.store.kept.frames(self.id)])
