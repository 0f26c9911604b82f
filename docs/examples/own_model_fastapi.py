"""The same with FastAPI: `uvicorn own_model_fastapi:app`."""

from collections.abc import AsyncIterator

from fastapi import FastAPI

from openresponses_bridge import CreateResponse, HttpError
from openresponses_bridge.backend import Output, ToolCall
from openresponses_server.backend import endpoint


async def generate(request: CreateResponse) -> AsyncIterator[Output]:
    if request.model == "busy":
        raise HttpError(429, "Try again in a minute.")
    yield "Let me look that up."
    yield ToolCall("get_weather", {"city": "Paris"})


app = FastAPI()
app.post("/v1/responses")(endpoint(generate))
