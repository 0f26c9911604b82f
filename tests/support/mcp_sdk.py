"""An MCP server on stdio, made with the SDK: `get_forecast`, and `calls`, the cities for which that was
called."""

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
