"""The names that docs/upgrades.md keeps from one release to the next, and the rules for removing one.

For each kind, a name maps to its replacement, or to "" if it is not deprecated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import date, timedelta
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
import msgspec

from openresponses_agent import loop, prompt, tools
from openresponses_server.api.openapi.operations import OPERATIONS
from openresponses_server.settings import KEYS_VARIABLES, Settings
from openresponses_server.settings.files import deprecation
from openresponses_server.upstreams.dialects import DIALECTS
from openresponses_server.upstreams.profiles import Profile
from tests.support.command_line import commands
from tests.support.drawings import drawing
from tests.support.metrics import families, family_name
from tests.support.shared import REPOSITORY

Names = dict[str, dict[str, str]]
_SERVER: Final = REPOSITORY / "server"
_IMPORTED: Final = re.compile(r"^ *from (openresponses_[\w.]+) import ([\w, ]+|\([^)]*\))", re.MULTILINE)
_KEPT: Final = {
    "openresponses_bridge.loop": loop.__all__,
    "openresponses_bridge.prompt": prompt.__all__,
    "openresponses_bridge.tools": tools.__all__,
    "openresponses_server.commands.pytest_plugin": ["CheckStream", "Conform"],
}
"""Names that pages imported before they moved; other programs still import them."""
_EVENT: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*")
_ENVIRONMENT: Final = ("os.environ", "os.environ.get", "os.getenv")
_LEVELS: Final = {"debug", "info", "warning", "error", "exception"}
_GIVEN_TO: Final = {"Remedy": 0, "log_stderr": 1}  # functions that get an event's name as this argument


def public_names() -> Names:
    """Return all public names, by their kind."""
    plain = {
        "environment variables": environment_variables(),
        "endpoints": _endpoints(),
        "error codes": {each.code for each in drawing("drawn_errors.py")["everything"]()},
        "Python": _python(),
        "metrics": set(map(family_name, families())),
        "events of the log": _events(),
    }
    return {
        "commands and flags": dict(sorted(_flags())),
        "settings": dict(sorted(_settings())),
    } | {kind: dict.fromkeys(sorted(names), "") for kind, names in plain.items()}


def _flags() -> Iterator[tuple[str, str]]:
    for path, command in commands():
        if path:
            yield path, _replacement(command.deprecated)
        for each in command.params:
            if isinstance(each, click.Option):
                yield from ((f"{path} {flag}".strip(), _replacement(each.deprecated)) for flag in each.opts)


def _replacement(deprecated: bool | str) -> str:
    return deprecated if isinstance(deprecated, str) else "deprecated" if deprecated else ""


def _settings() -> Iterator[tuple[str, str]]:
    yield from _fields(Settings)
    yield from _fields(Profile, "(a profile) ")
    for name, dialect in DIALECTS.items():
        yield from _fields(dialect.side.options, f"upstreams.options ({name}).")


def _fields(struct: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for field in msgspec.inspect.type_info(struct).fields:  # type: ignore[attr-defined]
        path = prefix + field.encode_name
        yield path, deprecation(field.type)
        for inner in _structs(field.type):
            yield from _fields(inner, f"{path}.")


def _structs(kind: Any) -> Iterator[type]:
    """Return the structs in a value of this type: the type itself, its items or its values."""
    if isinstance(kind, msgspec.inspect.StructType):
        yield kind.cls
    for inner in [getattr(kind, name, None) for name in ("type", "item_type", "value_type")]:
        if inner is not None:
            yield from _structs(inner)
    for inner in getattr(kind, "types", ()):
        yield from _structs(inner)


def environment_variables() -> set[str]:
    """Return the environment variables that set options, those with the keys of the settings, and those that
    the server reads by name."""
    named = {
        each.envvar for _, command in commands() for each in command.params if isinstance(each.envvar, str)
    }
    named |= set(KEYS_VARIABLES.values())
    for tree in _modules(re.compile(r"\b(?:environ|getenv)\b")):
        named |= set(_variables_read(tree))
    return named


def _modules(text: re.Pattern[str]) -> Iterator[ast.Module]:
    """Yield the server's modules that contain this text: parsing and walking all of them would take
    seconds."""
    sources = (path.read_text("utf-8") for path in _SERVER.rglob("*.py"))
    return (ast.parse(source) for source in sources if text.search(source))


def _variables_read(tree: ast.AST) -> Iterator[str]:
    """Names in `os.environ["NAME"]`, `os.environ.get("NAME")` and `os.getenv("NAME")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            of, name = node.value, node.slice
        elif isinstance(node, ast.Call) and node.args:
            of, name = node.func, node.args[0]
        else:
            continue
        if isinstance(name, ast.Constant) and ast.unparse(of) in _ENVIRONMENT:
            yield str(name.value)


def _endpoints() -> set[str]:
    """Return the endpoints, without those that only the inspector's page uses."""
    return {f"{method.upper()} {path}" for method, path in OPERATIONS if not path.startswith("/inspector/")}


def _python() -> set[str]:
    """Return `module.name` for the modules that pages import: all names that a module exports, or those that
    pages import from it."""
    exports = {f"{module}.{name}" for module, names in _KEPT.items() for name in names}
    pages = {REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")}
    for page in pages - {REPOSITORY / "docs" / "dialects.md"}:  # this page is about a package within this one
        for module, imported in _IMPORTED.findall(page.read_text("utf-8")):
            names = re.findall(r"\w+", imported)
            exported = getattr(import_module(module), "__all__", names)
            exports |= {f"{module}.{name}" for name in {*exported, *names}}
    return exports


def _events() -> set[str]:
    """Return the events that are passed to `_log.warning("…")` and the like as literals, and to functions
    that log."""
    text = re.compile(rf"\b(?:_log\.|{'|'.join(_GIVEN_TO)}|_REMEDIES\b)")
    return {event for tree in _modules(text) for event in _logged(tree) if _EVENT.fullmatch(event)}


def _logged(tree: ast.AST) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    methods = {f"_log.{level}" for level in _LEVELS}
    for node in nodes:  # such as write = _log.info if … else _log.warning
        if isinstance(node, ast.Assign) and methods & {ast.unparse(each) for each in ast.walk(node.value)}:
            methods |= {ast.unparse(each) for each in node.targets}
    for node in nodes:
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            place = 0 if called in methods else _GIVEN_TO.get(called, len(node.args))
            yield from map(_text, node.args[place : place + 1])
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith("_REMEDIES"):
            yield from (text for each in ast.walk(node) if "." in (text := _text(each)))


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


class Release(NamedTuple):
    """A release in CHANGELOG.md, with the names at the beginning of the lines under these headings."""

    version: tuple[int, ...]
    """The numbers of the version; empty for unreleased changes."""
    day: date | None
    deprecated: frozenset[str]
    removed: frozenset[str]


_RELEASE: Final = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)
_SECTION: Final = re.compile(r"^### (\w+)$(.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_FIRST_NAME: Final = re.compile(r"^- `([^`]+)`", re.MULTILINE)
_HALF_A_YEAR: Final = timedelta(days=183)
_SHORT_LIVED: Final = {"metrics", "events of the log"}


def releases(changelog: str) -> list[Release]:
    """The releases of a changelog, the newest first."""
    _, *pieces = _RELEASE.split(changelog)
    entries = []
    for version, day, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        sections = {title: frozenset(_FIRST_NAME.findall(body)) for title, body in _SECTION.findall(text)}
        numbers = () if version == "Unreleased" else tuple(map(int, version.split(".")))
        nothing = frozenset[str]()
        entries.append(
            Release(
                numbers,
                date.fromisoformat(day) if day else None,
                sections.get("Deprecated", nothing),
                sections.get("Removed", nothing),
            )
        )
    return entries


def breaches(before: Names, now: Names, changes: list[Release], version: str, today: date) -> list[str]:
    """Return the breaches of the contract between the earlier names and those of now: names that were removed
    too early or are missing from the changes, and deprecations that are only in the code or only among the
    changes. `version` is the next one. Before the first release every name may be removed."""
    announced = {name for each in changes for name in each.deprecated}
    removed = {name for each in changes for name in each.removed}
    marked = {name for names in now.values() for name, replacement in names.items() if replacement}
    wrong = [f"{name} is deprecated, and no change says so" for name in marked - announced]
    for kind in ("commands and flags", "settings"):
        unmarked = announced & now[kind].keys() - marked - removed
        wrong += [f"{name} is deprecated by the changes, and not in the code" for name in unmarked]
    if not any(each.version for each in changes):
        return sorted(wrong)
    coming = tuple(map(int, version.split(".")))
    for kind, names in before.items():
        for name in names.keys() - now.get(kind, {}).keys():
            if name not in removed:
                wrong.append(f"{name} is gone, and is not under Removed")
            if kind not in _SHORT_LIVED and (reason := _too_early(name, changes, coming, today)):
                wrong.append(f"{name} is gone {reason}")
            if kind in _SHORT_LIVED and not _is_step(changes, coming, at=1):
                wrong.append(f"{name} is gone without a new minor version")
    return sorted(wrong)


def _too_early(name: str, changes: list[Release], coming: tuple[int, ...], today: date) -> str:
    """Why this name can't be removed in the next version; "" if it can."""
    with_it = [each for each in changes if each.version and name in each.deprecated]
    if not with_it:
        return "and was not deprecated by a release"
    first = with_it[-1]
    assert first.day is not None, first
    if first.day + _HALF_A_YEAR > today:
        return "less than half a year after it was deprecated"
    if len({each.version[:2] for each in changes if each.version >= first.version}) < 2:
        return "less than two minor versions after it was deprecated"
    return "" if _is_step(changes, coming, at=0) else "without a new major version"


def _is_step(changes: list[Release], coming: tuple[int, ...], at: int) -> bool:
    """Whether the first numbers of the version, up to this one, differ from those of the last release. Before
    1.0, the second number counts as the first."""
    last = next(each.version for each in changes if each.version)
    end = max(at, 1 if last[0] == 0 else 0) + 1
    return coming[:end] != last[:end]
