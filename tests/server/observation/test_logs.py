"""Logs hold what happened, and neither keys nor what people wrote."""

import json
import re
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.serving import Reply, call, respond
from tests.support.shared import REPOSITORY
from tests.support.waiting import wait_until


def lines_of(reply: Reply, lines: list[Any], number: int) -> list[Any]:
    """The lines of the request that was answered so, which have to be as many. The client has its answer
    before the server writes the last of them, and other servers write theirs at any time."""

    def found() -> list[Any]:
        return [line for line in list(lines) if line.get("request_id") == reply.headers["x-request-id"]]

    wait_until(lambda: len(found()) >= number)
    assert len(found()) == number, lines
    return found()


def broken(*_: object) -> None:
    raise RuntimeError("broken")


def test_each_request_is_one_line_without_content(demo: str) -> None:
    with capture_logs() as lines:
        reply = respond(demo, {"authorization": "Bearer sk-secret"}, model="demo", input="private words")
        response, line = lines_of(reply, lines, 2)
    assert response["event"] == "response"
    assert (line["event"], line["method"], line["path"], line["status"]) == (
        "request",
        "POST",
        "/v1/responses",
        200,
    )
    assert "sk-secret" not in str(lines)
    assert "private words" not in str(lines)


def test_path_is_cut_before_it_is_logged(demo: str) -> None:
    with capture_logs() as lines:
        reply = call(demo, "GET", "/" + "a" * 30_000)
        (line,) = lines_of(reply, lines, 1)
    assert line["path"] == "/" + "a" * 199


def test_internal_error_is_logged_under_the_request_s_id(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openresponses_server.api.responses.decode_request", broken)
    with capture_logs() as lines:
        reply = respond(demo, model="demo")
        entries = lines_of(reply, lines, 2)
    assert [line["event"] for line in entries] == ["request.internal_error", "request"]


def test_defect_within_a_stream_fails_the_response(demo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that goes wrong inside is dressed as success."""
    monkeypatch.setattr("openresponses_bridge.dialects.chat_completions.Inbound.feed", broken)
    with capture_logs() as lines:
        reply = respond(demo, model="demo", stream=True)
        whole = respond(demo, model="demo")
    assert (reply.final["status"], reply.final["error"]["code"]) == ("failed", "internal_error")
    assert (whole.status, whole.error["code"]) == (500, "internal_error")
    assert [line["event"] for line in lines].count("run.internal_error") == 2


def logged(program: str) -> str:
    """What this program logs, on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


@pytest.mark.parametrize("terminal", [False, True], ids=["file", "terminal"])
def test_no_upstream_writes_on_the_operator_s_terminal(terminal: bool) -> None:
    """Its words in a line, in a list and in an exception; half a character must not lose a line."""
    sent = logged(
        f"""
        import sys
        import structlog
        from openresponses_server.observation.logs import configure_logs
        sys.stderr.isatty = lambda: {terminal}
        configure_logs()
        log = structlog.get_logger()
        words = "\\x1b[2J\\x1b]0;owned\\x07\\r\\nforged=line \\x9b31m \\ud800 \\u2028 \\u202e é"
        log.info("upstream.refused", code=words, words=[words, 1])
        try:
            raise RuntimeError(words)
        except RuntimeError:
            log.exception("failed")
        """
    )
    # what structlog itself colours is not of the upstream
    plain = re.sub(r"\x1b\[[0-9;]*m", "", sent)
    assert all(sign == "\n" or sign.isprintable() for sign in plain), plain
    assert "[2J" in plain
    assert not any(line.startswith("forged") for line in plain.splitlines())


@pytest.mark.parametrize("terminal", [False, True], ids=["file", "terminal"])
def test_tracebacks_hold_no_values(terminal: bool) -> None:
    """Neither keys nor the 10 MB that a run may hold, which would take seconds to be formatted."""
    sent = logged(
        f"""
        import sys
        import structlog
        from openresponses_server.observation.logs import configure_logs
        sys.stderr.isatty = lambda: {terminal}
        configure_logs()
        def fail(headers, output):
            words = headers["authorization"]
            raise RuntimeError("broken")
        try:
            fail({{"authorization": "Bearer sk-" + "secret"}}, ["out" + "put"] * 1_000_000)
        except RuntimeError:
            structlog.get_logger().exception("failed")
        """
    )
    assert len(sent) < 2_000
    assert (
        "RuntimeError" in sent if terminal else json.loads(sent)["exception"][0]["exc_type"] == "RuntimeError"
    )
    assert "output" not in sent
    assert "sk-secret" not in sent


def test_lines_of_a_file_say_how_grave_they_are_and_when() -> None:
    lines = logged(
        """
        import structlog
        from openresponses_server.observation.logs import configure_logs
        configure_logs()
        log = structlog.get_logger()
        log.debug("unseen")
        log.info("begun", words="é \\" \\\\ 1", none=None)
        log.warning("low")
        log.error("broken")
        """
    ).splitlines()
    entries = [json.loads(line) for line in lines]
    assert list(entries[0]) == ["words", "none", "event", "level", "timestamp"]
    assert [line["level"] for line in entries] == ["info", "warning", "error"]
    assert entries[0]["words"] == 'é " \\ 1'
    assert all(datetime.fromisoformat(line["timestamp"]).tzinfo == UTC for line in entries)
    assert all(line["timestamp"].endswith("Z") for line in entries)


def test_a_line_with_half_of_a_surrogate_pair_has_the_same_time() -> None:
    line = logged(
        """
        import structlog
        from openresponses_server.observation.logs import configure_logs
        configure_logs()
        try:
            raise RuntimeError("\\ud83d")
        except RuntimeError:
            structlog.get_logger().exception("failed")
        """
    )
    assert datetime.fromisoformat(json.loads(line)["timestamp"]).tzinfo == UTC


def test_lines_of_a_file_leave_nothing_in_memory() -> None:
    blocks = logged(
        """
        import os, sys, structlog
        from openresponses_server.observation.logs import configure_logs
        nowhere = open(os.devnull, "w")
        configure_logs(nowhere)
        log = structlog.get_logger()
        def lines(count):
            for _ in range(count):
                log.info("said")
        lines(20)
        before = sys.getallocatedblocks()
        lines(2_000)
        print(sys.getallocatedblocks() - before, file=sys.stderr)
        nowhere.close()
        """
    )
    assert int(blocks) < 100
