"""A run that its worker did not finish, as the store and the log have it."""

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_server.runs.follow import Follower
from openresponses_server.runs.settle import Settler
from openresponses_server.store.base import Lease, ResponseProgress, StoredResponse
from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.memory import MemoryStore

LONG_AGO = Lease("dead", 1.0)


class Left:
    """A run that was not finished: `saved` is what reached the store, `logged` what reached only the log."""

    def __init__(self) -> None:
        self.machine = ResponseStreamStateMachine("m")
        self.store = MemoryStore()
        self.log = MemoryLog()
        self.settler = Settler(self.store, self.log, 5.0)
        self.follower = Follower(self.store, self.log, self.settler, pause=0.01)
        self.saved: list[Event] = []
        self.logged: list[Event] = []

    @property
    def id(self) -> str:
        return self.machine.response_id

    async def begin(self) -> None:
        self.saved = self.machine.start() + self.machine.text("Saved")
        frames = Frames(0, len(self.saved) - 1, encode_sse(self.saved))
        await self.store.put(StoredResponse(self.machine.snapshot, [], lease=LONG_AGO), frames)

    async def log_more(self) -> None:
        self.logged = self.machine.text(" and logged")
        first = len(self.saved)
        await self.log.open(self.id)
        await self.log.append(self.id, Frames(0, first - 1, encode_sse(self.saved)))
        await self.log.append(self.id, Frames(first, first + len(self.logged) - 1, encode_sse(self.logged)))

    async def record(self) -> StoredResponse:
        response = await self.store.get(self.id)
        assert response is not None
        return response

    async def standing(self) -> ResponseProgress:
        progress = await self.store.standing(self.id)
        assert progress is not None
        return progress

    async def read(self, after: int = -1) -> bytes:
        return b"".join([data async for data in self.follower.follow(await self.standing(), after)])
