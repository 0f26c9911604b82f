"""Your own model, served to every client of the Responses API: `uvicorn own_model:app`."""

from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.routing import Route

from openresponses_bridge import CreateResponse, HttpError
from openresponses_bridge.backend import Output, ToolCall
from openresponses_server.backend import endpoint


async def generate(request: CreateResponse) -> AsyncIterator[Output]:
    if request.model == "busy":
        raise HttpError(429, "Try again in a minute.")
    yield "Let me look that up."
    yield ToolCall("get_weather", {"city": "Paris"})


app = Starlette(routes=[Route("/v1/responses", endpoint(generate), methods=["POST"])])
