"""P33: counts of zero that the answer contradicts are estimated, and said to be."""

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.serving import respond, serving
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, frame

ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@pytest.mark.parametrize(
    ("usage", "estimated"), [(ZEROS, True), ({"input_tokens": 10, "output_tokens": 2}, False)]
)
def test_p33_zeros_that_contradict_the_text(usage: dict[str, int], estimated: bool) -> None:
    steps = [chunk(content="one two three"), chunk("stop"), frame(choices=[], usage=usage), DONE]
    with (
        ScriptedUpstream({"m": Script(steps)}) as upstream,
        serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base,
    ):
        counted = respond(base, model="m", input="q").json["usage"]
    assert counted.get("estimated", False) is estimated
    assert counted["input_tokens"] > 0
    assert counted["output_tokens"] > 0
