"""What becomes of a Gemini client's fields at upstreams of other APIs, as docs/fields.md lists it."""

import pytest

from tests.support.drawings import drawing

DRAWN = drawing("drawn_across.py")
OTHERS = [dialect for dialect in DRAWN["MODELS"] if dialect != "gemini"]
REFUSED = {"`cachedContent`", "`fileData`, a file that Google keeps"}
OF_GEMINI_ALONE = {
    *("`safetySettings`", "`labels`", "`functionDeclarations.behavior`, `response`", "`speechConfig`"),
    *("`functionCallingConfig.mode` `VALIDATED`", "`responseModalities`", "`imageConfig`"),
    *("`googleSearch.timeRangeFilter`, `searchTypes`", "`videoMetadata`, `mediaResolution` of a part"),
    "`urlContext`, `googleMaps`, `fileSearch`, `computerUse`",
}
LOST = {
    "chat": {"`fileData`, a document by address", "`googleSearch`", "`codeExecution`", "`topK`"},
    "anthropic": {
        *("`inlineData`, audio", "`inlineData`, a video", "`fileData`, a YouTube video", "`serviceTier`"),
        *("`responseLogprobs`, `logprobs`", "`seed`", "`presencePenalty`, `frequencyPenalty`"),
        *("`temperature`", "`codeExecution`"),
    },
    "responses": {"`topK`", "`seed`"},
    "interactions": {"`responseLogprobs`, `logprobs`", "`topK`", "`presencePenalty`, `frequencyPenalty`"},
    "bedrock": {
        *("`fileData`, an image by address", "`fileData`, a document by address"),
        *("`fileData`, a YouTube video", "`googleSearch`", "`codeExecution`", "`seed`"),
        *("`responseLogprobs`, `logprobs`", "`presencePenalty`, `frequencyPenalty`"),
    },
}
"""Fields for which an API has no place."""


@pytest.mark.parametrize("title", DRAWN["SAMPLES"])
def test_n1_each_arrives_at_gemini(title: str) -> None:
    assert DRAWN["fate"](title, "gemini") == "sent"


@pytest.mark.parametrize("title", DRAWN["SAMPLES"])
@pytest.mark.parametrize("dialect", OTHERS)
def test_each_field_is_sent_refused_or_a_loss_elsewhere(dialect: str, title: str) -> None:
    fate = DRAWN["fate"](title, dialect)
    if title in REFUSED:
        assert fate == "refused"
    elif title in OF_GEMINI_ALONE | LOST[dialect]:
        assert fate == "loss"
    else:
        assert fate in ("sent", "honoured")
