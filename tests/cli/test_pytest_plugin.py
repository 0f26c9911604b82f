"""The plugin for pytest, as a project that tests its own streams and server has it."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

import pytest
from hypothesis import settings

from openresponses_bridge import ResponseStreamStateMachine, encode_sse
from openresponses_bridge.conformance import judging, scenarios
from openresponses_bridge.corpus import chosen_ids
from openresponses_bridge.corpus.foreign import foreign_ids
from openresponses_bridge.sse import DONE
from openresponses_cli import pytest_plugin
from openresponses_cli.commands import playing
from openresponses_cli.commands import playing as report
from openresponses_cli.pytest_plugin import (
    CheckStream,
    Conform,
    openresponses_conform,
    openresponses_stream,
)
from tests.support.document_blocks import blocks

pytest_plugins = ["pytester"]
__all__ = ["openresponses_conform", "openresponses_stream"]  # fixtures, where the plugin is not installed
# pytester forgets what was imported while it ran a module: these stay
_LOADED = (judging, scenarios, playing, report)
CHOSEN = len(chosen_ids(["text", "two_tools_interleaved"], ["openresponses"]))
BRIDGED = len([id for id in foreign_ids() if id.startswith("chat/")])
Outcomes = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, demo: str) -> Iterator[Outcomes]:
    """Runs a test module with this plugin and no other; warnings are errors."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("SERVER_URL", demo)

    def run(code: str) -> pytest.RunResult:
        pytester.makepyfile(code)
        return pytester.runpytest_inprocess("-W", "error", plugins=[pytest_plugin])

    profile = settings.get_current_profile_name()
    settings.load_profile("quick")  # the strategies have tests of their own
    yield run
    settings.load_profile(profile)


@pytest.mark.parametrize(("title", "code"), blocks("docs/testing.md", "python"))
def test_the_examples_of_the_guide_pass(run: Outcomes, title: str, code: str) -> None:
    outcomes = run(code).parseoutcomes()
    expected = {"A stream": 1, "A server": 4, "A decoder": CHOSEN, "A bridge": BRIDGED, "Random streams": 1}
    assert outcomes == {"passed": expected[title]}


def test_a_broken_stream_fails_with_its_violations(run: Outcomes) -> None:
    result = run("""
        def test_it(openresponses_stream):
            openresponses_stream(b"event: error\\ndata: {}\\n\\n")
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*the stream breaks the protocol (*", "E*stream.first_created*"])
    result.stdout.no_fnmatch_line("*judged(stream*")  # the trace ends in the test


def test_what_is_not_listed_is_counted(run: Outcomes) -> None:
    result = run("""
        def test_it(openresponses_stream):
            openresponses_stream(b"event: error\\ndata: {}\\n\\n" * 20)
    """)
    result.stdout.fnmatch_lines(["E*the stream breaks the protocol (*"])
    shown, counted = (
        result.outlines,
        [line for line in result.outlines if re.search(r"^E +and \d+ more", line)],
    )
    total = re.search(r"\((\d+) violations\)", "\n".join(shown))
    assert total is not None
    assert int(counted[0].split()[2]) == int(total[1]) - 20


def test_a_failing_server_fails_with_its_causes_even_from_within_a_loop(run: Outcomes) -> None:
    result = run("""
        import asyncio, os

        def test_it(openresponses_conform):
            async def main():
                openresponses_conform(os.environ["SERVER_URL"], model="nobody", only="order")
            asyncio.run(main())
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E*4 of 4 scenarios failed:", "E*status 404*'nobody'*", "E*4 scenarios: order.stream, *"]
    )


def test_a_server_that_is_not_there_fails(run: Outcomes) -> None:
    result = run('def test_it(openresponses_conform): openresponses_conform("http://127.0.0.1:1")')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*AssertionError: http://127.0.0.1:1/v1 can't be reached*"])


def test_wrong_arguments_are_errors_of_the_test(run: Outcomes) -> None:
    result = run("""
        import pytest

        def test_it(openresponses_conform, openresponses_stream):
            for wrong in ({"only": ["nothing"]}, {"skip": ["nothing"]}):
                with pytest.raises(ValueError, match="no scenario is called nothing"):
                    openresponses_conform("http://127.0.0.1:1", **wrong)
            with pytest.raises(ValueError, match="not an http address"):
                openresponses_conform("ftp://x")
            with pytest.raises(TypeError, match="a single object"):
                openresponses_stream({"type": "error"})
            with pytest.raises(TypeError, match="got int"):
                openresponses_stream([7])
            with pytest.raises(TypeError, match="text"):
                openresponses_stream([{"type": "error"}, b"data: 1"])
            with pytest.raises(TypeError, match="text as before, got dict"):
                openresponses_stream([b"data: 1", {"type": "error"}])
            with pytest.raises(ValueError, match="wire must be one of"):
                openresponses_stream(b"", wire="none")
    """)
    result.assert_outcomes(passed=1)


def test_every_form_of_a_stream_is_read_alike(openresponses_stream: CheckStream) -> None:
    machine = ResponseStreamStateMachine(model="mine")
    events = [*machine.start(), *machine.text("Héllo"), *machine.finish("stop")]
    data = encode_sse(events) + DONE
    whole = openresponses_stream(data)
    assert whole["output"][0]["content"][0]["text"] == "Héllo"
    assert openresponses_stream(data.decode()) == whole
    assert openresponses_stream(data[at : at + 1] for at in range(len(data))) == whole
    assert openresponses_stream(events) == whole
    for cut in (events[:-1], data[:-40], b"", [], data + data):
        with pytest.raises(AssertionError, match="breaks the protocol"):
            openresponses_stream(cut)


def test_the_fixtures_are_what_pytest_finds_by_the_entry_point(openresponses_conform: Conform) -> None:
    (point,) = metadata.entry_points(group="pytest11", name="openresponses")
    assert point.value == "openresponses_cli.pytest_plugin"
    assert callable(openresponses_conform)


def test_loading_the_plugin_imports_nothing_of_the_package() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import openresponses_cli.pytest_plugin;"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['openresponses_cli']\n"


def test_a_decoder_that_errs_is_failed_by_what_it_should_do(run: Outcomes) -> None:
    result = run("""
        import pytest

        @pytest.mark.openresponses("openai/text", "openai/one_tool")
        def test_it(openresponses_streams):
            wrong = [{"call_id": "call_a", "name": "get_weather", "arguments": {"city": "Rome"}}]
            openresponses_streams.check(text="Hello there. é🙂", calls=wrong)
    """)
    assert result.parseoutcomes()["failed"] > 1
    result.stdout.fnmatch_lines(
        [
            "E*openai/one_tool: The deltas of a call's arguments are joined;*",
            "E*the arguments of call_a are *",
        ]
    )


def test_a_bridge_that_errs_is_failed(run: Outcomes) -> None:
    result = run("""
        import pytest
        from openresponses_bridge.corpus import case

        @pytest.mark.openresponses("gemini/text", "gemini/one_tool")
        def test_it(openresponses_foreign_streams):
            openresponses_foreign_streams.check(case("openresponses/text").body)
    """)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E*gemini/one_tool: *", "E*the call call_a is missing"])


@pytest.mark.parametrize("facts", ["id='x'", "colour='red'", "text=5", "calls=['f']"])
def test_what_is_no_fact_is_a_type_error(run: Outcomes, facts: str) -> None:
    result = run(f"""
        import pytest

        @pytest.mark.openresponses("openai/text/crlf")
        def test_it(openresponses_streams):
            with pytest.raises(TypeError):
                openresponses_streams.check({facts})
    """)
    result.assert_outcomes(passed=1)
