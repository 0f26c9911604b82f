"""The tools that an agent in the terminal has, all of them in one folder."""

from __future__ import annotations

from bridge.tools.registry import ToolRegistry
from server.agent.file_tools import file_tools
from server.agent.folder import Folder
from server.agent.searching import search_tool
from server.agent.semantic import semantic_tool
from server.agent.terminal import terminal_tool
from server.agent.usages import usages_tool


def sample_tools(folder: Folder) -> ToolRegistry:
    """read_file, list_dir, create_file, edit_file, apply_patch, grep_search, semantic_search,
    list_code_usages and run_in_terminal."""
    searching = [search_tool(folder), semantic_tool(folder), usages_tool(folder)]
    return ToolRegistry([*file_tools(folder), *searching, terminal_tool(folder)])
