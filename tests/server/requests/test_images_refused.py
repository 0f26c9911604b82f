"""P30: a model that has no eyes is asked again without the images, and the client reads of it."""

import json
from typing import Any

import pytest

from openresponses_server.settings import Capabilities, Settings, UpstreamSettings
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
