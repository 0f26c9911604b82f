"""E10: the spelling that was chosen is the one that is served."""

from tests.support.serving import stream


def test_e10_served_stream_uses_the_chosen_spelling(demo: str) -> None:
    plain = stream(demo, model="demo-reasoning").types
    openai = stream(demo, {"user-agent": "codex_exec/0.169.0"}, model="demo-reasoning").types
    assert "response.reasoning.delta" in plain
    assert "response.reasoning_text.delta" in openai
    assert len(plain) == len(openai)
