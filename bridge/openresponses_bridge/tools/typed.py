"""A tool's schema and handler from a function with types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from openresponses_bridge.errors import ToolError
from openresponses_bridge.tools.errors import ToolInputError, ToolValidationError

_INVALID: Final = "bridge.tools.invalid_tool"
_TEMPLATE: Final = "#/$defs/{name}"


class TypedHandler(NamedTuple):
    """What a function is as a tool; `handler(input, context)` calls it with converted values."""

    description: str
    schema: dict[str, Any]
    handler: Callable[..., Any]


def typed_handler(function: Callable[..., Any]) -> TypedHandler:
    """Raises ToolError when a parameter has no type, takes any number of values or has no name to give it by,
    or when its type is not one that JSON can be converted to."""
    from openresponses_bridge.tools.invocation import ToolInvocationContext

    name = function.__name__
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ToolError(_INVALID, f"a type of {name}() is not known: {error}") from None
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    contexts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolError(_INVALID, f"parameter {parameter.name!r} of {name}() can't be given by its name")
        if parameter.name not in hints:
            raise ToolError(_INVALID, f"parameter {parameter.name!r} of {name}() has no type")
        hint = hints[parameter.name]
        if hint is ToolInvocationContext:
            contexts.append(parameter.name)
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, _described(hint)))
        else:
            default = parameter.default
            if isinstance(default, list | dict | set):
                default = msgspec.field(default_factory=default.copy)
            fields.append((parameter.name, _described(hint), default))
    try:
        struct = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        schema = _schema(struct)
    except TypeError as error:
        raise ToolError(_INVALID, f"{name}() can't be a tool: {error}") from None
    first = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0]
    return TypedHandler(" ".join(first.split()), schema, _handler(function, struct, contexts))


def _handler(function: Callable[..., Any], struct: type[Any], contexts: list[str]) -> Callable[..., Any]:
    def values(given: dict[str, Any], context: Any) -> dict[str, Any]:
        try:
            converted = msgspec.convert(given, struct, strict=False)  # 1.0 is an integer in JSON Schema
        except msgspec.ValidationError as error:  # what a schema can't say, such as a date
            wrong = ToolInputError("", "#", "type", {}, f"can't be converted: {error}")
            raise ToolValidationError(function.__name__, [wrong], given) from None
        named = {name: getattr(converted, name) for name in struct.__struct_fields__}
        return named | dict.fromkeys(contexts, context)

    if inspect.iscoroutinefunction(function):

        async def call_later(given: dict[str, Any], context: Any) -> Any:
            return await function(**values(given, context))

        return call_later

    def call(given: dict[str, Any], context: Any) -> Any:
        return function(**values(given, context))

    return call


def _described(hint: Any) -> Any:
    """`Annotated[str, "words"]` as msgspec writes it."""
    if get_origin(hint) is not Annotated:
        return hint
    plain, *notes = get_args(hint)
    metas = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    return Annotated[(plain, *metas)]


def _schema(struct: type[Any]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([struct], ref_template=_TEMPLATE)
    schema: dict[str, Any] = components.pop(struct.__name__)
    del schema["title"]
    return schema | ({"$defs": components} if components else {})
