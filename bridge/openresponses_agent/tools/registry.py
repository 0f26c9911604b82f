"""The tools that can be offered to a model, by name.

A tool is a name, a description, a JSON Schema of its input and a handler: `handler(input)` or
`handler(input, context)`, sync or async, whose return value becomes a result (`LanguageModelToolResult.of`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NamedTuple,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec

from openresponses_agent.tools.errors import (
    CancellationToken,
    ToolDeclinedError,
    ToolFailureEncountered,
    ToolInputError,
    ToolValidationError,
)
from openresponses_agent.tools.results import LanguageModelToolResult
from openresponses_bridge.errors import LocalError, ToolError

if TYPE_CHECKING:
    from openresponses_agent.tools.validation import ToolSchema

_INVALID: Final = "bridge.tools.invalid_tool"
_TEMPLATE: Final = "#/$defs/{name}"


class TypedHandler(NamedTuple):
    """A function as a tool. `handler(input, context)` calls it with converted values."""

    description: str
    schema: dict[str, Any]
    handler: Callable[..., Any]


def typed_handler(function: Callable[..., Any]) -> TypedHandler:
    """Return a function with annotations as a tool. Raises ToolError if a parameter has no type, is variadic
    or positional only, or has a type that JSON can't be converted to."""
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
    def values(arguments: dict[str, Any], context: Any) -> dict[str, Any]:
        try:
            converted = msgspec.convert(arguments, struct, strict=False)  # 1.0 is an integer in JSON Schema
        except msgspec.ValidationError as error:  # a schema can't say everything, such as a valid date
            wrong = ToolInputError("", "#", "type", {}, f"can't be converted: {error}")
            raise ToolValidationError(function.__name__, [wrong], arguments) from None
        named = {name: getattr(converted, name) for name in struct.__struct_fields__}
        return named | dict.fromkeys(contexts, context)

    if inspect.iscoroutinefunction(function):

        async def call_later(arguments: dict[str, Any], context: Any) -> Any:
            return await function(**values(arguments, context))

        return call_later

    def call(arguments: dict[str, Any], context: Any) -> Any:
        return function(**values(arguments, context))

    return call


def _described(hint: Any) -> Any:
    """Return `Annotated[str, "words"]` in the form that msgspec reads."""
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


INVALID_TOOL: Final = "bridge.tools.invalid_tool"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # every provider accepts this

Handler = Callable[..., Any]
ResolveInput = Callable[[dict[str, Any], "ToolInvocationContext"], dict[str, Any] | Awaitable[dict[str, Any]]]
ProvideInput = Callable[
    [list[str], dict[str, Any], "ToolInvocationContext"], dict[str, Any] | Awaitable[dict[str, Any]]
]
FilterEdits = Callable[
    ["LanguageModelToolResult", "ToolInvocationContext"],
    "LanguageModelToolResult | Awaitable[LanguageModelToolResult]",
]
Confirm = Callable[[dict[str, Any]], str | None]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Tool:
    """One tool.

    `parallel` declares that its calls may overlap with others. `timeout` is in seconds; None leaves it to the
    service. Hooks, sync or async: `resolve_input(input, context)` returns the input that is validated instead
    of the model's; `provide_input(missing, input, context)` returns the user's values for required properties
    that the model left out; `filter_edits(result, context)` returns the result that is kept. `confirm(input)`
    returns the question to ask the user before a call, None to ask nothing. Raises ToolError for a name that
    providers refuse, a schema that is not of type object, and a handler that can't be called in either way.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    handler: Handler
    tags: frozenset[str] = frozenset()
    parallel: bool = False
    timeout: float | None = None
    resolve_input: ResolveInput | None = None
    provide_input: ProvideInput | None = None
    filter_edits: FilterEdits | None = None
    confirm: Confirm | None = None
    takes_context: bool = field(init=False)
    is_async: bool = field(init=False)
    _compiled: list[ToolSchema] = field(init=False, default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ToolError(INVALID_TOOL, f"a tool's name is 1 to 64 of A-Z a-z 0-9 _ -: {self.name[:80]!r}")
        if self.input_schema.get("type", "object") != "object":
            raise ToolError(INVALID_TOOL, f"the input schema of {self.name!r} is not the schema of an object")
        if self.timeout is not None and not self.timeout > 0:
            raise ToolError(
                INVALID_TOOL, f"the timeout of {self.name!r} must be above 0 seconds, not {self.timeout}"
            )
        object.__setattr__(self, "takes_context", _takes_context(self.name, self.handler))
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(_called(self.handler)))

    @property
    def judge(self) -> ToolSchema:
        """The schema against which input is validated, built when the tool is registered or first called.
        Raises ToolError if it can't be used, LocalError if jsonschema-rs is missing."""
        if not self._compiled:
            from openresponses_agent.tools.validation import ToolSchema  # jsonschema-rs is an extra

            self._compiled.append(ToolSchema(self.name, self.input_schema))
        return self._compiled[0]


class ToolOptions(TypedDict, total=False):
    """The fields of `Tool` that a function's signature does not have."""

    parallel: bool
    timeout: float | None
    resolve_input: ResolveInput | None
    provide_input: ProvideInput | None
    filter_edits: FilterEdits | None
    confirm: Confirm | None


class ToolRegistry:
    """Tools by name, in the order in which they were registered."""

    def __init__(self, tools: Collection[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> Tool:
        """Register a tool. Raises ToolError: `bridge.tools.name_collision` if the name is in use,
        `bridge.tools.invalid_schema` for a schema that can't be used. If jsonschema-rs (the extra `tools`) is
        missing, the first call reports such a schema instead."""
        if tool.name in self._tools:
            raise ToolError(ToolError.NAME_COLLISION, f"a tool named {tool.name!r} is registered already")
        try:
            _ = tool.judge
        except LocalError as error:
            if isinstance(error, ToolError):
                raise  # any other error: jsonschema-rs is missing
        self._tools[tool.name] = tool
        return tool

    def unregister(self, name: str) -> None:
        """Remove a tool. Does nothing if there is none of this name."""
        self._tools.pop(name, None)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def get_tools(self, tags: Collection[str] | None = None) -> list[Tool]:
        """Return all tools, or those that have one of these tags."""
        return [tool for tool in self if tags is None or not tool.tags.isdisjoint(tags)]

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        tags: Collection[str] = (),
        **options: Unpack[ToolOptions],
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        tags: Collection[str] = (),
        **options: Unpack[ToolOptions],
    ) -> Any:
        """Register a typed function and return it unchanged.

        The schema comes from its annotations (`Annotated[str, "what it is"]` describes a parameter,
        `msgspec.Meta` constrains it too), the name and the description from the function and the first
        paragraph of its docstring unless given. A parameter of type `ToolInvocationContext` is not part of
        the schema and receives the call's context. `options` are fields of `Tool`. Raises ToolError for a
        parameter without a type, or with one that JSON can't be converted to.
        """

        def register(typed: F) -> F:
            typed_tool = typed_handler(typed)
            self.register(
                Tool(
                    name or typed.__name__,
                    description if description is not None else typed_tool.description,
                    typed_tool.schema,
                    typed_tool.handler,
                    frozenset(tags),
                    **options,
                )
            )
            return typed

        return register if function is None else register(function)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)


def _called(handler: Handler) -> Any:
    return handler if inspect.isroutine(handler) else getattr(type(handler), "__call__", handler)  # noqa: B004


def _takes_context(name: str, handler: Handler) -> bool:
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return False  # a built-in function accepts only the input
    for arguments, takes in ((({}, {}), True), (({},), False)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return takes
    raise ToolError(INVALID_TOOL, f"the handler of {name!r} takes neither (input) nor (input, context)")


ConfirmCall = Callable[[str, str], Awaitable[bool]]
"""Asks `(tool_name, question)` and returns whether the user allows it."""


@dataclass(frozen=True)
class TokenizationOptions:
    """The limit of a result in the prompt: `token_budget` tokens, as `count_tokens` counts them."""

    token_budget: int
    count_tokens: Callable[[str], int]


@dataclass(frozen=True)
class ToolInvocationOptions:
    """The options of one call. `tool_invocation_token` identifies the user or request that the call is made
    for, for the tool and the listeners; `call_id` is the call's internal id."""

    input: dict[str, Any]
    tool_invocation_token: str | None = None
    tokenization_options: TokenizationOptions | None = None
    call_id: str = ""


@dataclass(frozen=True)
class ToolInvocationContext:
    """The context of a call, passed to handlers that have a second parameter."""

    tool_name: str
    token: CancellationToken
    call_id: str = ""
    tool_invocation_token: str | None = None
    tokenization_options: TokenizationOptions | None = None
    on_progress: Callable[[str], object] = field(default=lambda text: None)
    ask: ConfirmCall | None = None

    def progress(self, text: str) -> None:
        """Report what the tool is doing, to be shown to the user."""
        self.on_progress(text)

    async def confirm(self, question: str) -> None:
        """Ask the user. Raises ToolDeclinedError if the user declines, or if nobody can be asked."""
        self.token.check()
        if self.ask is None:
            raise ToolDeclinedError("it needs confirmation, and no user can be asked")
        if not await self.ask(self.tool_name, question):
            raise ToolDeclinedError("the user declined it")
        self.token.check()


class WillInvokeTool(NamedTuple):
    """A call is about to be made, with validated input."""

    tool_name: str
    options: ToolInvocationOptions


class DidInvokeTool(NamedTuple):
    """A call has been made: either `result` or `error` is set."""

    tool_name: str
    options: ToolInvocationOptions
    result: LanguageModelToolResult | None
    error: BaseException | None


class ToolCallOutcome(NamedTuple):
    """The result for the model. `failure` says why the call did not run to its end; `notes` are the changes
    of its arguments."""

    result: LanguageModelToolResult
    failure: ToolFailureEncountered | None = None
    notes: tuple[str, ...] = ()


class ToolCaller(Protocol):
    """Runs a handler: `run()` calls it and returns its value or an awaitable of it. A caller with an event
    loop runs sync handlers in threads, raises ToolTimeoutError after `timeout` seconds and
    ToolCallCancelledError when the token is cancelled."""

    async def __call__(
        self, tool: Tool, run: Callable[[], Any], timeout: float | None, token: CancellationToken
    ) -> Any: ...
