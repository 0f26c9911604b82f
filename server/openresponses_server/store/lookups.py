"""Items by their ids: which of a response's items can be referred to, and what is stored at a location.

Input items are found under the ids that they are listed under, items of the output under their own once the
response has ended. An id longer than any server gives finds nothing: indexes of databases don't take it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from openresponses_bridge.protocol.codec import decode_response, encode
from openresponses_bridge.protocol.input_items import InputItem, ItemReference
from openresponses_bridge.protocol.response import Response
from openresponses_server.store.records import decode_input, id_bytes, reading

LONGEST_NAME: Final = 512  # bytes


class ItemLocation(NamedTuple):
    """Where an item is: in the input of this response, with its JSON, or (None) in its output."""

    response_id: str
    item: bytes | None


def can_name(item_id: bytes) -> bool:
    """Whether an item can be found under this id."""
    return 0 < len(item_id) <= LONGEST_NAME


def output_names(response: Response) -> list[bytes]:
    """The ids of the items in its output, each once."""
    names = dict.fromkeys(id_bytes(item.id) for item in response.output)
    return [name for name in names if can_name(name)]


def items_at(locations: Mapping[bytes, ItemLocation], bodies: Mapping[str, bytes]) -> dict[str, InputItem]:
    """The items at these locations as input, by id. `bodies` is the JSON of the responses whose output is
    meant. A reference that was stored as it came is left out. Raises UnreadableRecord."""
    outputs = {response_id: _outputs(response_id, body) for response_id, body in bodies.items()}
    found: dict[str, InputItem] = {}
    for name, (response_id, item) in locations.items():
        data = outputs.get(response_id, {}).get(name) if item is None else item
        if data is None:
            continue
        with reading(response_id):
            (read,) = decode_input([data])
        if not isinstance(read, ItemReference):
            found[name.decode("utf-8", "surrogatepass")] = read
    return found


def _outputs(response_id: str, body: bytes) -> dict[bytes, bytes]:
    with reading(response_id):
        return {id_bytes(item.id): encode(item) for item in decode_response(body).output}
