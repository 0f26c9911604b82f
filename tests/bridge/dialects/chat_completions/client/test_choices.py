"""Random answers as the choices of one: each choice is the same in a stream as in a whole answer."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.dialects.chat_completions import Choices, completions, encode
from openresponses_bridge.dialects.chat_completions.client.completion import Folding
from openresponses_bridge.protocol.codec import encode as plain
from tests.support.chat import new_machine

Call = tuple[Any, ...]
_words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
_arguments = st.dictionaries(st.sampled_from("ab"), st.integers(0, 9), max_size=2).map(json.dumps)
_said = st.one_of(
    st.tuples(st.just("text"), _words),
    st.tuples(st.just("refusal"), _words),
    st.tuples(st.just("reasoning"), _words),
    st.tuples(
        st.just("tool_call"), st.integers(0, 2), st.none(), st.sampled_from(["look", "run"]), _arguments
    ),
)
_ends = st.sampled_from(
    [("finish", "stop"), ("finish", "length"), ("fail", {"code": "slow", "message": "Wait"}), ("cancel",)]
)


def _one_call_each(said: list[Call]) -> list[Call]:
    """Each index calls once: what several names on one index are is the resolver's matter."""
    seen: set[int] = set()
    return [
        each
        for each in said
        if each[0] != "tool_call" or not (each[1] in seen or seen.add(each[1]))  # type: ignore[func-returns-value]
    ]


_USAGE: Call = ("usage", {"input_tokens": 3, "output_tokens": 5})
_known = st.sampled_from([[], [_USAGE]])
_answers = st.lists(
    st.tuples(st.lists(_said, max_size=5).map(_one_call_each), _known, _ends), min_size=1, max_size=4
)


@given(answers=_answers, legacy=st.booleans(), data=st.data())
def test_e1_choices_streamed_are_the_choices_whole(answers: list[Any], legacy: bool, data: Any) -> None:
    machines = [new_machine() for _ in answers]
    waiting = []
    for machine, (said, known, end) in zip(machines, answers, strict=True):
        events = machine.start()
        for name, *arguments in [*said, *known, end]:
            events += getattr(machine, name)(*arguments)
        waiting.append(events)
    out = Choices(len(answers), id="c", created=1, include_usage=True, legacy_functions=legacy)
    folds = [Folding() for _ in answers]
    failures, last = {}, []
    while any(waiting):
        number = data.draw(st.sampled_from([n for n, events in enumerate(waiting) if events]))
        for chunk in out.feed(number, waiting[number].pop(0)):
            (choice,) = chunk.choices  # type: ignore[union-attr]
            folds[choice.index].feed(chunk)  # type: ignore[arg-type]
            if choice.error:
                failures[choice.index] = choice.error
    last = out.close()
    assert encode(last).endswith(b"data: [DONE]\n\n")

    whole = json.loads(
        plain(completions([m.snapshot for m in machines], id="c", created=1, legacy_functions=legacy))
    )
    if len(failures) == len(answers):
        assert whole["error"] == json.loads(plain(failures[0]))
        return
    for number, choice in enumerate(whole["choices"]):
        streamed = json.loads(plain(folds[number].choice(number, failures.get(number))))
        for each in (
            choice,
            streamed,
        ):  # a choice begins with its role; whether it says "" then is nobody's matter
            each["message"]["content"] = each["message"]["content"] or None
        if number not in failures and choice["finish_reason"] in ("stop", "tool_calls", "function_call"):
            assert streamed == choice
        assert streamed["finish_reason"] == choice["finish_reason"]
        assert streamed["message"]["content"] == choice["message"]["content"]
    sums = [chunk.usage.total_tokens for chunk in last if getattr(chunk, "usage", None)]  # type: ignore[union-attr]
    assert sums == ([whole["usage"]["total_tokens"]] if "usage" in whole else [])
