"""Options of Codex that add the MCP server `mcp_weather`."""

import json
import sys

from tests.support.shared import REPOSITORY

WEATHER = REPOSITORY / "tests" / "support" / "mcp_weather.py"


MCP = (
    *("-c", f"mcp_servers.weather.command={json.dumps(sys.executable)}"),
    *("-c", f"mcp_servers.weather.args=[{json.dumps(str(WEATHER))}]"),
)
