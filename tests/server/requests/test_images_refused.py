"""P30: a model that can't see is asked again without the images, and the client learns of it."""

import json
from typing import Any

import pytest

from openresponses_server.settings import Capabilities, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.upstreams.refusals import (
    MOST_OWNERS,
    MOST_REMEMBERED,
    REMEMBERED,
    ImageRefusals,
    LearnedLimits,
    OwnersModel,
)
from tests.support import upstream as chat
from tests.support.serving import respond, serving
from tests.support.upstream import Received, Script, ScriptedUpstream, refusal

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}
GIVEN: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What?"}, IMAGE]}
]


class Blind(ScriptedUpstream):
    """Refuses images in the words of its `message`, in a stream that it has accepted if `accepts`."""

    message = ""
    accepts = False

    def _script(self, received: Received) -> Script:
        if "image_url" not in json.dumps(received.body):
            return Script(chat.text("Nothing."))
        if self.accepts:
            return Script([chat.frame(error={"code": 400, "message": self.message})])
        return refusal(400, message=self.message)


@pytest.mark.parametrize("accepts", [False, True], ids=["at once", "in its stream"])
@pytest.mark.parametrize(
    "message",
    [
        "Failed to deserialize the JSON body: messages[0]: unknown variant `image_url`, expected `text`",
        "No endpoints found that support image input",
        "qwen3 is not a multimodal model",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
    ],
)
def test_p30_images_are_left_out_when_the_model_refuses_them(message: str, accepts: bool) -> None:
    with Blind() as upstream:
        upstream.message, upstream.accepts = message, accepts
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            answer = respond(base, model="m", input=GIVEN, stream=accepts)
        assert answer.status == 200
        assert "images, which the model can't see" in answer.headers["openresponses-losses"]
        assert len(upstream.received) == 2
        assert "can't see" in upstream.received[1].body["messages"][0]["content"]


def test_p30_a_model_that_is_known_to_be_blind_is_asked_once() -> None:
    with Blind() as upstream:
        known = {"m": Capabilities(images=False)}
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)], models=known)) as base:
            answer = respond(base, model="m", input=GIVEN)
        assert answer.status == 200
        assert len(upstream.received) == 1


def test_p30_another_refusal_is_passed_on() -> None:
    with Blind() as upstream:
        upstream.message = "the image is too large"
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            assert respond(base, model="m", input=GIVEN).status == 400
        assert len(upstream.received) == 1


@pytest.mark.parametrize("accepts", [False, True], ids=["at once", "in its stream"])
def test_p30_a_refusal_is_remembered_for_later_turns(accepts: bool) -> None:
    with Blind() as upstream:
        upstream.message, upstream.accepts = "The model does not support images.", accepts
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            for asked_in_all in (2, 3, 4):
                answer = respond(base, model="m", input=GIVEN, stream=accepts)
                assert answer.status == 200
                assert "images, which the model can't see" in answer.headers["openresponses-losses"]
                assert len(upstream.received) == asked_in_all
            respond(base, model="other", input=GIVEN, stream=accepts)
        assert len(upstream.received) == 6


def test_s7_what_one_key_s_images_are_refused_for_blinds_no_model_for_another() -> None:
    """An upstream's words may be a client's own: the address of an image, its type."""
    with Blind() as upstream:
        upstream.message = "Can't read https://example.com/a: it does not support images."
        keys = [hashed("one"), hashed("two")]
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)], api_keys=keys)) as base:
            for key in ("one", "two"):
                assert respond(base, {"x-api-key": key}, model="m", input=GIVEN).status == 200
        shown = ["image_url" in json.dumps(received.body) for received in upstream.received]
        assert shown == [True, False, True, False]


def test_p30_a_fallback_s_refusal_is_remembered_as_its_own() -> None:
    with Blind() as blind, ScriptedUpstream({"m": refusal(503, message="Later.")}) as down:
        blind.message = "The model does not support images."
        upstreams = [
            UpstreamSettings(url=down.url, name="down", models=["m"], failover=["blind/b"]),
            UpstreamSettings(url=blind.url, name="blind", models=["b"]),
        ]
        with serving(Settings(upstreams=upstreams)) as base:
            for asked_in_all in (2, 3):
                assert respond(base, model="m", input=GIVEN).status == 200
                assert len(blind.received) == asked_in_all
        assert all("image_url" in json.dumps(received.body) for received in down.received)


def test_p30_a_refusal_for_another_reason_too_is_not_remembered() -> None:
    """Without images it is refused as well."""
    scripts = [refusal(400, message="The model does not support images."), refusal(400, message="No.")]
    with ScriptedUpstream({"m": [*scripts, Script(chat.text("Seen."))]}) as upstream:
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            assert respond(base, model="m", input=GIVEN).status == 400
            assert respond(base, model="m", input=GIVEN).status == 200
        assert "image_url" in json.dumps(upstream.received[-1].body)


def test_p30_refusals_are_forgotten_after_a_while_and_when_images_are_accepted() -> None:
    now = [0.0]
    refusals = ImageRefusals(lambda: now[0])
    refusals.record(OwnersModel("", "u", "m"), accepted=False)
    assert OwnersModel("", "u", "m") in refusals
    assert OwnersModel("", "v", "m") not in refusals
    now[0] = REMEMBERED
    assert OwnersModel("", "u", "m") not in refusals
    refusals.record(OwnersModel("", "u", "m"), accepted=False)
    refusals.record(OwnersModel("", "u", "m"), accepted=True)
    assert OwnersModel("", "u", "m") not in refusals


def test_p30_the_models_that_are_remembered_are_bounded() -> None:
    refusals = ImageRefusals()
    for number in range(2 * MOST_REMEMBERED):
        refusals.record(OwnersModel("", "u", str(number)), accepted=False)
    assert len(refusals.known[""]) == MOST_REMEMBERED
    assert OwnersModel("", "u", str(MOST_REMEMBERED)) in refusals
    assert OwnersModel("", "u", str(MOST_REMEMBERED - 1)) not in refusals


def test_s10_no_key_pushes_out_what_another_one_s_refusals_have_taught() -> None:
    refusals, quiet = ImageRefusals(), OwnersModel("quiet", "u", "m")
    refusals.record(quiet, accepted=False)
    for number in range(10 * MOST_REMEMBERED):
        refusals.record(OwnersModel("loud", "u", str(number)), accepted=False)
    assert quiet in refusals
    for number in range(2 * MOST_OWNERS):
        refusals.record(OwnersModel(str(number), "u", "m"), accepted=False)
    assert len(refusals.known) == MOST_OWNERS
    for number in range(2 * MOST_OWNERS):
        refusals.record(OwnersModel(str(number), "u", "m"), accepted=True)
    assert refusals.known == {}


def test_a_limit_that_a_refusal_named_is_known_for_a_day() -> None:
    now = [0.0]
    limits = LearnedLimits(lambda: now[0])
    limits.keep(("a", "m"), 1000)
    now[0] = 86_399.0
    assert limits.find(("a", "m")) == 1000
    assert limits.find(("b", "m")) is None
    now[0] = 86_400.0
    assert limits.find(("a", "m")) is None
    assert limits.known == {}
