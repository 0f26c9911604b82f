"""docs/errors.md: the codes that the library and the server answer with, from where they are made."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from openresponses_bridge.dialects.base import http_failure
from openresponses_bridge.errors import BridgeError, HttpError, type_and_code
from openresponses_bridge.protocol.response import ResponseError

REPOSITORY = Path(__file__).parents[1]
_MOST_WORDS = 3
_CLASS = re.compile(r"^class \w+\([^:]*(?:Error|Exception|Outage)\b", re.MULTILINE)
# what makes the error of a failed response, with the place of the code among its arguments
_FAILURES = {"failure": 0, "ResponseError": 0, "ErrorPayload": 1}


class Raised(NamedTuple):
    """A code with its status, and what is said with it as far as that is written out."""

    code: str
    status: str
    what: str


@cache
def sources() -> dict[str, str]:
    """The source of every module by its name."""
    texts = {}
    for package in ("bridge", "server"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            name = path.relative_to(REPOSITORY / package).with_suffix("").as_posix().replace("/", ".")
            texts[name.removesuffix(".__init__")] = path.read_text("utf-8")
    return texts


_parsed = cache(ast.parse)


def modules(text: re.Pattern[str]) -> Iterator[tuple[str, ast.Module]]:
    """The modules that contain this, by their names: to parse and walk all of them takes seconds."""
    return ((name, _parsed(source)) for name, source in sources().items() if text.search(source))


@cache
def classes() -> dict[str, type[BridgeError]]:
    """Every class of errors by its name."""
    kinds: dict[str, type[BridgeError]] = {}
    for name, tree in modules(_CLASS):
        defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and _may_be_error(node)]
        for each in defined:
            kind = getattr(import_module(name), each)
            if issubclass(kind, BridgeError):
                kinds[each] = kind
    return kinds


def _may_be_error(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(("Error", "Exception", "Outage")) for base in node.bases)


@cache
def _status_of(kind: type[BridgeError]) -> str:
    """That of the class, or the one that it always makes itself with."""
    if issubclass(kind, HttpError) and kind is not HttpError:
        for call in _calls(ast.parse(inspect.getsource(kind))):
            if ast.unparse(call.func) == "super().__init__" and call.args:
                status = call.args[0]
                if isinstance(status, ast.Constant) and isinstance(status.value, int):
                    return str(status.value)
        parent = kind.__bases__[0]
        return _status_of(parent) if issubclass(parent, HttpError) and parent is not HttpError else ""
    return str(kind.http_status)


def _code(node: ast.expr | None, module: str) -> str | None:
    """A code that is written out, or named as a constant of an error's class or of the module."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    value = None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        value = getattr(classes().get(node.value.id), node.attr, None)
    elif isinstance(node, ast.Name) and node.id.isupper():
        value = getattr(import_module(module), node.id)
    return value if isinstance(value, str) else None


def _words(node: ast.expr | None) -> str:
    """A message that is written out, with `…` where it has something of the case."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _made(call: ast.Call, module: str) -> Raised | None:
    """What a call makes, if it is an error whose code can be read."""
    kind = classes().get(call.func.id) if isinstance(call.func, ast.Name) else None
    if kind is None:
        return None
    arguments = dict(zip(inspect.signature(kind).parameters, call.args, strict=False))
    arguments |= {each.arg: each.value for each in call.keywords if each.arg}
    code = _code(arguments.get("code"), module)
    if code is None:
        return None
    status = arguments.get("status")
    written = ast.unparse(status) if isinstance(status, ast.Constant) else _status_of(kind)
    return Raised(code, written, _words(arguments.get("message")))


def _failed(call: ast.Call, module: str) -> Iterator[Raised]:
    """What a response fails with here, where the code can be read, or both of a choice. The status is that of
    an answer of which nothing has been sent."""
    place = _FAILURES.get(call.func.id) if isinstance(call.func, ast.Name) else None
    arguments = [] if place is None else call.args[place : place + 2]
    if len(arguments) < 2:
        return
    named = [arguments[0].body, arguments[0].orelse] if isinstance(arguments[0], ast.IfExp) else arguments[:1]
    for code in (_code(each, module) for each in named):
        if code is not None and code.replace("_", "").isalpha():
            yield Raised(code, str(http_failure(ResponseError(code, "")).http_status), _words(arguments[1]))


def _by_status() -> Iterator[Raised]:
    """The codes of refusals that name none."""
    others = {type_and_code(499), type_and_code(599)}
    for status in range(400, 600):
        if status in (400, 500) or type_and_code(status) not in others:
            yield Raised(type_and_code(status)[1], str(status), "")


def everything() -> list[Raised]:
    """All of them, by code: those that classes name, those that are made, and those of a status."""
    errors = set(_by_status())
    named = re.compile(rf"\b(?:{'|'.join([*classes(), *_FAILURES])})\(")
    for name, tree in modules(named):
        for call in _calls(tree):
            errors |= {each for each in (_made(call, name), *_failed(call, name)) if each}
    for kind in classes().values():
        errors |= {Raised(code, _status_of(kind), "") for code in _codes(kind)}
    return sorted(errors)


def _codes(kind: type[BridgeError]) -> list[str]:
    return [value for key, value in vars(kind).items() if key.isupper() and isinstance(value, str)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def errors_page() -> str:
    """The page of errors."""
    by_code: dict[str, list[Raised]] = {}
    for each in everything():
        by_code.setdefault(each.code, []).append(each)
    lines = [
        "# Errors",
        "",
        "For client users and operators: the codes of all errors.",
        "",
        "`make docs` generates this page from the code that creates the errors. Every API reports them in",
        'its own form; on `/v1/responses` it is `{"error": {"type", "code", "message", "param"}}`. After the',
        "first byte, `response.failed` has the same code and message; the status in the table applies if",
        "nothing has been sent. `…` stands for details of the case. An upstream's refusal keeps the",
        "upstream's status, code and message, except that a conversation that is too long always has the",
        "code `context_length_exceeded`. Codes that begin with `bridge.` come from the library.",
        "[troubleshooting.md](troubleshooting.md) says what to do.",
        "",
        _row("code", "status", "says, among others"),
        _row("---", "---", "---"),
    ]
    for code, places in by_code.items():
        statuses = ", ".join(sorted({each.status for each in places if each.status}))
        messages = [what for what in dict.fromkeys(each.what.strip() for each in places) if what.strip("…: ")]
        lines.append(_row(f"`{code}`", statuses, "; ".join(messages[:_MOST_WORDS])))
    lines += ["", "## Classes", "", _row("class", "of", "codes", "what"), _row(*["---"] * 4)]
    for name, kind in sorted(classes().items()):
        what = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
        codes = ", ".join(f"`{each}`" for each in _codes(kind))
        lines.append(_row(f"`{name}`", f"`{kind.__bases__[0].__name__}`", codes, what))
    return "\n".join(lines) + "\n"
