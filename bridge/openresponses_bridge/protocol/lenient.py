"""Builds structs from JSON that strict decoding refused.

One walk, two modes. `Strict` keeps unknown types and raises for any other deviation: it is the published
schema with room for extensions. `Repairing` also fills missing fields with the schema's zero values, accepts
text instead of parts, drops what can't be read, and records each repair; it is for other servers' streams.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.fields import Field, fields_of
from openresponses_bridge.protocol.unknown import EXTRA
from openresponses_bridge.protocol.usage import DIGITS
from openresponses_bridge.protocol.vocabulary import Slot


class Repair(NamedTuple):
    """One repaired deviation: its path (`$.response.usage`), and the repair."""

    path: str
    what: str


class SchemaError(WireError):
    """A value that violates the schema. `param` is the path without the leading `$.`."""

    http_status = 400
    error_type = "invalid_request_error"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            self.INVALID_SHAPE, f"{what} - at `{path}`", param=path.removeprefix("$").lstrip(".") or None
        )


class _Absent:
    """Returned by a builder for a value that can't be read and whose type has no zero value."""


ABSENT = _Absent()


class Strict:
    """Raises `SchemaError` at the first deviation."""

    def problem(self, path: str, what: str) -> None:
        raise SchemaError(path, what)


class Repairing:
    """Records each deviation and continues."""

    def __init__(self) -> None:
        self.repairs: list[Repair] = []

    def problem(self, path: str, what: str) -> None:
        self.repairs.append(Repair(path, what))


Mode = Strict | Repairing
Kind = Slot | type[Any]  # what a place may have: one of several structs, by `type`, or one struct
MISSING = "required and missing"
_EXACT = 2.0**53  # beyond this a float is not exact, and infinity is not a number


def build(kind: Kind, value: Any, mode: Mode, path: str = "$") -> Any:
    """Return the struct (or Unknown) for `value` in this slot; ABSENT if it can't be built."""
    if not isinstance(value, dict):
        mode.problem(path, f"Expected `object`, got `{_KINDS.get(type(value), type(value).__name__)}`")
        return ABSENT
    if not isinstance(kind, Slot):
        return build_struct(kind, value, mode, path)
    tag = value.get("type")
    if tag is None and kind.infer is not None:
        tag = kind.infer(value)
        if tag is not None and kind.typed:
            mode.problem(f"{path}.type", MISSING)
    if not isinstance(tag, str):
        mode.problem(f"{path}.type", MISSING)
        return kind.unknown(value)
    struct = kind.structs.get(tag)
    return kind.unknown(value) if struct is None else build_struct(struct, value, mode, path)


def build_struct(struct: type[Any], value: dict[str, Any], mode: Mode, path: str = "$") -> Any:
    """Return a `struct` built from `value`, field by field."""
    if struct in vocabulary.RENAMED and isinstance(mode, Repairing):
        value = _renamed(vocabulary.RENAMED[struct], value, mode, path)
    children = vocabulary.CHILDREN.get(struct, {})
    known: dict[str, Any] = {}
    for field in fields_of(struct):
        where = f"{path}.{field.key}"
        if field.key in value:
            raw = value[field.key]
            kind = vocabulary.TEXT_PARTS.get((struct, field.name))
            if kind is not None and isinstance(mode, Repairing):
                raw = _parts(kind, raw, mode, where)
            elif isinstance(raw, dict | list) and (struct, field.name) in vocabulary.JSON_TEXTS:
                raw = _json_text(raw, mode, where)
            built = _field(children.get(field.name), field, raw, mode, where)
            if built is not ABSENT:
                known[field.name] = built
                continue
        elif field.required:
            mode.problem(where, MISSING)
        if field.required:
            known[field.name] = vocabulary.zero(struct, field)
    return struct(**known)


def _renamed(names: dict[str, str], value: dict[str, Any], mode: Mode, path: str) -> dict[str, Any]:
    """Return the object with fields that have another name, if the right one is missing."""
    renamed = {old: new for old, new in names.items() if old in value and new not in value}
    if not renamed:
        return value
    for old, new in renamed.items():
        mode.problem(f"{path}.{old}", f"read as {new}")
    read = {renamed.get(name, name): each for name, each in value.items()}
    if isinstance(unknown := read.get(EXTRA), dict):
        read[EXTRA] = {name: each for name, each in unknown.items() if name not in renamed}
        if not read[EXTRA]:
            del read[EXTRA]
    return read


def _json_text(raw: dict[str, Any] | list[Any], mode: Mode, path: str) -> Any:
    """Return JSON as text if its text is expected, unless the mode is strict."""
    try:
        text = msgspec.json.encode(raw).decode()
    except (UnicodeError, RecursionError):
        return raw
    mode.problem(path, f"Expected `str`, got `{_KINDS.get(type(raw), 'object')}`, read as its JSON text")
    return text


def _parts(kind: str, raw: Any, mode: Mode, path: str) -> Any:
    """Return a list of parts. Accepts a single part or a text instead of the list, and in it texts or parts
    without `type`. A text becomes a part of type `kind`."""
    if isinstance(raw, str | dict):
        mode.problem(
            path, f"Expected `array`, got `{_KINDS.get(type(raw), 'object')}`, read as its only part"
        )
        raw = [raw] if raw else []
    return (
        [_part(kind, each, mode, f"{path}[{at}]") for at, each in enumerate(raw)]
        if type(raw) is list
        else raw
    )


def _part(kind: str, raw: Any, mode: Mode, path: str) -> Any:
    if isinstance(raw, str):
        mode.problem(path, "Expected `object`, got `str`, read as its text")
        raw = {"text": raw}
    elif not isinstance(raw, dict) or isinstance(raw.get("type"), str):
        return raw
    else:
        mode.problem(f"{path}.type", MISSING)
    if isinstance(raw.get("text"), str):
        return {"annotations": [], "logprobs": [], **raw, "type": kind}
    return {**raw, "type": "refusal"} if isinstance(raw.get("refusal"), str) else raw


def _field(child: Slot | None, field: Field, raw: Any, mode: Mode, path: str) -> Any:
    within, kind = child or field.element, child or field.nested
    try:
        if isinstance(raw, list) and field.takes_list and within is not None:
            return _list(within, field, raw, mode, path)
        if isinstance(raw, dict) and field.takes_object and kind is not None:
            return build(kind, raw, mode, path)
        return _converted(field, raw, mode, path)
    except UnicodeEncodeError:
        pass  # the wrong type was reported before
    except RecursionError:
        mode.problem(path, "JSON is nested too deeply")
    except msgspec.ValidationError as error:
        what, _, inner = str(error).partition(" - at `")
        if field.choices and what.startswith("Invalid enum value"):
            what += f", not one of: {', '.join(field.choices)}"
        mode.problem(path + inner.rpartition("$")[2].rstrip("`"), what)
        if type(raw) is float and field.takes_int and abs(raw) <= _EXACT:
            # servers send times with a fraction, and counts such as 3.0
            return int(raw) if raw.is_integer() or field.name.endswith("_at") else ABSENT
        if type(raw) is str and field.takes_int and DIGITS.fullmatch(raw):
            return int(raw)
    return ABSENT


def _converted(field: Field, raw: Any, mode: Mode, path: str) -> Any:
    try:
        return field.convert(raw)
    except UnicodeEncodeError:  # an upstream has split an emoji between two deltas, which are joined later
        mode.problem(path, "half a surrogate pair")
        return msgspec.convert(raw, field.annotation)


def _list(within: Kind, field: Field, raw: list[Any], mode: Mode, path: str) -> list[Any]:
    fewest, most = field.limits
    if len(raw) < fewest:
        mode.problem(path, f"Expected `array` of length >= {fewest}")
    if most is not None and len(raw) > most:
        mode.problem(path, f"Expected `array` of length <= {most}")
    built = (build(within, element, mode, f"{path}[{index}]") for index, element in enumerate(raw))
    return [element for element in built if element is not ABSENT]


_KINDS: dict[type, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "array",
    type(None): "null",
}


def completed(struct: type[Any], value: dict[str, Any]) -> dict[str, Any] | None:
    """Return a parsed request with the fields that clients leave out of its items and tools; None if there
    are none. Types are inferred from the other fields, since most clients send messages without a type;
    reasoning gets a summary. An output that names no call becomes a user's message, such as those that
    Codex's app sends from one thread to another. Images and the texts of outputs may have the form of Chat
    Completions."""
    changes: dict[str, Any] = {}
    for name, slot in vocabulary.CHILDREN[struct].items():
        children = value.get(name)
        if slot.infer is None or not isinstance(children, list):
            continue
        replacements = [_completed(each, slot) if isinstance(each, dict) else each for each in children]
        if any(one is not other for one, other in zip(replacements, children, strict=True)):
            changes[name] = replacements
    return value | changes if changes else None


def _completed(raw: dict[str, Any], slot: Slot) -> dict[str, Any]:
    assert slot.infer is not None
    element = {**raw, "type": slot.infer(raw)} if raw.get("type") is None else raw
    kind = element["type"]
    if slot is not vocabulary.INPUT_ITEMS or not isinstance(kind, str):
        return element
    if kind == "reasoning" and element.get("summary") is None:
        return {**element, "summary": []}
    field = "output" if kind in _OUTPUTS else "content"
    parts = element.get(field)
    if isinstance(parts, list):
        own_parts = [_own_part(each, field) if isinstance(each, dict) else each for each in parts]
        if any(one is not other for one, other in zip(own_parts, parts, strict=True)):
            element = {**element, field: own_parts}
    names_none = kind in _OUTPUTS and not element.get("call_id")
    return _message_of(element) if names_none and isinstance(element.get("output"), str | list) else element


_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_IMAGES: Final = ("image_url", "input_image")


def _own_part(part: dict[str, Any], field: str) -> dict[str, Any]:
    """Return a part in the form of Chat Completions in that of Responses; any other unchanged."""
    kind, image = part.get("type"), part.get("image_url")
    if kind == "text" and field == "output":
        return {**part, "type": "input_text"}
    if (
        kind not in _IMAGES
        or not isinstance(image, dict | str)
        or (kind, type(image)) == ("input_image", str)
    ):
        return part
    image_object = image if isinstance(image, dict) else {"url": image}
    detail = {"detail": image_object["detail"]} if image_object.get("detail") else {}
    return {**part, "type": "input_image", "image_url": image_object.get("url"), **detail}


def _message_of(output: dict[str, Any]) -> dict[str, Any]:
    content = output["output"]
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    names = [each for each in (output.get("namespace"), output.get("name")) if isinstance(each, str) and each]
    head = [{"type": "input_text", "text": f"[output of {'.'.join(names)}]"}] if names else []
    return {"type": "message", "role": "user", "content": [*head, *parts]}


_NESTED_TOOLS: Final = ("function", "custom")


def with_flat_tools(value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a parsed request in which tools and the choice of a tool have the flat form of Responses instead
    of Chat Completions' inner object; and the paths of those, each with its path in the original request.
    Without such a tool, the same request."""
    paths: dict[str, str] = {}

    def flat(tool: Any, path: str) -> Any:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind not in _NESTED_TOOLS or "name" in tool or not isinstance(tool.get(kind), dict):
            return tool
        paths[path] = f"{path}.{kind}"
        flattened = {name: each for name, each in tool.items() if name != kind} | tool[kind]
        if path == "tool_choice":
            return flattened
        if kind == "function":
            return {"strict": False, **flattened}  # absent means false in Chat Completions
        shape = flattened.get("format")
        if isinstance(shape, dict) and isinstance(shape.get("grammar"), dict):
            flattened["format"] = {"type": shape.get("type"), **shape["grammar"]}
        return flattened

    tools, choice = value.get("tools"), value.get("tool_choice")
    body = dict(value)
    if isinstance(tools, list):
        body["tools"] = [flat(each, f"tools[{index}]") for index, each in enumerate(tools)]
    if isinstance(choice, dict):
        body["tool_choice"] = flat(choice, "tool_choice")
    return (body, paths) if paths else (value, paths)


def path_as_sent(text: str, paths: dict[str, str]) -> str:
    """Return a path, or a message that ends with one, for the form in which the request was sent: `paths` are
    those of `with_flat_tools`."""
    for flat, sent in paths.items():
        before, separator, after = text.rpartition(flat)
        if separator and not after[:1].isdigit():
            return f"{before}{sent}{after}"
    return text
