"""The scripts of the corpus, played by a machine that is checked against the laws after each call."""

from collections.abc import Iterable

from openresponses_bridge.corpus.scripts import COMMON, OWN, USAGE, Step, machine_calls
from tests.support.machines import Run

__all__ = ["CUSTOM_TOOL", "SCRIPTS", "USAGE", "Step", "played"]

SCRIPTS: dict[str, list[Step]] = {name: script.steps for name, script in COMMON.items()}
CUSTOM_TOOL = OWN["custom_tool"].steps


def played(steps: Iterable[Step], wire: str = "openresponses") -> Run:
    """A machine that was called as the script says. After `cut` the stream stays unfinished."""
    run = Run(wire, started=False)
    for method, arguments, named in machine_calls(step for step in steps if step != ("cut",)):
        run(method, *arguments, **named)
    return run
