"""Translates a request of the Messages API into one of ours."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages import search, thinking
from openresponses_bridge.dialects.anthropic_messages.carried import (
    CACHE,
    JOINT,
    CarriedFields,
)
from openresponses_bridge.dialects.anthropic_messages.thinking import effort_from
from openresponses_bridge.dialects.anthropic_messages.types import SLUG, SYSTEM_FIELDS
from openresponses_bridge.dialects.base import (
    EXPLICIT,
    LONGEST_NAME,
    SEARCH_SOURCES,
    Fields,
    body_of,
    data_url,
    invalid,
    place,
    search_call,
    sources_of,
)
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as it
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.tools import FunctionToolChoice, FunctionToolParam, ToolChoice
from openresponses_bridge.protocol.unknown import (
    Extensible,
    UnknownItem,
    UnknownPart,
    UnknownTool,
    UnknownToolChoice,
)
from openresponses_bridge.seal import Sealer, SealError

_SOURCES: Final = ("url", "base64")
_PDF: Final = "application/pdf"
_REFERENCE: Final = "tool_reference"
_BILLING: Final = "x-anthropic-billing-header:"  # Claude Code's first words; the rest differs in each request
_HOSTED_SEARCH: Final = "tool_search_tool_"
_DEFERRED: Final = "defer_loading"
_TYPE: Final = "type"  # of a tool that the client runs; no other API has a name for it
_ADDITION: Final = "tool_addition"
_DEFINITION: Final = "tool_definition"
_SYSTEM_ROLES: Final = ("system", "developer")


class ToolChange(NamedTuple):
    """A tool that is offered or no longer offered from there on. `definition` is its own, if it has one."""

    adds: bool
    name: str | None
    definition: Fields | None = None


class MessageReader:
    """Converts messages to items, in order. Fields without a counterpart are carried. Raises
    InvalidRequestError with the place of the error."""

    def __init__(self, sealer: Sealer, diagnostics: Diagnostics, carried: CarriedFields) -> None:
        self._sealer = sealer
        self._diagnostics = diagnostics
        self._carried = carried
        self.items: list[Any] = []
        self.tool_changes: list[ToolChange] = []
        """The changes of tools, in order."""
        self.tools_used: dict[str, None] = {}
        """The names of the tools that a result loaded or that were called, in order."""
        self._parts: list[Any] = []
        self._role: Any = "user"
        self._where = ""  # of the present block
        self._searches: dict[
            str, tuple[int, dict[str, Any]]
        ] = {}  # id of a call → its item's index, its block

    def message(self, message: Fields) -> None:
        """Read one message of the request."""
        self._role = message.need("role", str)
        if self._role not in ("user", "assistant", *_SYSTEM_ROLES):
            raise invalid(message.at("role"), "expected user or assistant")
        content = message.raw("content")
        self._own_fields(message)
        if isinstance(content, str):
            self._parts = [self._text_part(content)]
        elif isinstance(content, list):
            for block in message.each("content"):
                self._block(block)
        elif content is not None or self._role not in _SYSTEM_ROLES:
            raise invalid(message.at("content"), "expected a string or an array")
        self._flush()

    def _own_fields(self, message: Fields) -> None:
        """Keep the fields of a message of the system, such as the effort from there on, as an item before it,
        since its content may be empty."""
        if self._role not in _SYSTEM_ROLES:
            for where in message.unread_here:
                self._diagnostics.loss(where, "can't be expressed")
        elif fields := message.rest():
            item = {"type": SYSTEM_FIELDS, "id": "", "status": "completed", "role": "system"}
            self.items.append(UnknownItem({**item, "fields": fields}))

    def _result(self, message: Fields) -> list[Any]:
        """Return the parts of a tool's result, which belong to the next item. The results of a search for
        deferred tools are text for other upstreams."""
        parts: list[Any] = []
        loaded: list[str] = []
        for block in message.each("content"):
            kind = block.need("type", str)
            if kind == _REFERENCE:
                loaded.append(block.need("tool_name", str))
                block.whole()
                continue
            read = _CONTENTS.get(kind)
            if read is None:
                self._carried.blocks[place(len(self.items))] = {"content": message.raw("content")}
                self._carried.report([f"tool_result.{kind[:64]}"])
                block.whole()
                continue
            part = read(self, block)
            content = ct.InputTextContent(part.text) if kind == "text" else part
            parts.append(self._kept(block, content, len(parts), f"tool_result.{kind}"))
        if loaded:
            self._carried.blocks[place(len(self.items))] = {"content": message.raw("content")}
            self.tools_used.update(dict.fromkeys(loaded))
            parts.append(ct.InputTextContent(f"Loaded: {', '.join(loaded)}"))
        return parts

    def _block(self, block: Fields) -> None:
        kind = block.need("type", str)
        read = _CONTENTS.get(kind)
        if read is not None:
            self._parts.append(self._kept(block, read(self, block), len(self._parts), kind))
            return
        self._flush()
        self._where = place(len(self.items))
        _BLOCKS.get(kind, MessageReader._hosted)(self, block)
        fields = {CACHE: block.raw(CACHE)} if block.raw(CACHE) else {}
        self._carried.add(self._where, block.rest() | fields, kind)

    def _kept(self, block: Fields, part: Any, index: int, kind: str) -> Any:
        """Return the part of a block, with its cache breakpoint; the block's other fields are carried."""
        rest = block.rest()
        self._carried.add(place(len(self.items), index), rest, kind)
        return replace(part, extra=EXPLICIT) if CACHE in rest and isinstance(part, Extensible) else part

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            if self._role in _SYSTEM_ROLES:
                self._carried.inline.add(len(self.items))
            self.items.append(it.MessageParam(self._role, parts))

    def _text_part(self, text: str) -> Any:
        return ct.OutputTextParam(text) if self._role == "assistant" else ct.InputTextContent(text)

    def _text(self, block: Fields) -> Any:
        part = self._text_part(block.need("text", str))
        citations = block.get("citations", list) if isinstance(part, ct.OutputTextParam) else None
        if not citations:
            return part
        annotations = [self._citation(each, len(part.text)) for each in citations]
        if None in annotations:
            self._carried.add(place(len(self.items), len(self._parts)), {"citations": citations}, "text")
        return replace(part, annotations=[each for each in annotations if each is not None] or UNSET)

    def _citation(self, citation: Any, length: int) -> ct.UrlCitation | None:
        """Return a citation of a web page; None for any other. A citation that the bridge made from another
        upstream's has nothing that only the API knows."""
        source = next(iter(sources_of([citation])), None)
        if source is None or not isinstance(citation, dict) or citation.get("type") != search.CITATION:
            return None
        known = citation.get("encrypted_index")
        sealed = thinking.seal_citation(self._sealer, citation) if known else UNSET
        return ct.UrlCitation(source.url, 0, length, source.title, sealed)

    def _own_part(self, block: Fields) -> UnknownPart:
        """Return a part for a block whose content only the API itself has, such as one given by an id."""
        self._carried.needed[block.at("source")] = "its content can be read by Anthropic's API alone"
        return UnknownPart({"type": f"{SLUG}{block.raw('type')}", "block": block.whole()})

    def _image(self, block: Fields) -> Any:
        source = block.inner("source")
        if source.need("type", str) not in _SOURCES:
            return self._own_part(block)
        return ct.InputImageParam(self._url(source), "auto")

    def _document(self, block: Fields) -> Any:
        source = block.inner("source")
        if source.need("type", str) not in (*_SOURCES, "text"):
            return self._own_part(block)
        title = block.get("title", str) or UNSET
        kind = source.need("type", str)
        if kind == "url":
            return ct.InputFileContent(title, file_url=source.need("url", str))
        if kind == "text":
            data = b64encode(source.need("data", str).encode("utf-8", "replace")).decode()
            url = data_url("text/plain", data, source.at("media_type"), source.at("data"))
            return ct.InputFileContent(title or "document.txt", url)
        return ct.InputFileContent(title or "document.pdf", self._url(source))

    def _url(self, source: Fields) -> str:
        if source.need("type", str) == "url":
            return source.need("url", str)
        media = source.get("media_type", str) or _PDF
        return data_url(media, source.need("data", str), source.at("media_type"), source.at("data"))

    def _tool_use(self, block: Fields) -> None:
        arguments = encode(block.need("input", dict)).decode()
        call_id, name = block.need("id", str), block.need("name", str)
        self.tools_used[name] = None
        self.items.append(it.FunctionCallParam(call_id, name, arguments))

    def _tool_result(self, block: Fields) -> None:
        content = block.raw("content")
        output: Any = content or ""
        if not isinstance(output, str):
            output = self._result(block)
        status: Any = "incomplete" if block.raw("is_error") else UNSET  # `to_messages` reads this
        call_id = block.need("tool_use_id", str)
        self.items.append(it.FunctionCallOutputParam(call_id, output, status=status))

    def _thinking(self, block: Fields) -> None:
        text = block.need("thinking", str)
        signature = block.get("signature", str) or ""
        if self._foreign(signature):
            return
        content = [ct.ReasoningTextContent(text)] if text else UNSET
        encrypted = thinking.seal_block(self._sealer, _bare(block)) if signature else UNSET
        self.items.append(it.ReasoningParam([], content=content, encrypted_content=encrypted))

    def _redacted(self, block: Fields) -> None:
        if not self._foreign(block.need("data", str)):
            sealed = thinking.seal_block(self._sealer, _bare(block))
            self.items.append(it.ReasoningParam([], encrypted_content=sealed))

    def _foreign(self, opaque: str) -> bool:
        """Open another upstream's reasoning, which the bridge sealed into Anthropic's field."""
        try:
            kind, fields = thinking.open_sealed(self._sealer, opaque)
        except SealError:
            return False  # it is Anthropic's own
        if kind != thinking.REASONING:
            return False
        summary = [ct.SummaryTextContent(text) for text in fields["summary"]]
        encrypted = fields["encrypted_content"]
        self.items.append(it.ReasoningParam(summary, fields["id"], encrypted_content=encrypted))
        return True

    def _compaction(self, block: Fields) -> None:
        self.items.append(it.CompactionParam(thinking.seal_block(self._sealer, _bare(block))))

    def _server_tool_use(self, block: Fields) -> None:
        """Read the call of a server's tool. That of a search becomes an item, which its result completes;
        that of another tool is kept whole."""
        bare = _bare(block)
        own = search.own_id(bare, "id")
        if self._role != "assistant" or not search.is_use(bare) or own in self._searches:
            self._hosted(block)
            return
        self._searches[own] = (len(self.items), bare)
        self._where = place(len(self.items), 0)
        self.items.append(self._search(own, bare, None))

    def _search_result(self, block: Fields) -> None:
        bare = _bare(block)
        own = search.own_id(bare, "tool_use_id")
        if self._role != "assistant" or own not in self._searches:
            self._hosted(block)
            return
        index, call = self._searches.pop(own)
        self._where = place(index, 1)
        self.items[index] = self._search(own, call, bare)

    def _search(self, own: str, call: dict[str, Any], result: dict[str, Any] | None) -> UnknownItem:
        """Return an item with the sealed calls that the API ran itself, so that they can be sent back to
        it."""
        sources, status = ([], "failed") if result is None else search.found_in(result)
        sealed = ""
        if not search.is_made_here(own):
            sealed = thinking.seal_search(self._sealer, [call] if result is None else [call, result])
        item = search.item_id(own)
        return search_call(item, search.query_of(call), sources, status=status, sealed=sealed)

    def _tool_change(self, block: Fields) -> None:
        """Read a tool that is added or removed by its name, with its own definition or with that in the
        request."""
        if self._role in _SYSTEM_ROLES:
            tool, kind = block.inner("tool"), block.raw("type")
            if tool.raw("type") == _DEFINITION:
                definition = tool.inner("definition")
                self.tool_changes.append(
                    ToolChange(kind == _ADDITION, definition.get("name", str), definition)
                )
            else:
                self.tool_changes.append(ToolChange(kind == _ADDITION, tool.get("name", str)))
        self._hosted(block)

    def _hosted(self, block: Fields) -> None:
        kind = block.raw("type")
        own = block.raw("id") or block.raw("tool_use_id") or ""
        self.items.append(
            UnknownItem(
                {
                    "type": SLUG + kind,
                    "id": own,
                    "status": "completed",
                    "role": self._role,
                    "block": _bare(block),
                }
            )
        )


_BLOCKS: Final[dict[str, Callable[[MessageReader, Fields], None]]] = {
    "tool_use": MessageReader._tool_use,
    "tool_result": MessageReader._tool_result,
    "thinking": MessageReader._thinking,
    "redacted_thinking": MessageReader._redacted,
    "compaction": MessageReader._compaction,
    _ADDITION: MessageReader._tool_change,
    "tool_removal": MessageReader._tool_change,
    search.USE: MessageReader._server_tool_use,
    search.FOUND: MessageReader._search_result,
}


_CONTENTS: Final[dict[str, Callable[[MessageReader, Fields], Any]]] = {
    "text": MessageReader._text,
    "image": MessageReader._image,
    "document": MessageReader._document,
}


def _bare(block: Fields) -> dict[str, Any]:
    return {name: value for name, value in block.whole().items() if name != CACHE}


_CUSTOM = ("custom", None)  # the types of a tool that the client runs
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
_TIERS = {"auto": "auto", "standard_only": "default"}
# read from the whole body
_THINKING = ("thinking", "output_config")


def from_messages(
    body: bytes | Mapping[str, Any], sealer: Sealer | None = None
) -> tuple[rq.CreateResponse, Diagnostics]:
    """Translate a request. Returns (request, losses). `sealer` seals the thinking in the history.

    Raises InvalidRequestError with `param`, such as `messages[0].content[1].source`.
    """
    diagnostics = Diagnostics()
    fields = body_of(body)
    carried = CarriedFields()
    reader = MessageReader(sealer or Sealer(), diagnostics, carried)
    thread = _thread(fields)
    fields.need("messages", list)
    for message in fields.each("messages"):
        reader.message(message)
    if not reader.items and not (thread and thread.previous):
        raise invalid("messages", "at least one message is required")
    tools = _tools(fields, carried)
    choice, parallel = _tool_choice(fields, carried)
    metadata = fields.maybe_inner("metadata")
    stops = fields.get("stop_sequences", list)
    if stops and not all(isinstance(each, str) for each in stops):
        raise invalid("stop_sequences", "expected strings")
    request = rq.CreateResponse(
        model=fields.need("model", str),
        input=reader.items,
        instructions=_system(fields, carried),
        tools=_changed(
            _offered(tools, choice, reader.tools_used, reader.tool_changes, carried),
            tools,
            reader.tool_changes,
            carried,
        ),
        include=None if carried.search is None else [SEARCH_SOURCES],
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_output_tokens=_limit(fields),
        temperature=fields.get("temperature", float),
        top_p=fields.get("top_p", float),
        top_k=fields.get("top_k", int),
        stop=stops or None,
        reasoning=_reasoning(fields),
        text=_text(fields),
        user=None if metadata is None else metadata.get("user_id", str),
        service_tier=_TIERS.get(fields.get("service_tier", str) or ""),
        stream=fields.get("stream", bool),
        previous_response_id=thread.previous if thread else None,
        store=False,
    )
    _carry(fields, carried)
    if thread is not None and carried.is_restorable:
        request = replace(request, store=True)
    carried.items = len(reader.items)
    request = replace(request, native=carried.native())
    for where in [] if metadata is None else metadata.unread_here:
        diagnostics.loss(where, "can't be expressed")
    return request, diagnostics


class Thread(NamedTuple):
    """A conversation that its client does not send again: `previous` is the id of the message that it
    continues; None for a new conversation."""

    previous: str | None = None


def _thread(fields: Fields) -> Thread | None:
    thread = fields.maybe_inner("thread")
    if thread is None:
        return None
    kind = thread.one_of("type", ("create", "continue"))
    if kind is None:
        raise invalid(thread.at("type"), "is required")
    previous = thread.need("previous_message_id", str) if kind == "continue" else None
    for where in thread.unread_here:  # these would change the meaning of the rest
        raise invalid(where, "is not known", InvalidRequestError.UNSUPPORTED)
    return Thread(previous)


def _carry(fields: Fields, carried: CarriedFields) -> None:
    """Keep the fields that only the API itself can honour: all that were not read."""
    thinking, config = (fields.raw(name) for name in _THINKING)
    carried.body = fields.rest()
    if "container" in carried.body:
        carried.needed["container"] = "what it holds is known to Anthropic's API alone"
    carried.report(name[:LONGEST_NAME] for name in carried.body)
    if isinstance(thinking, dict):
        carried.thinking = thinking
    if isinstance(config, dict):
        carried.output_config = {name: value for name, value in config.items() if name != "format"}
        handled = ("effort",) if effort_from({"thinking": thinking, "output_config": config}) else ()
        carried.report(f"output_config.{name[:64]}" for name in carried.output_config if name not in handled)


def _system(fields: Fields, carried: CarriedFields) -> str | None:
    system = fields.raw("system")
    if system is None or isinstance(system, str):
        return _without_billing(system or "", carried) or None
    texts = []
    for index, block in enumerate(fields.each("system")):
        text = block.need("text", str)
        whole = block.whole()
        if index == 0 and _is_billing(text):
            carried.billing = whole
            continue
        texts.append(text)
        carried.system.append(whole)
        if CACHE in block.names:
            carried.report([CACHE])
    return JOINT.join(texts) or None


def _is_billing(text: str) -> bool:
    return text.startswith(_BILLING) and "\n" not in text.rstrip()


def _without_billing(system: str, carried: CarriedFields) -> str:
    """Return the system prompt without its first line, if that is for Anthropic's billing."""
    line, _, rest = system.partition("\n")
    if not _is_billing(line):
        return system
    carried.billing = {"type": "text", "text": line}
    return rest.lstrip("\n")


def _limit(fields: Fields) -> int:
    limit = fields.need("max_tokens", int)
    if limit < 1:
        raise invalid("max_tokens", "must be 1 or more")
    return limit


def _tools(fields: Fields, carried: CarriedFields) -> list[Any] | None:
    return _tools_in(fields.each("tools"), carried) if "tools" in fields else None


def _tools_in(declared: Iterable[Fields], carried: CarriedFields) -> list[Any]:
    tools: list[Any] = []
    for tool in declared:
        kind = tool.get("type", str)
        if search.is_search_tool(kind):
            tools.append(search.wish_of(tool).tool())
            _carry_search(tool, carried)
            continue
        if kind not in _CUSTOM:
            tool.get("name", str)
            named = isinstance(tool.raw("name"), str)
            bare = {name: value for name, value in tool.whole().items() if name != CACHE or not named}
            tools.append(UnknownTool({**bare, "type": f"{SLUG}{kind}"}))
            if CACHE in tool.names and named:
                _carry_tool(tool, {CACHE: tool.raw(CACHE)}, carried)
            continue
        tools.append(
            FunctionToolParam(
                tool.need("name", str),
                tool.get("description", str) or UNSET,
                tool.need("input_schema", dict),
                bool(tool.get("strict", bool)),
            )
        )
        _carry_tool(tool, tool.rest() | ({_TYPE: kind} if kind else {}), carried)
    return tools


def _offered(
    tools: list[Any] | None,
    choice: ToolChoice | None,
    used: dict[str, None],
    changes: list[ToolChange],
    carried: CarriedFields,
) -> list[Any] | None:
    """Return the tools without those that are deferred and that nothing has loaded, if the client has a tool
    of its own to find them or adds them itself; otherwise all tools, since no other upstream defers any."""
    deferred = {name for name, fields in carried.tools.items() if fields.get(_DEFERRED) is True}
    if not tools or not deferred:
        return tools
    functions = {tool.name: tool for tool in tools if isinstance(tool, FunctionToolParam)}
    hosted = any(isinstance(tool, UnknownTool) and _HOSTED_SEARCH in tool.type for tool in tools)
    if hosted or (deferred.issuperset(functions) and not changes):
        places = [index for index, tool in enumerate(tools) if getattr(tool, "name", None) in deferred]
        carried.report(f"tools[{index}].{_DEFERRED}" for index in places)
        return tools
    named = {choice.name: None} if isinstance(choice, FunctionToolChoice) and choice.name else {}
    loaded = [functions[name] for name in used | named if name in deferred and name in functions]
    carried.declared = tools
    carried.offered = [tool for tool in tools if getattr(tool, "name", None) not in deferred] + loaded
    return carried.offered


def _changed(
    offered: list[Any] | None, declared: list[Any] | None, changes: list[ToolChange], carried: CarriedFields
) -> list[Any] | None:
    """Return the offered tools with those that were added and without those that were removed in the
    conversation. The API itself reads these changes in its messages."""
    if not changes:
        return offered
    known = {named: tool for tool in declared or () if (named := _name_of(tool)) is not None}
    left: dict[Any, list[Any]] = {}  # by name; those without a name by their places
    for index, tool in enumerate(offered or ()):
        left.setdefault(index if (named := _name_of(tool)) is None else named, []).append(tool)
    for change in changes:
        if change.definition is not None:
            own = CarriedFields()
            known |= {str(change.name): tool for tool in _tools_in([change.definition], own)}
            carried.report(own.names)
        if change.name is not None:
            left.pop(change.name, None)
        if change.adds and change.name in known:
            left[change.name] = [known[change.name]]
        elif change.adds or change.name is None:
            carried.report([_ADDITION if change.adds else "tool_removal"])
    carried.offered = [tool for tools in left.values() for tool in tools]
    carried.declared, carried.changes_tools = declared or [], True
    return carried.offered


def _name_of(tool: Any) -> str | None:
    """Return the name by which changes refer to a tool."""
    name = tool.raw.get("name") if isinstance(tool, UnknownTool) else getattr(tool, "name", None)
    return name if isinstance(name, str) else None


def _carry_search(tool: Fields, carried: CarriedFields) -> None:
    """Keep the search as the client declared it, in its version and with the fields that only the API
    knows."""
    tool.skip("type", "name")
    name = tool.raw("name")
    carried.report(tool.at(each[:64]) for each in tool.rest())
    bare = {name: value for name, value in tool.whole().items() if name != CACHE}
    carried.search = bare
    if CACHE in tool.names and isinstance(name, str):
        carried.tools[name] = {CACHE: tool.raw(CACHE)}


def _carry_tool(tool: Fields, fields: dict[str, Any], carried: CarriedFields) -> None:
    name = tool.raw("name")
    if fields and isinstance(name, str):
        carried.tools[name] = fields
    handled = (_TYPE, _DEFERRED) if fields.get(_DEFERRED) is True else (_TYPE,)  # `_offered` decides
    carried.report(CACHE if each == CACHE else tool.at(each[:64]) for each in fields if each not in handled)


def _tool_choice(fields: Fields, carried: CarriedFields) -> tuple[ToolChoice | None, bool | None]:
    """Return (choice, parallel calls)."""
    choice = fields.maybe_inner("tool_choice")
    if choice is None:
        return None, None
    parallel = False if choice.get("disable_parallel_tool_use", bool) else None
    kind = choice.need("type", str)
    if kind == "tool":
        name = choice.need("name", str)
        if carried.search is None or name != carried.search.get("name"):
            return FunctionToolChoice(name), parallel
        return UnknownToolChoice({"type": "web_search"}), parallel
    if kind not in _CHOICES:
        raise invalid("tool_choice.type", "expected auto, any, tool or none")
    return _CHOICES[kind], parallel


def _reasoning(fields: Fields) -> rq.ReasoningOptions | None:
    effort = effort_from({name: fields.raw(name) for name in _THINKING})
    return None if effort is None else rq.ReasoningOptions(effort, "auto")


def _text(fields: Fields) -> rq.TextParam | None:
    config = fields.maybe_inner("output_config")
    own = None if config is None else config.get("format", dict)
    output_format = own or fields.get("output_format", dict)
    if output_format is None:
        return None
    schema = Fields(output_format, "output_config.format").need("schema", dict)
    return rq.TextParam(rq.JsonSchemaFormatParam("response", UNSET, schema, True))
