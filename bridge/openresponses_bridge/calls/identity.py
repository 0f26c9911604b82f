"""Finds the client's tool for a function call of the upstream's model, and its name for the upstream (law
E11).

Upstreams know functions with names of at most 64 characters of ``[a-zA-Z0-9_-]``. Clients have tools of
several kinds, in namespaces, under any name. Each tool gets one valid name for the upstream, by which it is
found again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from hashlib import blake2s
from itertools import count
from typing import Final

import msgspec

from openresponses_bridge.errors import ToolError

MAX_NAME_LENGTH: Final = 64

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_LENGTH: Final = 8
_JOINT: Final = "__"
_LONGEST_CALLED: Final = 512  # characters of a name that are searched for tokens
_AROUND: Final = " \t\r\n\ufeff\u200b\"'`"
_TOKEN: Final = r"<\|[^|<>]*+\|>|<｜[^｜<>]*+｜>|</?[a-z_]++>|\[[A-Z_]++\]"
_LEADING_TOKENS: Final = re.compile(rf"\A(?:function)?(?>(?:(?:{_TOKEN})\s*+)+)")
_NOT_IN_A_NAME: Final = re.compile(r"[<\[({]")
_OF_THE_MODEL: Final = re.compile(
    r"\A(?:(?:assistant|analysis|commentary)\s+)?(?:to=)?"
    r"(?:(?:functions?|default_api|tools?|multi_tool_use)[.:/]|(?:tool_)?call:)"
)
_CALL_NUMBER: Final = re.compile(r":[0-9]{1,4}\Z")
# The spellings of a name in a namespace, for models that do not repeat the one that they were given.
_SPELLINGS: Final = (_JOINT, ".", "/")


class ToolKind(StrEnum):
    """The type under which the client declared the tool, and so the type of its calls."""

    FUNCTION = "function"
    CUSTOM = "custom"
    SHELL = "shell"
    LOCAL_SHELL = "local_shell"
    APPLY_PATCH = "apply_patch"
    TOOL_SEARCH = "tool_search"


class ToolIdentity(msgspec.Struct, frozen=True):
    """One tool: the client's kind, name and namespace, and the name that the upstream knows."""

    kind: ToolKind
    name: str
    namespace: str | None
    upstream_name: str


class _Meanings(dict[str, ToolIdentity | None]):
    """The names in calls of the upstream's model → the tool of each; None marks a name that could mean
    two."""

    def __missing__(self, called: str) -> ToolIdentity | None:
        if len(called) > _LONGEST_CALLED:
            return None
        identities = {
            meant.upstream_name: meant for name in _bare(called) if (meant := self.get(name)) is not None
        }
        return next(iter(identities.values())) if len(identities) == 1 else None


def _bare(called: str) -> Iterator[str]:
    """Yield the name without what models add: white space, quotation marks and tokens, brackets after it, a
    namespace, the call's number."""
    name = called.strip(_AROUND)
    yield name
    name = _NOT_IN_A_NAME.split(_LEADING_TOKENS.sub("", name), 1)[0].strip(_AROUND)
    yield name
    name = _OF_THE_MODEL.sub("", name)
    yield name
    yield _CALL_NUMBER.sub("", name)


class ToolIdentityMap:
    """The tools of one request, found by the client's name and by what the upstream's model calls.

    Iterates over the identities in the order of declaration. ``in`` accepts an upstream name as it was
    returned, or an identity.
    """

    __slots__ = ("_by_name", "_by_upstream_name", "_meanings", "_ranks", "has_tools", "resolve")

    def __init__(self) -> None:
        self._by_name: dict[tuple[str | None, str], ToolIdentity] = {}
        self._by_upstream_name: dict[str, ToolIdentity] = {}
        self._meanings = _Meanings()
        self.has_tools = False
        """True if a tool was declared."""
        self._ranks: dict[str, int] = {}  # the rank of each name; a lower one takes precedence
        self.resolve: Callable[[str], ToolIdentity | None] = self._meanings.get
        """Returns the tool that a call of the upstream's model means; None if it is not one of them or could
        be two.

        Exact names take precedence, then ``namespace.name`` and its other spellings, then the client's own
        name without its namespace, then a name with tokens of the model's own around it.
        """

    def declare(self, kind: ToolKind, name: str, namespace: str | None = None) -> ToolIdentity:
        """Declare a tool of the client. Returns it with its upstream name. A tool that is declared twice is
        one tool.

        Raises `ToolError` ``bridge.tools.name_collision`` when the name is taken by another kind.
        """
        key = (namespace or None, name)
        declared = self._by_name.get(key)
        if declared is not None:
            if declared.kind is kind:
                return declared
            raise _collision(declared, kind)
        self.resolve, self.has_tools = self._meanings.__getitem__, True
        identity = ToolIdentity(kind, name, namespace or None, self.upstream_name(name, namespace))
        self._by_name[key] = self._by_upstream_name[identity.upstream_name] = identity
        for rank, names in enumerate(((identity.upstream_name,), _spellings(name, namespace), (name,))):
            for called in names:
                self._claim(called, rank, identity)
        return identity

    def know(self, name: str) -> None:
        """Add a function that keeps its own name upstream, to find calls whose name has tokens of the model.
        The request may have further tools that are not declared here."""
        if name not in self._meanings:
            self.resolve = self._meanings.__getitem__
            self._claim(name, 0, ToolIdentity(ToolKind.FUNCTION, name, None, name))

    def upstream_name(self, name: str, namespace: str | None = None) -> str:
        """Return the valid name for a tool of the client: the declared one, else the one that it would get
        now."""
        declared = self._by_name.get((namespace or None, name))
        if declared is not None:
            return declared.upstream_name
        full = _spellings(name, namespace)[0]
        legal = _ILLEGAL.sub("_", full)[:MAX_NAME_LENGTH]
        if legal == full != "" and legal not in self._by_upstream_name:
            return legal
        stem = legal[: MAX_NAME_LENGTH - _DIGEST_LENGTH - 1]
        candidates = (f"{stem}_{_digest(name, namespace, attempt)}" for attempt in count())
        return next(candidate for candidate in candidates if candidate not in self._by_upstream_name)

    def is_spelled(self, called: str) -> bool:
        """Return whether a tool may be called by this name without a repair."""
        return called in self._meanings

    def _claim(self, called: str, rank: int, identity: ToolIdentity) -> None:
        claimed = self._ranks.get(called, rank + 1)
        if rank < claimed:
            self._ranks[called], self._meanings[called] = rank, identity
        elif rank == claimed:
            self._meanings[called] = None

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[ToolIdentity]:
        return iter(self._by_name.values())

    def __contains__(self, tool: object) -> bool:
        if isinstance(tool, ToolIdentity):
            return self._by_name.get((tool.namespace, tool.name)) == tool
        return tool in self._by_upstream_name


def _spellings(name: str, namespace: str | None) -> tuple[str, ...]:
    return tuple(f"{namespace}{joint}{name}" for joint in _SPELLINGS) if namespace else (name,)


def _digest(name: str, namespace: str | None, attempt: int) -> str:
    # The length keeps ("a", "bc") and ("ab", "c") apart.
    key = f"{attempt}:{len(namespace or '')}:{namespace or ''}{name}"
    return blake2s(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_LENGTH // 2).hexdigest()


def _collision(declared: ToolIdentity, kind: ToolKind) -> ToolError:
    tool = repr(declared.name) + (f" in namespace {declared.namespace!r}" if declared.namespace else "")
    return ToolError(
        ToolError.NAME_COLLISION,
        f"the tool {tool} is declared twice, as {declared.kind.value!r} and as {kind.value!r}",
        param="tools",
    )
