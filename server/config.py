"""The TOML file as it is read: `${VARIABLE}` stands for an environment variable, `$${` for itself."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Set
from pathlib import Path
from typing import Any, Final

_VARIABLE: Final = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


class ConfigError(ValueError):
    """A configuration that can't be used; the message names the file or flag and the field."""


def read_config(path: Path) -> dict[str, Any]:
    """The file's fields. Raises ConfigError naming the file and the line."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def substituted(value: Any, kept: Set[str] = frozenset(), where: str = "$") -> Any:
    """The same with every variable in its strings put in. Fields named in `kept` stay as they are, but
    their variables have to be there too. Raises ConfigError naming the field and the variable."""
    if isinstance(value, str):
        return expanded(value, where)
    if isinstance(value, list):
        return [substituted(each, kept, f"{where}[{at}]") for at, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    found = {name: substituted(each, kept, f"{where}.{name}") for name, each in value.items()}
    return {name: value[name] if name in kept else each for name, each in found.items()}


def expanded(text: str, where: str = "") -> str:
    """The text with its variables put in; `${NAME:-otherwise}` gives what stands for one that is not set."""

    def value(found: re.Match[str]) -> str:
        escaped, name, otherwise = found.groups()
        if escaped:
            return str(escaped)
        given = os.environ.get(name) or otherwise
        if given is None:
            at = f" - at `{where}`" if where else ""
            raise ConfigError(f"the environment variable {name} is not set{at}")
        return given

    return _VARIABLE.sub(value, text)


def hashed(key: str) -> str:
    """A key as it is kept: `sha256:` and its hash in hex; what is one already stays."""
    return key if _HASH.fullmatch(key) else f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
