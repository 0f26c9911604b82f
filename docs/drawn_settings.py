"""docs/settings.md: the settings of the server, the flags of `serve` and the options of dialects."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import click
import msgspec
from msgspec import NODEFAULT, Struct

from openresponses_cli.commands.serve import command as serve
from openresponses_server.settings import EMBEDDED_STORE, KEYS_VARIABLES, WORKER_SETTINGS, Settings
from openresponses_server.settings.descriptions import described
from openresponses_server.upstreams.dialects import DIALECTS
from openresponses_server.upstreams.profiles import Profile, ProfileDialect


def _default(value: Any, unit: str) -> str:
    """A default as the file would have it; nothing where there is none."""
    if value is None or value is NODEFAULT or isinstance(value, Struct):
        return ""
    if isinstance(value, frozenset):
        value = sorted(value)
    if not value and isinstance(value, list | dict):
        return ""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 2**20 and value % 2**20 == 0:
        return f"{value} ({value // 2**20} MB)"
    shown = json.dumps(value, ensure_ascii=False)
    return f"{value:g} s" if unit == "seconds" else f"`{shown}`"


def _defaults(kind: type[Struct]) -> dict[str, str]:
    defaults = {}
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        value = field.default if field.default_factory is NODEFAULT else field.default_factory()
        extra = getattr(field.type, "extra", None) or {}
        defaults[field.name] = _default(value, extra.get("unit", ""))
    return defaults


def _options() -> dict[str, click.Option]:
    """Parameter → the option of `serve`."""
    return {str(each.name): each for each in serve.params if isinstance(each, click.Option)}


def _flag(option: click.Option | None) -> str:
    return f"`{option.opts[0]}`" if option else ""


def _variable(name: str, option: click.Option | None) -> str:
    named = option.envvar if option and option.envvar else KEYS_VARIABLES.get(name)
    return f"`{named}`" if named else ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _fields_of(kind: type[Struct]) -> list[str]:
    defaults = _defaults(kind)
    lines = [_row("setting", "default", "what"), _row("---", "---", "---")]
    for what, pairs in groupby(described(kind).items(), key=itemgetter(1)):
        names = [name for name, _ in pairs]
        shown, values = (
            ", ".join(each) for each in ([f"`{n}`" for n in names], [defaults[n] for n in names])
        )
        lines.append(_row(shown, values, _sentence(what)))
    return [*lines, ""]


def _top_level() -> list[str]:
    options, defaults = _options(), _defaults(Settings) | {"store": f"`{json.dumps(EMBEDDED_STORE)}`"}
    head = ("setting", "flag", "variable", "default", "what")
    lines = [_row(*head), _row(*["---"] * len(head))]
    for name, what in described(Settings).items():
        option = options.get(name)
        lines.append(
            _row(f"`{name}`", _flag(option), _variable(name, option), defaults[name], _sentence(what))
        )
    return [*lines, ""]


def _other_flags() -> list[str]:
    lines = [_row("flag", "variable", "what"), _row("---", "---", "---")]
    for name, option in _options().items():
        if name not in Settings.__struct_fields__:
            lines.append(_row(_flag(option), _variable(name, option), str(option.help)))
    return [*lines, ""]


def _tables(kind: type[Struct], path: str = "") -> Iterator[tuple[type[Struct], str]]:
    """The tables of the file that hold a struct's fields, each with its head, in the order of the fields."""
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        for inner, place, many in _structs(field.type, path + field.encode_name):
            yield inner, f"[[{place}]]" if many else f"[{place}]"
            yield from _tables(inner, f"{place}.")


def _structs(kind: Any, place: str, many: bool = False) -> Iterator[tuple[type[Struct], str, bool]]:
    """The structs that a value of this type has, with the place of each and whether it is one of a list."""
    if isinstance(kind, msgspec.inspect.StructType):
        yield kind.cls, place, many
    elif isinstance(kind, msgspec.inspect.Metadata):
        yield from _structs(kind.type, place, many)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from _structs(each, place, many)
    elif isinstance(kind, msgspec.inspect.DictType):
        yield from _structs(kind.value_type, f'{place}."NAME"', many)
    elif isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
        yield from _structs(kind.item_type, place, many=True)


def _titled(tables: Iterator[tuple[type[Struct], str]], behind: str = "") -> dict[str, type[Struct]]:
    """Title → struct: one that is several tables is described once, under all of their heads."""
    heads: dict[type[Struct], list[str]] = {}
    for kind, head in tables:
        heads.setdefault(kind, []).append(f"`{head}`")
    return {" and ".join(titles) + behind: kind for kind, titles in heads.items()}


# environment variables that are neither settings nor flags
_VARIABLES = {
    "XDG_DATA_HOME": "The folder above the data folder on Linux, `~/.local/share` without it; on macOS that "
    "is `~/Library/Application Support`. The SQLite file, the key for `encrypted_content` and the folders of "
    "agents that `run` has started are kept in the data folder.",
    "LOCALAPPDATA": "The folder above the data folder on Windows.",
    "OPENRESPONSES_BRIDGE_SERVER": "The server that `run` uses (`--server`).",
    "AWS_REGION": "The region of signed requests, if neither the settings nor the address have one.",
    "HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR": "How upstreams "
    "are reached: [proxies and certificates](routing.md#proxies-certificates-sockets).",
    "PROMETHEUS_MULTIPROC_DIR": "The folder in which several `serve` on one host "
    "[add up their metrics](observing.md#metrics).",
    "NO_COLOR`, `FORCE_COLOR": "With `NO_COLOR` no command has colours, nor has the log in a terminal; with "
    "`FORCE_COLOR` commands have them in a pipe too. `TERM=dumb` and `NO_COLOR` take precedence; an empty "
    "variable has no effect.",
    WORKER_SETTINGS: "Set by `serve` for its worker processes; do not set it.",
}


def settings_page() -> str:
    """The page of settings and environment variables."""
    tables = _titled(_tables(Settings))
    tables |= {"A profile, `NAME.toml`": Profile, "`[dialects.DIALECT]` of a profile": ProfileDialect}
    for name, dialect in DIALECTS.items():
        options = dialect.side.options
        behind = f" for `{name}`"
        tables[f"`[upstreams.options]`{behind}"] = options
        tables |= _titled(_tables(options, "upstreams.options."), behind)
    lines = [
        "# Settings",
        "",
        "For operators: every setting, flag and variable.",
        "",
        "`make docs` draws this page from `server/openresponses_server/settings/__init__.py`, the flags of",
        "`serve` and the options of dialects. A flag takes precedence over an environment variable, a",
        "variable over the file (`--config FILE`), and the file over the default. Times are in seconds,",
        "sizes in bytes. In the file, `${NAME}` stands for an environment variable, `${NAME:-otherwise}`",
        "for one that may be missing, and `$${` for `${`. An unknown setting, or a value of another type,",
        "ends `serve` with exit code 2 and a line that names it. `openresponses-bridge config check FILE`",
        "reports the same without serving, and also where each value comes from.",
        "",
        "## Top level",
        "",
        *_top_level(),
    ]
    for title, kind in tables.items():
        lines += [f"## {title}", "", inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0], ""]
        lines += _fields_of(kind)
    lines += [
        "## Flags of `serve` for one upstream",
        "",
        *_other_flags(),
        "## Other environment variables",
        "",
    ]
    lines += [_row("variable", "what"), _row("---", "---")]
    lines += [_row(f"`{name}`", what) for name, what in _VARIABLES.items()]
    return "\n".join(lines) + "\n"
