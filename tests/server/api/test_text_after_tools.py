"""Text after a tool call, to clients of Chat Completions: as the upstream's dialect and settings say."""

import pytest

from openresponses_bridge.dialects.base import RequestHead
from openresponses_bridge.dialects.chat_completions.client.surface import SURFACE
from openresponses_bridge.dialects.codex import DIALECT, Inbound
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import encode_data
from openresponses_server.runs.client import Batch
from openresponses_server.runs.exchange import Translation
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.surfaces.endpoint import form_of
from openresponses_server.upstreams.targets import configured
from tests.support.codex import proxied
from tests.support.machines import machine

CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
DONE = proxied("output_item.done", item=CALL)
TEXT = proxied("output_text.delta", delta="Done.")
END = proxied("completed", response={})


def read(*reads: list[object]) -> tuple[Translation, Batch]:
    started = machine()
    translation = Translation(started, Inbound(started))
    events = [
        event
        for frames in reads
        for event in translation.feed(b"".join(encode_data(encode(frame)) for frame in frames))
    ]
    return translation, Batch(events)


@pytest.mark.parametrize("passes", [True, False])
def test_a_form_follows_what_is_known_when_the_answer_begins(passes: bool) -> None:
    translation, batch = read([DONE, TEXT, END])
    for n in (1, 2):
        body = encode({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": n})
        request = SURFACE.read(body, RequestHead(sealer=Sealer()))
        translation.text_after_tools = passes
        form = form_of(request.form, translation, Sealer())
        assert (b"Done." in form.encoders[0](batch.events)) is passes
        assert (b"Done." in (form.whole(*[translation.snapshot] * n) or b"")) is passes


@pytest.mark.parametrize(("given", "passes"), [(None, True), (True, True), (False, False)])
def test_an_upstreams_setting_counts_over_its_dialect(given: bool | None, passes: bool) -> None:
    settings = UpstreamSettings(url="http://127.0.0.1:1", text_after_tools=given)
    assert configured(settings, Settings(), Sealer()).targets("m")[0].text_after_tools is passes
    assert DIALECT.text_after_tools is False


def test_a_turn_ends_with_the_read_in_which_its_calls_are_whole() -> None:
    translation, batch = read([DONE], [TEXT, END])
    assert translation.ended
    assert batch.events[-1].type == "response.completed"
    assert translation.snapshot.output_text == ""


def test_what_comes_in_the_same_read_belongs_to_the_turn() -> None:
    other = proxied("output_item.done", item=CALL | {"call_id": "b"})
    translation, _ = read([DONE, other])
    assert [item.call_id for item in translation.snapshot.output] == ["a", "b"]
    assert not read([DONE, TEXT])[0].ended
