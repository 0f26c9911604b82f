"""Two names for one tool: what prompts call it, and the name under which its contributor registered it.

`createPullRequest` of the contributor `github` is registered as `github_create_pull_request`. Descriptions
speak of other tools by name, so those in schemas are mapped as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from bridge.errors import ToolError
from bridge.schemas.keywords import NAMED_SCHEMAS, SCHEMAS

_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")
_PROSE: Final = ("description", "title", "markdownDescription", "$comment")


def contributed_name(contributor: str, name: str) -> str:
    """`github`, `createPullRequest` → `github_create_pull_request`."""
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
    return f"{contributor}_{words}" if contributor else name


class ContributedToolNames:
    """The pairs of one host, internal name → contributed name; a name without a pair is its own. Raises
    ToolError (`bridge.tools.name_collision`) when two tools would have one contributed name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._contributed = dict(names)
        self._internal = {contributed: name for name, contributed in names.items()}
        if len(self._internal) < len(self._contributed):
            raise ToolError(ToolError.NAME_COLLISION, "two tools have the same contributed name")

    def get_contributed_tool_name(self, name: str) -> str:
        return self._contributed.get(name, name)

    def get_tool_name(self, contributed: str) -> str:
        """The way back."""
        return self._internal.get(contributed, contributed)

    def map_contributed_tool_names_in_string(self, text: str) -> str:
        """The text with contributed names, where they stand as whole words, as internal ones."""
        return _WORD.sub(lambda word: self.get_tool_name(word[0]), text)

    def map_contributed_tool_names_in_schema(self, schema: Any) -> Any:
        """The schema with the names in its prose mapped; property names, constants and defaults stay."""
        if not isinstance(schema, dict):
            return (
                [self.map_contributed_tool_names_in_schema(each) for each in schema]
                if isinstance(schema, list)
                else schema
            )
        return {key: self._mapped(key, value) for key, value in schema.items()}

    def _mapped(self, keyword: str, value: Any) -> Any:
        if keyword in _PROSE and isinstance(value, str):
            return self.map_contributed_tool_names_in_string(value)
        if keyword in NAMED_SCHEMAS and isinstance(value, dict):
            return {name: self.map_contributed_tool_names_in_schema(each) for name, each in value.items()}
        return self.map_contributed_tool_names_in_schema(value) if keyword in SCHEMAS else value
