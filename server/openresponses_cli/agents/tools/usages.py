"""list_code_usages: finds a name in the files of a folder, in any language.

Nothing is parsed: a usage is the name as a whole word, and lines that look like its definition come first. So
names in comments and strings are found as well, but not names that are composed at run time.
"""

from __future__ import annotations

import re
from typing import Any, Final

from openresponses_agent.tools.registry import Tool, ToolInvocationContext
from openresponses_cli.agents.tools.folder import Folder
from openresponses_cli.agents.tools.texts import Texts

_MOST: Final = 200
_SHOWN: Final = 200  # characters of a line
_BEFORE: Final = 120  # characters before a name that show whether it is a definition
_DEFINING: Final = frozenset(
    {
        "class",
        "const",
        "def",
        "define",
        "enum",
        "fn",
        "func",
        "fun",
        "function",
        "interface",
        "let",
        "macro",
        "macro_rules!",
        "mod",
        "module",
        "namespace",
        "object",
        "package",
        "protocol",
        "record",
        "struct",
        "sub",
        "template",
        "trait",
        "type",
        "typedef",
        "union",
        "val",
        "var",
    }
)
_FLOW: Final = frozenset(
    {
        "case",
        "catch",
        "elif",
        "else",
        "for",
        "if",
        "match",
        "new",
        "return",
        "switch",
        "throw",
        "unless",
        "until",
        "while",
    }
)
_WORDS: Final = re.compile(r"[\w!]+")
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "symbolName": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "pattern": r"^\S+$",
            "description": "Name of a function, class, method, variable or the like",
        },
        "filePaths": {
            "type": "array",
            "maxItems": 50,
            "items": {"type": "string"},
            "description": "Files to look at first, such as the one that defines it",
        },
    },
    "required": ["symbolName"],
}


def usages_tool(folder: Folder) -> Tool:
    """Return list_code_usages over this folder."""

    def list_code_usages(arguments: dict[str, Any], context: ToolInvocationContext) -> str:
        return _listed(folder, arguments["symbolName"], arguments.get("filePaths", []), context)

    description = (
        "List where a symbol (function, class, method, variable) is defined and used in the workspace, by "
        "its name as a whole word; lines are given as path:number: line, definitions first"
    )
    return Tool(
        "list_code_usages", description, _SCHEMA, list_code_usages, frozenset({"read"}), parallel=True
    )


def _listed(folder: Folder, name: str, first: list[str], context: ToolInvocationContext) -> str:
    texts = Texts(folder, context.token)
    defined, used = list[str](), list[str]()
    for path, text in texts.read(first):
        if name not in text:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            at = _found(line, name)
            if at >= 0:
                listed = defined if _is_definition(line, name, at) else used
                if len(listed) <= _MOST:
                    listed.append(f"{path}:{number}: {_shown(line, at)}")
    if not defined and not used:
        return f"No usages of {name}." + texts.omission()
    parts = [_part("Definitions", defined), _part("Usages", used)]
    return "\n".join(filter(None, parts)) + texts.omission()


def _part(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    shown = [f"{title}:", *lines[:_MOST]]
    return "\n".join([*shown, "(there are more)"] if len(lines) > _MOST else shown)


def _found(line: str, name: str) -> int:
    """Return the first position of the name as a whole word; -1 if there is none."""
    at = line.find(name)
    while at >= 0:
        end = at + len(name)
        if not (_is_word(line[at - 1 : at]) and _is_word(name[0])) and not (
            _is_word(line[end : end + 1]) and _is_word(name[-1])
        ):
            return at
        at = line.find(name, end)
    return -1


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign in ("_", "$")


def _is_definition(line: str, name: str, at: int) -> bool:
    """Return True if a line looks like a definition: by the word before the name, or by its form."""
    before = line[max(0, at - _BEFORE) : at]
    after = line[at + len(name) : at + len(name) + _SHOWN].strip()
    words: list[str] = _WORDS.findall(before)
    if words and words[-1] in _DEFINING and not before.rstrip().endswith((".", "(", "=")):
        return words[0] != "import"
    if not before.strip():  # NAME = …, name: …, name(…) {
        assigned = after.startswith("=") and not after.startswith("==")
        return assigned or after.startswith((":", "<-")) or _opens(after)
    if words and words[0] == "func":  # a method in Go: func (r *Receiver) Name(
        return before.rstrip().endswith(")") and after.startswith("(")
    if not before.endswith((" ", "*", "&")) or not _opens(after):
        return False
    plain = not any(sign in before for sign in "=(\"'.;")  # int name(…) {
    return bool(words) and plain and not _FLOW.intersection(words)


def _opens(after: str) -> bool:
    return after.startswith("(") and after.endswith("{")


def _shown(line: str, at: int) -> str:
    if len(line) <= _SHOWN:
        return line.strip()
    begin = max(0, at - _SHOWN // 2)
    cut = line[begin : begin + _SHOWN].strip()
    return f"{'…' if begin else ''}{cut}{'…' if begin + _SHOWN < len(line) else ''}"
