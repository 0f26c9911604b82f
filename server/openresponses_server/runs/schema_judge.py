"""What a worker process does: validate a text against a schema, or check that a schema can be used.

It imports little, so that the process starts quickly. Its limits of memory and time hold even after the
server that started it has stopped.
"""

from __future__ import annotations

import json
import resource
import signal
import socket
import time
from typing import Any, Final

import jsonschema_rs as engine

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.schemas.checking import dialect_of, json_path, validator

UNJUDGED: Final = "The answer could not be checked"
"""How an objection begins if the answer could not be checked."""
_STDIN: Final = 0
_MOST_MEMORY: Final = 2 << 30  # bytes of address space
_UNCHECKED: Final = frozenset({"backtrackLimitExceeded", "regexEngineFailure"})


def main() -> None:
    """Answer lines of `[schema, seconds, text]` with a JSON string or null: `objection`, or if the text is
    null `unusable`. The process is killed if one takes longer than its seconds."""
    limit_process()

    # the socket of `IsolatedProcess`, until the server closes its end or ends
    with socket.socket(fileno=_STDIN) as server, server.makefile("rwb") as lines:
        for line in lines:
            schema, seconds, text = json.loads(line)
            _end_after(seconds)
            verdict = unusable(schema) if text is None else objection(schema, text)
            lines.write(json.dumps(verdict).encode() + b"\n")
            lines.flush()


def limit_process() -> None:
    """Ignore Ctrl-C, which is meant for the server, and limit the memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, resource.RLIM_INFINITY))


def unusable(schema: dict[str, Any]) -> str | None:
    """Return why the schema can't be used; None if it can."""
    try:
        validator(dialect_of(schema) or "", schema)
    except (engine.ValidationError, ValueError):
        return "it holds a pattern that is not a regular expression, or one that is too large"
    return None


def objection(schema: dict[str, Any], text: str) -> str | None:
    """Return why the text is not a JSON value that fits the schema, without quoting either; None if it is.
    The schema has been checked (`check_schema`)."""
    try:
        value = decode_json(text)
    except WireError as error:
        return f"The answer is not JSON: {error.message}"
    try:
        judge = validator(dialect_of(schema) or "", schema)
    except (engine.ValidationError, ValueError):
        return f"{UNJUDGED}: the schema holds a pattern that can't be used."
    try:
        judge.validate(value)
    except engine.ValidationError as error:
        place, keyword = _path_of(error), _keyword(error)
        if keyword in _UNCHECKED:
            return f"{UNJUDGED}: the pattern for {place} takes too many steps."
        return f"The answer does not fit the schema at {place}: violates {keyword!r}"
    except ValueError:
        return f"{UNJUDGED}: it is nested too deeply, or holds half a surrogate pair."
    return None


def _end_after(seconds: float) -> None:
    soonest = int(time.process_time() + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (soonest, resource.RLIM_INFINITY))


def _keyword(error: engine.ValidationError) -> str:
    """The keyword that is violated; a schema that is `false` has none."""
    name: str = error.kind.name
    return str(error.schema_path[-1]) if name == "falseSchema" and error.schema_path else name


def _path_of(error: engine.ValidationError) -> str:
    """The path in the answer. A key that the schema does not name was made up by the model and is shown as
    `*`."""
    named = set(error.evaluation_path)
    return json_path(step if isinstance(step, int) or step in named else "*" for step in error.instance_path)
