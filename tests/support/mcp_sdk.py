"""An MCP server of the SDK's own on stdio: `get_forecast`, and `calls`, the cities that it was called for."""

from mcp.server import MCPServer

server = MCPServer("weather")
asked: list[str] = []


@server.tool(description="The weather of tomorrow")
def get_forecast(city: str) -> str:
    asked.append(city)
    return f"Rain in {city} tomorrow"


@server.tool(description="The cities that were asked about")
def calls() -> str:
    return " ".join(asked)


if __name__ == "__main__":
    server.run()
