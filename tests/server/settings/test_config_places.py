"""What is wrong in a config is named with its file and line, and with the name that was probably meant."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_server.api.app import create_app
from openresponses_server.settings import load_settings
from openresponses_server.settings.files import ConfigError, as_toml, did_you_mean, line_of, lines_of, located

FILE = '''# a comment
port = 9001
names = [  # more follow,
    "a",
    "b # no comment",
]
text = """
[not.a.table]
port = 1
"""
inline = { "gpt-4.1" = { tools = true } }
dotted.inner = 1

[timeouts]
idle = 5

[[upstreams]]
name = "one"
[upstreams.retries]
times = 1
[[upstreams]]
name = "two"
[[upstreams.more]]
x = 1
[[upstreams.more]]
x = 2
'''
LINES = {
    "$.port": 2,
    "$.names": 3,
    "$.names[1]": 3,
    "$.text": 7,
    "$.inline": 11,
    "$.inline.gpt-4.1.tools": 11,
    "$.dotted.inner": 12,
    "$.timeouts": 14,
    "$.timeouts.idle": 15,
    "$.upstreams[0]": 17,
    "$.upstreams[0].name": 18,
    "$.upstreams[0].retries": 19,
    "$.upstreams[0].retries.times": 20,
    "$.upstreams[1]": 21,
    "$.upstreams[1].name": 22,
    "$.upstreams[1].more[0].x": 24,
    "$.upstreams[1].more[1].x": 26,
    # what is not there: the nearest thing around it
    "$.timeouts.total": 14,
    "$.upstreams[1].retries.times": 21,
    "$.inline[...].tools": 11,
    "$.inline[...].images": 11,
    "$.nothing": None,
    "$": None,
    "": None,
}


@pytest.mark.parametrize("path", LINES)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_lines(path: str, end: str) -> None:
    tomllib.loads(FILE)
    assert line_of(path, lines_of(FILE.replace("\n", end))) == LINES[path]


@given(st.text(max_size=40), st.integers(0, 3))
def test_no_text_of_a_value_hides_the_lines_after_it(text: str, before: int) -> None:
    encoded = "".join(f"\\U{ord(each):08x}" if not 0xD800 <= ord(each) < 0xE000 else "?" for each in text)
    raw = "".join(each for each in text if each.isprintable() and each != "'")
    toml = "\n" * before + f"a = \"{encoded}\"\nb = '{raw}\u2028'\nc = '''\n{raw}\n'''\nlast = 1\n"
    assert line_of("$.last", lines_of(toml)) == before + 6


def test_a_long_list_is_read_once() -> None:
    text = "models = [\n" + '"a",\n' * 20_000 + "]\nport = 1\n"
    assert lines_of(text)["$.port"] == 20_003


@pytest.mark.parametrize(
    ("given", "known", "meant"),
    [
        ("prot", ["host", "port"], "port"),
        ("OLLAMA", ["ollama", "openai"], "ollama"),
        ("mysql", ["memory", "sqlite", "postgresql"], None),
        ("x" * 100_000, ["port"], None),
        ("", ["port"], None),
    ],
)
def test_did_you_mean(given: str, known: list[str], meant: str | None) -> None:
    assert did_you_mean(given, known) == (f" (did you mean {meant!r}?)" if meant else "")


UPSTREAM = "[[upstreams]]\nurl = 'http://x'\n"
WRONG = {
    "a setting": ("\nprot = 1", 2, "'prot' is not a setting (did you mean 'port'?)"),
    "in a table": ("[limits]\ngrase = 1", 2, "did you mean 'grace'?"),
    "in an upstream": (UPSTREAM + "modles = []", 3, "did you mean 'models'?"),
    "in a table of an upstream": (UPSTREAM + "[upstreams.timeouts]\nidel = 1", 4, "did you mean 'idle'?"),
    "of a model": ("[models.'a.b']\ntool = true", 2, "did you mean 'tools'?"),
    "a type": ("host = 'h'\nport = 'many'", 2, "Expected `int`, got `str`"),
    "a type of a model": ("[models.'a.b']\ntools = 'some'", 2, "Expected `bool | null`"),
    "a profile": (UPSTREAM + "[[upstreams]]\nprofile = 'olama'", 4, "did you mean 'ollama'?"),
    "a dialect": (UPSTREAM + "dialect = 'antropic'", 3, "did you mean 'anthropic'?"),
    "an option": (UPSTREAM + "options = { take_n = true }", 3, "did you mean 'takes_n'?"),
    "an address": ("[[upstreams]]\nurl = 'ftp://x'", 2, "ftp://x"),
    "a user and a key": (
        "[[upstreams]]\nurl = 'http://me:hunter2@x'\napi_key = 'k'",
        2,
        "a user name in the address and a key are mutually exclusive",
    ),
    "no address": (UPSTREAM + "[[upstreams]]\nname = 'x'", 3, "neither url nor profile"),
    "a failover": (UPSTREAM + "name = 'main'\nfailover = ['mian/x']", 4, "did you mean 'main'?"),
    "a name twice": (UPSTREAM + "\n" + UPSTREAM, 4, "two upstreams have the name"),
    "a store": ("port = 1\nstore = 'sqllite:'", 2, "did you mean 'sqlite'?"),
    "a driver": ("\nstore = 'postgresql+psycopg2://h/x'", 2, "did you mean 'postgresql+psycopg'?"),
    "a log": ("\nevent_log = 'reddis://h'", 2, "did you mean 'redis'?"),
    "an alias": (UPSTREAM + "models = ['m']\n[aliases]\n'a.b' = 'c'", 5, "no upstream serves"),
    "the default": ("default_model = 'x'\n" + UPSTREAM + "models = ['m']", 1, "no upstream serves"),
    "a variable": (UPSTREAM + "api_key = '${NO_SUCH_KEY}'", 3, "NO_SUCH_KEY is not set"),
    "a name of one": (UPSTREAM + "api_key_env = 'NO_SUCH_KEY'", 3, "NO_SUCH_KEY is not set"),
    "a key to seal": ("sealing_key_env = 'NO_SUCH_KEY'", 1, "NO_SUCH_KEY is not set"),
    "a host": ("allowed_hosts = [\n'a',\n'http://b']", 1, "http://b"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_are_named_with_file_and_line(tmp_path: Path, case: str) -> None:
    text, line, message = WRONG[case]
    config = tmp_path / "bridge.toml"
    config.write_text(text)
    with pytest.raises(ConfigError) as wrong, located(config):
        create_app(load_settings(config))
    assert str(wrong.value).startswith(f"{config}:{line}: ")
    assert message in str(wrong.value)


def test_a_flag_that_is_wrong_is_not_looked_for_in_the_file(tmp_path: Path) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text("store = 'memory://'\nport = 1\n")
    with pytest.raises(ConfigError) as wrong:
        load_settings(config, port="many")
    assert str(config) not in str(wrong.value)


CHARACTERS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | CHARACTERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CHARACTERS, inner, max_size=3),
)


@given(VALUES)
def test_a_value_is_written_so_that_it_is_read_again(value: object) -> None:
    written = as_toml(value)
    assert written.isprintable()
    assert tomllib.loads(f"value = {written}") == {"value": value}
