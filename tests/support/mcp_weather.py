"""An MCP server on stdio with one tool, `get_forecast`."""

import json
import sys
from typing import Any

TOOL = {
    "name": "get_forecast",
    "description": "The weather of tomorrow",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "weather", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": about,
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        forecast = f"Rain in {params['arguments']['city']} tomorrow"
        return {"content": [{"type": "text", "text": forecast}], "isError": False}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        answer = {
            "jsonrpc": "2.0",
            "id": request["id"],
            "result": result_of(request["method"], request.get("params", {})),
        }
        print(json.dumps(answer), flush=True)
