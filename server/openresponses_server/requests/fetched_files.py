"""Files and images that a request names by their addresses, for an upstream that is sent their bytes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.protocol.content import InputFileContent, InputImageContent, InputImageParam
from openresponses_server.http.client.fetching import FetchError, fetch_file
from openresponses_server.requests.prepared import Placed
from openresponses_server.requests.service import Service

_LONGEST_NAME: Final = 200  # characters of a file's name
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_FILE_TYPES: Final = frozenset({"application/pdf", "application/json"})
_PART_FIELDS: Final = ("content", "output")


async def fetch_addresses(request: Placed, service: Service) -> Placed:
    """Replace the addresses of files and images by their bytes. Raises InvalidRequestError with the path of
    the address for one that can't be fetched, and HttpError 429 if there is no memory for it."""
    fetched: dict[str, str] = {}
    left = service.settings.limits.fetched_bytes

    async def data_url(url: str, accepts: Callable[[str], bool], param: str) -> str:
        nonlocal left
        limits = service.settings.limits
        if url not in fetched:
            try:
                if len(fetched) >= limits.fetched_files:
                    raise FetchError(f"a request may have at most {limits.fetched_files} files to fetch")
                previous_size = request.reservation.size
                request.reservation.grow(left)
                file = await fetch_file(url, accepts, most=left, seconds=limits.fetch_seconds)
            except FetchError as error:
                raise invalid(param, f"the file can't be fetched: {error}") from error
            left -= len(file.data)
            text = f"data:{file.media_type};base64,{b64encode(file.data).decode()}"
            request.reservation.resize(previous_size + len(text))
            fetched[url] = text
        return fetched[url]

    async def without_addresses(item: Any, where: str) -> Any:
        for field in _PART_FIELDS:
            parts = getattr(item, field, None)
            if isinstance(parts, list):
                new_parts = [
                    await _with_bytes(part, request.target.fetches, data_url, f"{where}.{field}[{number}]")
                    for number, part in enumerate(parts)
                ]
                if any(new is not old for new, old in zip(new_parts, parts, strict=True)):
                    item = replace(item, **{field: new_parts})
        return item

    own = [await without_addresses(each, f"input[{at}]") for at, each in enumerate(request.own)]
    history = [await without_addresses(each, "previous_response_id") for each in request.history]
    lead = [await without_addresses(each, "prompt.variables") for each in request.lead]
    return replace(request, own=own, history=history, lead=lead)


async def _with_bytes(
    part: Any,
    kinds: Sequence[str],
    data_url: Callable[[str, Callable[[str], bool], str], Awaitable[str]],
    where: str,
) -> Any:
    if isinstance(part, InputFileContent) and part.file_url and "files" in kinds and not part.file_data:
        name = part.filename or urlsplit(part.file_url).path.rpartition("/")[2][:_LONGEST_NAME] or "file"
        data = await data_url(part.file_url, _is_file_type, f"{where}.file_url")
        return replace(part, filename=name, file_data=data, file_url=UNSET)
    if isinstance(part, InputImageParam | InputImageContent) and "images" in kinds:
        url = part.image_url
        if isinstance(url, str) and not url.startswith("data:"):
            data = await data_url(url, _IMAGE_TYPES.__contains__, f"{where}.image_url")
            return replace(part, image_url=data)
    return part


def _is_file_type(media_type: str) -> bool:
    return media_type in _FILE_TYPES or media_type in _IMAGE_TYPES or media_type.startswith("text/")
