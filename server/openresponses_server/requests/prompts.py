"""`prompt`: requests made of templates in a folder of the operator.

A file `ID.toml` is one prompt with its versions. A placeholder is `{{ name }}`; it is replaced by the text of
the variable as it is, in which no placeholders are looked for. The folder is read when the application is
made, so that the names in a request are looked up and never become paths.
"""

from __future__ import annotations

import os
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.beyond import names_of
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.content import InputTextContent
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.errors import HttpError
from openresponses_server.settings import SettingsError
from openresponses_server.settings.files import about, converted, located, read_config
from openresponses_server.store.history import own_input

NOT_FOUND: Final = "prompt_not_found"
_MISSING: Final = "missing_required_parameter"
_SUFFIX: Final = ".toml"
_MOST_BYTES: Final = 1 << 20  # of a file
_MOST_PROMPTS: Final = 1000
_LONGEST_NAME: Final = 64  # characters of an id, a version or a variable
_NAME: Final = frozenset(string.ascii_letters + string.digits + "_.-")
_OPENS, _CLOSES = "{{", "}}"
_TEXT: Final = "input_text"
_FIELDS: Final = frozenset({"id", "version", "variables"})
_SOURCES: Final = ("image_url", "file_id", "file_url", "file_data")


Role = Literal["user", "assistant", "system", "developer"]


class Variable(Struct, frozen=True, forbid_unknown_fields=True):
    """A variable of a prompt. Without `default`, which only a text has, it has to be given."""

    type: Literal["input_text", "input_image", "input_file"] = "input_text"
    default: str | None = None


class Said(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a template."""

    role: Role
    content: str


class Version(Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a prompt, as its file has it."""

    instructions: str | None = None
    input: list[Said] = []
    variables: dict[str, Variable] = {}
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None


_OWN: Final = {"instructions", "input", "variables"}
_DEFAULTS: Final = tuple(name for name in Version.__struct_fields__ if name not in _OWN)
"""The fields of a version that are those of a request which has none."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    versions: dict[str, Version]
    default: str | None = None


class Placeholder(NamedTuple):
    """The place of a variable in a text."""

    name: str


Pieces = Sequence[str | Placeholder]


class Template(Struct, frozen=True):
    """A version that was checked."""

    instructions: Pieces | None
    messages: Sequence[tuple[Role, Pieces]]
    """Roles and contents."""
    variables: Mapping[str, Variable]
    defaults: CreateResponse


class Prompt(Struct, frozen=True):
    """The versions of one prompt; `default` is the one of requests that name none."""

    versions: Mapping[str, Template]
    default: str


class Expanded(NamedTuple):
    """A request with what its prompt gives, and the messages of the prompt, which come before all items."""

    request: CreateResponse
    messages: list[MessageParam]


# Reading the folder.


def read_prompts(folder: str | None) -> dict[str, Prompt]:
    """The prompts of a folder by their ids: of files `ID.toml` that are not hidden and no links to outside.
    Raises SettingsError with the file and the line."""
    if folder is None:
        return {}
    try:
        home, entries = os.path.realpath(folder), sorted(Path(folder).iterdir())
    except OSError as error:
        raise SettingsError(f"{folder}: {error.strerror}", "$.prompts") from error
    files = [
        each
        for each in entries
        if each.suffix == _SUFFIX and not each.name.startswith(".") and each.is_file()
        if each.resolve().is_relative_to(home)
    ]
    if len(files) > _MOST_PROMPTS:
        raise SettingsError(f"{folder} has more than {_MOST_PROMPTS} prompts", "$.prompts")
    return {file.stem: _read(file) for file in files}


def _read(path: Path) -> Prompt:
    try:
        with located(path):
            if not _is_name(path.stem):
                raise SettingsError(f"{path.stem[:_LONGEST_NAME]!r} can't be an id", place=str(path))
            if path.stat().st_size > _MOST_BYTES:
                raise SettingsError(f"a prompt may have at most {_MOST_BYTES} bytes", place=str(path))
            return _prompt(read_config(path))
    except (SettingsError, OSError) as error:
        wrong = (
            "; ".join(f"{each.place or path}: {each.message}" for each in error.all)
            if isinstance(error, SettingsError)
            else f"{path}: {error.strerror}"
        )
        raise SettingsError(f"prompt {path.stem!r}: {wrong}", "$.prompts") from error


def _prompt(fields: dict[str, Any]) -> Prompt:
    file = converted(fields, _File)
    if not file.versions:
        raise SettingsError("it has no [versions.…]", "$.versions")
    templates = {}
    for name, version in file.versions.items():
        with about(f"$.versions.{name}"):
            if not _is_name(name):
                raise SettingsError(f"{name[:_LONGEST_NAME]!r} can't be a version")
            templates[name] = _template(version)
    default = file.default or next(reversed(templates))
    if default not in templates:
        raise SettingsError(f"there is no version {default!r}", "$.default")
    return Prompt(templates, default)


def _template(version: Version) -> Template:
    for name, variable in version.variables.items():
        if not _is_name(name):
            raise SettingsError(f"{name[:_LONGEST_NAME]!r} can't be a variable", ".variables")
        if variable.type != _TEXT and variable.default is not None:
            raise SettingsError("only a text has a default", f".variables.{name}")
    used: set[str] = set()
    instructions = None
    if version.instructions is not None:
        instructions = list(_pieces(version.instructions))
        used |= _names(instructions, version, ".instructions", only_text=True)
    messages: list[tuple[Role, Pieces]] = []
    for at, message in enumerate(version.input):
        content = list(_pieces(message.content))
        used |= _names(content, version, f".input[{at}].content", only_text=message.role != "user")
        messages.append((message.role, content))
    if instructions is None and not messages:
        raise SettingsError("it has neither instructions nor input")
    for name in version.variables.keys() - used:
        raise SettingsError(f"{name!r} is not used by any placeholder", f".variables.{name}")
    return Template(instructions, messages, version.variables, _defaults(version))


def _defaults(version: Version) -> CreateResponse:
    fields = {name: value for name in _DEFAULTS if (value := getattr(version, name)) is not None}
    try:
        defaults = decode_request(encode(fields))
    except InvalidRequestError as error:
        raise SettingsError(error.message, f".{error.param}" if error.param else "") from error
    for unknown in names_of(defaults.beyond):
        raise SettingsError(f"{unknown} is not known", f".{unknown}")
    return defaults


def _names(pieces: Pieces, version: Version, at: str, *, only_text: bool) -> set[str]:
    names = {piece.name for piece in pieces if isinstance(piece, Placeholder)}
    for name in sorted(names):
        variable = version.variables.get(name)
        if variable is None:
            raise SettingsError(f"{_OPENS}{name}{_CLOSES} is not one of its variables", at)
        if only_text and variable.type != _TEXT:
            raise SettingsError(f"{name!r} is not a text: only a user's message may have it", at)
    return names


def _pieces(text: str) -> Iterator[str | Placeholder]:
    """The text in pieces. What is in braces and can't be a name is text."""
    plain = start = 0
    while (start := text.find(_OPENS, start)) >= 0:
        inside = start + len(_OPENS)
        end = text.find(_CLOSES, inside, inside + _LONGEST_NAME + 4)
        name = text[inside:end].strip() if end >= 0 else ""
        if not _is_name(name):
            start += 1
            continue
        if plain < start:
            yield text[plain:start]
        yield Placeholder(name)
        plain = start = end + len(_CLOSES)
    if plain < len(text):
        yield text[plain:]


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and _NAME.issuperset(text)


# Making a request of one.


def expanded(prompts: Mapping[str, Prompt], request: CreateResponse, most: int) -> Expanded | None:
    """The request with what its prompt gives, where it has nothing itself; None if there is no prompt of this
    id here. `most` is the limit of the characters that all variables add, counted each time one is inserted.

    Raises InvalidRequestError with the path of what is wrong, and HttpError 404 for an unknown version.
    """
    reference = request.prompt or {}
    prompt_id, named, values = reference.get("id"), reference.get("version"), reference.get("variables")
    if not isinstance(prompt_id, str):
        raise invalid("prompt.id", "expected a string")
    if named is not None and not isinstance(named, str):
        raise invalid("prompt.version", "expected a string")
    if values is not None and not isinstance(values, dict):
        raise invalid("prompt.variables", "expected an object")
    prompt = prompts.get(prompt_id)
    if prompt is None:
        return None
    for name in reference.keys() - _FIELDS:
        raise invalid(f"prompt.{name[:_LONGEST_NAME]}", "is not known")
    version = named or prompt.default
    template = prompt.versions.get(version)
    if template is None:
        what = f"Prompt {prompt_id!r} has no version {version[:_LONGEST_NAME]!r}."
        raise HttpError(404, what, code=NOT_FOUND, param="prompt.version")
    parts = _values(template, values or {})
    _check_size(template, parts, most)
    own = template.defaults
    gaps = {name: getattr(own, name) for name in _DEFAULTS if getattr(request, name) is None}
    if request.instructions is None and template.instructions is not None:
        gaps["instructions"] = _text(template.instructions, parts)
    combined = replace(request, **gaps, prompt={**reference, "version": version})
    return Expanded(
        combined, [MessageParam(role, _content(pieces, parts)) for role, pieces in template.messages]
    )


def unknown_prompt(request: CreateResponse) -> HttpError:
    """The error for a prompt that is neither here nor at an upstream."""
    prompt_id = str((request.prompt or {}).get("id"))[:_LONGEST_NAME]
    return HttpError(404, f"Prompt {prompt_id!r} not found.", code=NOT_FOUND, param="prompt.id")


def _values(template: Template, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables' values: texts, and parts of a message."""
    for name in variables.keys() - template.variables.keys():
        raise invalid(_param(name), "the prompt has no such variable")
    values: dict[str, Any] = {}
    for name, variable in template.variables.items():
        value = variables.get(name)
        if value is None and variable.default is None:
            raise invalid(_param(name), "the prompt needs it", _MISSING)
        values[name] = variable.default if value is None else _value(name, variable, value)
    return values


def _value(name: str, variable: Variable, value: Any) -> Any:
    if isinstance(value, str) and variable.type == _TEXT:
        return value
    param = _param(name)
    if not isinstance(value, dict) or value.get("type") != variable.type:
        expected = "a string or an object" if variable.type == _TEXT else "an object"
        raise invalid(param, f"expected {expected} of type {variable.type!r}")
    try:
        request = decode_request(encode({"input": [{"role": "user", "content": [value]}]}))
    except InvalidRequestError as error:
        where = f"{param}{(error.param or '').removeprefix('input[0].content[0]')}"
        raise invalid(where, "it is not what its type has", error.code) from error
    for unknown in names_of(request.beyond):
        raise invalid(f"{param}.{unknown.rpartition('.')[2]}", "is not known")
    message: Any = own_input(request)[0]
    part = message.content[0]
    if isinstance(part, InputTextContent):
        return part.text
    if not any(isinstance(value.get(field), str) for field in _SOURCES):
        raise invalid(param, "it names neither an address nor a file")
    return part


def _param(name: str) -> str:
    return f"prompt.variables.{name[:_LONGEST_NAME]}"


def _check_size(template: Template, parts: Mapping[str, Any], most: int) -> None:
    texts = [template.instructions or (), *(content for _, content in template.messages)]
    sizes = {name: len(part if isinstance(part, str) else encode(part)) for name, part in parts.items()}
    size = sum(sizes[piece.name] for pieces in texts for piece in pieces if isinstance(piece, Placeholder))
    if size > most:
        raise invalid("prompt.variables", f"they take {size} characters in the prompt; {most} are allowed")


def _text(pieces: Pieces, parts: Mapping[str, Any]) -> str:
    return "".join(parts[piece.name] if isinstance(piece, Placeholder) else piece for piece in pieces)


def _content(pieces: Pieces, parts: Mapping[str, Any]) -> Any:
    """A text, or parts if one of them is something else."""
    content: list[Any] = []
    texts: list[str] = []
    for piece in pieces:
        value = parts[piece.name] if isinstance(piece, Placeholder) else piece
        if isinstance(value, str):
            texts.append(value)
            continue
        if text := "".join(texts):
            content.append(InputTextContent(text))
        texts.clear()
        content.append(value)
    rest = "".join(texts)
    if not content:
        return rest
    return [*content, InputTextContent(rest)] if rest else content
