"""The tools of an agent in the terminal, all of them in one folder."""

from __future__ import annotations

from openresponses_agent.tools.registry import ToolRegistry
from openresponses_cli.agents.tools.files import file_tools
from openresponses_cli.agents.tools.folder import Folder
from openresponses_cli.agents.tools.search import search_tool
from openresponses_cli.agents.tools.semantic import semantic_tool
from openresponses_cli.agents.tools.terminal import terminal_tool
from openresponses_cli.agents.tools.usages import usages_tool


def sample_tools(folder: Folder) -> ToolRegistry:
    """Return read_file, list_dir, create_file, edit_file, apply_patch, grep_search, semantic_search,
    list_code_usages and run_in_terminal."""
    searching = [search_tool(folder), semantic_tool(folder), usages_tool(folder)]
    return ToolRegistry([*file_tools(folder), *searching, terminal_tool(folder)])
