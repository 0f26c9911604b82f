"""The site's page of errors: codes that the library and the server answer with, from where they are made."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from openresponses_bridge.errors import BridgeError, HttpError

REPOSITORY = Path(__file__).parents[1]
_MOST_WORDS = 3
_CLASS = re.compile(r"^class \w+\([^:]*(?:Error|Exception|Outage)\b", re.MULTILINE)


class Raised(NamedTuple):
    """A code with its status, and what is said with it as far as that is written out."""

    code: str
    status: str
    what: str


@cache
def sources() -> dict[str, str]:
    """The source of every module by its name."""
    found = {}
    for package in ("bridge", "server"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            name = path.relative_to(REPOSITORY / package).with_suffix("").as_posix().replace("/", ".")
            found[name.removesuffix(".__init__")] = path.read_text("utf-8")
    return found


def modules(text: re.Pattern[str]) -> Iterator[tuple[str, ast.Module]]:
    """The modules that contain this, by their names: to parse and walk all of them takes seconds."""
    return ((name, ast.parse(source)) for name, source in sources().items() if text.search(source))


@cache
def classes() -> dict[str, type[BridgeError]]:
    """Every class of errors by its name."""
    found: dict[str, type[BridgeError]] = {}
    for name, tree in modules(_CLASS):
        defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and _may_be_error(node)]
        for each in defined:
            kind = getattr(import_module(name), each)
            if issubclass(kind, BridgeError):
                found[each] = kind
    return found


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


def _code(node: ast.expr | None) -> str | None:
    """A code that is written out, or named as a constant of an error's class."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        found = getattr(classes().get(node.value.id), node.attr, None)
        return found if isinstance(found, str) else None
    return None


def _words(node: ast.expr | None) -> str:
    """A message that is written out, with `…` where it has something of the case."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _made(call: ast.Call) -> Raised | None:
    """What a call makes, if it is an error whose code can be read."""
    kind = classes().get(call.func.id) if isinstance(call.func, ast.Name) else None
    if kind is None:
        return None
    named = {each.arg: each.value for each in call.keywords}
    first, second, *_ = [*call.args, None, None]
    with_status = isinstance(first, ast.Constant) and isinstance(first.value, int)
    code = _code(named.get("code", None if with_status else first))
    if code is None or " " in code:
        return None
    return Raised(code, ast.unparse(first) if with_status and first else _status_of(kind), _words(second))


def everything() -> list[Raised]:
    """All of them, by code: those that classes name, and those that are made."""
    named = re.compile(rf"\b(?:{'|'.join(classes())})\(")
    made = {each for _, tree in modules(named) for call in _calls(tree) if (each := _made(call))}
    for kind in classes().values():
        made |= {Raised(code, _status_of(kind), "") for code in _codes(kind)}
    return sorted(made)


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
        "Drawn by `make docs` from where errors are made. Every surface has them in its own shape; on",
        '`/v1/responses` it is `{"error": {"type", "code", "message", "param"}}`. After the first byte the',
        "same code and message are in `response.failed`. `…` stands for what belongs to the case. What an",
        "upstream refuses with keeps its own status, code and words.",
        "",
        _row("code", "status", "says, among others"),
        _row("---", "---", "---"),
    ]
    for code, places in by_code.items():
        statuses = ", ".join(sorted({each.status for each in places if each.status}))
        said = [what for what in dict.fromkeys(each.what.strip() for each in places) if what.strip("…: ")]
        lines.append(_row(f"`{code}`", statuses, "; ".join(said[:_MOST_WORDS])))
    lines += ["", "## Classes", "", _row("class", "of", "codes", "what"), _row(*["---"] * 4)]
    for name, kind in sorted(classes().items()):
        what = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
        codes = ", ".join(f"`{each}`" for each in _codes(kind))
        lines.append(_row(f"`{name}`", f"`{kind.__bases__[0].__name__}`", codes, what))
    return "\n".join(lines) + "\n"
