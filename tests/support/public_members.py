"""The members of a module that other programs can use: its public names, with parameters, fields and
methods."""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any, Final

import msgspec

Members = dict[str, list[str]]
"""Each name → the lines that describe it: first its kind, then its members in alphabetical order."""
_OURS: Final = "openresponses_"
_PLAIN: Final = (str, bytes, int, float, bool, type(None))


def public_members(module: str) -> Members:
    """The names in `__all__` of this module."""
    namespace = import_module(module)
    return {name: list(_lines(name, getattr(namespace, name))) for name in sorted(namespace.__all__)}


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, type) and value.__module__.startswith(_OURS):
        yield _class(value)
        yield from sorted(_members(value))
    elif isinstance(value, ModuleType):
        yield f"module {value.__name__}"
    elif isinstance(value, FunctionType):
        yield _function(name, value)
    else:
        yield f"{type(value).__name__}"


def _class(value: type) -> str:
    bases = [each.__name__ for each in value.__bases__ if each is not object]
    return f"class {value.__name__}" + (f"({', '.join(bases)})" if bases else "")


def _members(value: type) -> Iterator[str]:
    """Yield the lines of the members of a class and of its base classes in this project."""
    if issubclass(value, enum.Enum):
        yield from (f"{each.name} = {each.value!r}" for each in value)
        return
    if issubclass(value, msgspec.Struct):
        yield from _fields(value)
    seen: set[str] = {"__init__"} if issubclass(value, msgspec.Struct) else set()
    for each in value.__mro__:
        if not each.__module__.startswith(_OURS):
            continue
        for name, member in vars(each).items():
            if name not in seen and (name == "__init__" or not name.startswith("_")):
                seen.add(name)
                if (line := _member(name, member)) is not None:
                    yield line
        for name in _set_by_constructor(each) - seen:
            seen.add(name)
            yield f"attribute {name}"


def _fields(value: type[msgspec.Struct]) -> Iterator[str]:
    for field in msgspec.structs.fields(value):
        has_default = not (field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT)
        yield f"field {field.name}{_default(field.default) if has_default else ''}"


def _member(name: str, member: Any) -> str | None:
    if isinstance(member, property):
        return f"property {name}"
    if isinstance(member, classmethod | staticmethod):
        return f"{type(member).__name__} {_function(name, member.__func__)}"
    if isinstance(member, FunctionType):
        return _function(name, member)
    if isinstance(member, _PLAIN):
        return f"{name} = {member!r}"
    return None  # slots, and what a field or a decorator leaves behind


def _function(name: str, function: Callable[..., Any]) -> str:
    kind = "async def" if inspect.iscoroutinefunction(function) else "def"
    signature = inspect.signature(function)
    parameters: list[str] = []
    named_only = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not named_only:
            parameters.append("*")
        named_only = named_only or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else _default(each.default)
        parameters.append(f"{stars}{each.name}{default}")
    return f"{kind} {name}({', '.join(parameters)})"


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"={type(value).__name__}.{value.name}"
    return f"={value!r}" if isinstance(value, _PLAIN) else "=…"


def _set_by_constructor(value: type) -> set[str]:
    """Return the public attributes that `__init__` sets on an object; the class itself does not have them."""
    constructor = vars(value).get("__init__")
    if not isinstance(constructor, FunctionType) or constructor.__code__.co_filename == "<string>":
        return set()  # a data class, whose fields are the parameters
    tree = ast.parse(textwrap.dedent(inspect.getsource(constructor)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and not node.attr.startswith("_")
    }
