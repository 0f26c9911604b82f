"""What the tiny model answers, by the keyword in the last message."""

from __future__ import annotations

import json
from typing import Final, NamedTuple


class Call(NamedTuple):
    """A call of the one tool."""

    city: str
    name: str = "get_weather"

    @property
    def arguments(self) -> str:
        return json.dumps({"city": self.city})


THOUGHT: Final = "The user wants me to think. Step one, then step two."
ANSWERS: Final = {
    "THINK": "The answer is 42.",
    "WEATHER": "",
    "PARALLEL": "I will call two tools.",
    "COUNT": " ".join(map(str, range(1, 41))),
    "FOREVER": "la " * 1000,
    "EMOJI": "Grüße 😀🎉 世界 naïve café 👩‍💻 مرحبا",
    "BROKEN": "ok \ufffdA\ufffd\ufffd \ufffd\ufffd end \ufffd",
    "JSON": '{"city": "Paris", "temperature": 18}',
    "STOPHERE": "First part. STOP Second part.",
    "RESPONSE": "It is 18 degrees in Paris.",
    "HELLO": "Hello there! I am a tiny model. How can I help you today?",
}
"""`RESPONSE` follows a tool's result; `HELLO` is the answer to anything else."""
