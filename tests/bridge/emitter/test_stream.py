"""`ResponseStream` is what an inbound may call; a `StreamFilter` passes all of it on with nothing changed."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.emitter.stream import ResponseStream, StreamFilter
from openresponses_bridge.state import METHODS

NAMES = sorted({name for methods in METHODS.values() for name in methods} | {"require"})
PROPERTIES = {"diagnostics", "phase", "wire", "response_id", "snapshot", "in_one_form", "usage_at_start"}


class Recorder:
    """Takes every call and returns a value of its own for it."""

    def __init__(self) -> None:
        self.called: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name in PROPERTIES:
            return f"the {name}"

        def method(*arguments: Any, **named: Any) -> str:
            self.called.append((name, arguments, named))
            return f"what {name} returned"

        return method


@pytest.mark.parametrize("kind", [ResponseStream, StreamFilter])
def test_every_method_of_the_machine_is_there_with_the_same_signature(kind: type) -> None:
    public = {name for name in vars(kind) if not name.startswith("_")}
    assert public - {"next_answer"} == {*NAMES, *PROPERTIES}
    for name in NAMES:
        of_machine: Callable[..., Any] = getattr(ResponseStreamStateMachine, name)
        assert inspect.signature(getattr(kind, name)) == inspect.signature(of_machine), name


@pytest.mark.parametrize("name", NAMES)
def test_a_filter_passes_a_call_on_with_all_of_its_arguments(name: str) -> None:
    recorder = Recorder()
    method = getattr(StreamFilter(recorder), name)  # type: ignore[arg-type]
    sentinels = {parameter: object() for parameter in inspect.signature(method).parameters}
    returned = method(**sentinels)
    ((called, arguments, named),) = recorder.called
    assert called == name
    assert [*arguments, *named.values()] == list(sentinels.values())
    assert returned in (f"what {name} returned", None)
    assert (returned is None) == (name in ("require", "adopt", "report", "report_names"))


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_a_filter_shows_what_the_machine_shows(name: str) -> None:
    assert getattr(StreamFilter(Recorder()), name) == f"the {name}"  # type: ignore[arg-type]


def test_filters_are_told_of_the_next_answer_down_to_the_machine() -> None:
    calls: list[str] = []

    class Counting(StreamFilter):
        def next_answer(self) -> None:
            super().next_answer()
            calls.append("inner")

    StreamFilter(Counting(ResponseStreamStateMachine("m"))).next_answer()
    assert calls == ["inner"]
