"""Law S8: what all keys and each one may have at once of one kind.

Each kind has a limit in sum, which is one worker's, and one per key, which several workers count together
over Redis (`openresponses_server.limits`). Without keys every client is the same owner, so only the limit in
sum applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final, Protocol

from openresponses_server.errors import HttpError

_WITHOUT_KEY: Final = ""  # the owner of everything where no keys are asked for


class Others(Protocol):
    """The other workers, and what they have of one kind."""

    async def agree(self, owner: str) -> bool:
        """Whether this owner may have, with theirs, what it has here."""
        ...

    def changed(self, owner: str) -> None:
        """This owner has fewer here now."""
        ...


class Share:
    """How many of one kind there are at once: of all keys at most `total`, of each at most `per_key`. `what`
    names the kind in errors, `code` is their code."""

    def __init__(self, what: str, code: str, total: int, per_key: int) -> None:
        self._what = what
        self._code = code
        self._total = total
        self.per_key = per_key
        self._held: dict[str, int] = {}
        self._put_off: set[str] = set()
        self.count = 0
        """How many there are of all keys."""
        self.others: Others | None = None
        """Who else counts against the limit per key."""

    def held_by(self) -> list[str]:
        """Who has any."""
        return list(self._held)

    def at_their_limit(self) -> list[str]:
        """The owners that may not have one more, though there is a place."""
        return [owner for owner in {*self._held, *self._put_off} if not self.has_room(owner)]

    def of(self, owner: str) -> int:
        """How many this owner has."""
        return self._held.get(owner, 0)

    @property
    def full(self) -> bool:
        """There are as many as there may be of all keys."""
        return self.count >= self._total

    def has_room(self, owner: str) -> bool:
        """Whether this owner may have one more."""
        mine = owner == _WITHOUT_KEY or self.of(owner) < self.per_key
        return mine and not self.full and owner not in self._put_off

    def check(self, owner: str, more: int = 1, *, elsewhere: tuple[int, int] = (0, 0)) -> None:
        """Raises HttpError 429 that names the limit when this owner may not have so many more. `elsewhere` is
        how many there are beyond this process: of all keys, and of this one."""
        of_all, of_key = elsewhere
        if self.count + of_all + more > self._total:
            raise self._refusal(f"The server has {self._total} {self._what} at once and no more; try again.")
        if owner != _WITHOUT_KEY and self.of(owner) + of_key + more > self.per_key:
            raise self.too_many()

    async def agreed(self, owner: str) -> bool:
        """Whether the other workers leave this owner room for what it has taken here."""
        return owner == _WITHOUT_KEY or self.others is None or await self.others.agree(owner)

    def shared(
        self, owner: str, count: int = 1, after: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """So many more of this owner's, over all workers; `after` is called when they are given back. Raises
        HttpError 429."""
        return _Shared(self, owner, count, after)

    @contextmanager
    def held(self, owner: str) -> Iterator[None]:
        """One more of this owner's here. Raises HttpError 429."""
        self.check(owner)
        self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    def take(self, owner: str) -> None:
        """One more, whatever the limits say: what was accepted before is not refused now."""
        self.count += 1
        self._held[owner] = self._held.get(owner, 0) + 1

    def give_back(self, owner: str) -> None:
        """One less."""
        self.count -= 1
        left = self._held.pop(owner) - 1
        if left:
            self._held[owner] = left
        if self.others is not None and owner != _WITHOUT_KEY:
            self.others.changed(owner)

    def put_off(self, owner: str) -> None:
        """The other workers have all that this owner may have: there is no room here, until `resume`."""
        self._put_off.add(owner)

    def resume(self, owner: str) -> None:
        """They may be asked again."""
        self._put_off.discard(owner)

    def too_many(self) -> HttpError:
        """The refusal to an owner that has as many as one may have."""
        what = f"One API key has at most {self.per_key} {self._what} at once; try again when one has ended."
        return self._refusal(what)

    def _refusal(self, message: str) -> HttpError:
        return HttpError(429, message, code=self._code, headers={"retry-after": "1"})


class _Shared:
    """What is taken of a share while this context lasts. A class, since every request enters one and a
    generator costs several calls more."""

    __slots__ = ("_after", "_count", "_owner", "_share")

    def __init__(self, share: Share, owner: str, count: int, after: Callable[[], None] | None) -> None:
        self._share, self._owner, self._count, self._after = share, owner, count, after

    async def __aenter__(self) -> None:
        self._share.check(self._owner, self._count)
        for _ in range(self._count):
            self._share.take(self._owner)
        try:
            if not await self._share.agreed(self._owner):
                raise self._share.too_many()
        except BaseException:
            self._give_back()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    def _give_back(self) -> None:
        for _ in range(self._count):
            self._share.give_back(self._owner)
        if self._after is not None:
            self._after()
