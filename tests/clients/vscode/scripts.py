"""The scripts of the upstream, by model."""

from tests.support.conversation_turns import calls, said
from tests.support.upstream import CUT, HANG, Script, chunk, frame, refusal

LATE = 3.5  # seconds; longer than the extension waits for a server that is silent
CHUNKS = 150
FIVE = b"".join([chunk(content="word ")] * 5)
BOTH = (("call_1", "get_weather", {"city": "Lima"}), ("call_2", "get_weather", {"city": "Oslo"}))


def scripts() -> dict[str, Script | list[Script]]:
    """A script for each model, or a list of scripts to play in turn."""
    return {
        "text": said("Hel", "lo"),
        "steady": Script([*[step for _ in range(CHUNKS // 5) for step in (FIVE, 0.05)], chunk("stop")]),
        "options": said("Yes."),
        "late": Script(said("At last.").steps, before=LATE),
        "pauses": Script([chunk(content="Well, "), LATE, *said("yes.").steps]),
        "thinking": said("Four.", reasoning="Two and two."),
        "one-call": calls(BOTH[0]),
        "two-calls": calls(*BOTH),
        "round": [calls(*BOTH), said("It is cool in both.")],
        "hangs-amid": Script([chunk(content="Once upon "), HANG]),
        "hangs-before": Script(before=HANG),
        "never-asked": said("No."),
        "busy": refusal(429, message="Slow down.", code="rate_limit_exceeded"),
        "too-long": refusal(400, message="Too many tokens.", code="context_length_exceeded"),
        "gone": refusal(404, message="There is no such model.", code="model_not_found"),
        "breaks": Script([chunk(content="Once upon "), CUT]),
        "fails": Script(
            [
                chunk(content="Once upon "),
                frame(error={"type": "server_error", "code": "overheated", "message": "Too hot."}),
            ]
        ),
    }
