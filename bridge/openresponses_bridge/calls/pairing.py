"""Every call has its output and every output its call, or the request is refused (field cases 40, 45).

Upstreams refuse unpaired ones with messages that name nothing the client knows, or loop for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from openresponses_bridge.calls.presentation import CallView, OutputView
from openresponses_bridge.errors import InvalidRequestError

View = CallView | OutputView | None


def pair(views: Sequence[View], param: Callable[[int], str]) -> dict[int, int | None]:
    """Index of each call → index of its output, among `views` (None there is what is neither).

    An output answers the first call before it with its id that is not answered yet, so that an id may be
    used again in a later turn; clients name the call by `call_id`, else by its item's id. A call that
    was cut and so never run may stay alone: its answer is None. `param` names the field at an index.
    Raises InvalidRequestError (`unpaired_tool_call`) with that name.
    """
    answers: dict[int, int | None] = {}
    waiting: dict[str, deque[int]] = {}
    made: list[tuple[int, CallView]] = []
    for index, view in enumerate(views):
        if isinstance(view, CallView):
            made.append((index, view))
            for key in {view.call_id, view.item_id} - {""}:
                waiting.setdefault(key, deque()).append(index)
        elif isinstance(view, OutputView):
            calls = waiting.get(view.call_id, deque())
            while calls and calls[0] in answers:
                calls.popleft()
            if not calls:
                raise _unpaired(f"no tool call before it has the call_id {view.call_id!r}", param(index))
            answers[calls.popleft()] = index
    for index, call in made:
        if index not in answers:
            if not call.cut:
                raise _unpaired(f"no tool output answers the call {call.call_id!r}", param(index))
            answers[index] = None
    return answers


def _unpaired(message: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.UNPAIRED_CALL, message, param=param)
