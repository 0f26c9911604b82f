"""The same with Django, without any part of the server: `uvicorn django_view:application`.

`async_reply` gives status, headers and a body to iterate over; `reply` is its twin for WSGI.
"""

from collections.abc import AsyncIterator

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from openresponses_bridge import CreateResponse, HttpError
from openresponses_bridge.backend import Output, ToolCall, async_reply


async def generate(request: CreateResponse) -> AsyncIterator[Output]:
    if request.model == "busy":
        raise HttpError(429, "Try again in a minute.")
    yield "Let me look that up."
    yield ToolCall("get_weather", {"city": "Paris"})


@csrf_exempt
async def responses(request: HttpRequest) -> StreamingHttpResponse:
    answer = await async_reply(request.body, generate, request_headers=request.headers)
    return StreamingHttpResponse(answer.body, status=answer.status, headers=answer.headers)


urlpatterns = [path("v1/responses", responses)]
if not settings.configured:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"])
application = get_asgi_application()
