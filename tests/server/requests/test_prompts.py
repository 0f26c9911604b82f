"""`prompt`: requests made of templates in the operator's folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from openresponses_server.requests.composition import compose
from openresponses_server.requests.prompts import read_prompts
from openresponses_server.settings import Settings, SettingsError, UpstreamSettings, load_settings
from tests.support import dialect_scripts as scripts
from tests.support.documents import blocks_of, run_python
from tests.support.serving import Reply, call, respond, serving, stream
from tests.support.sockets import opened_socket
from tests.support.upstream import Script, ScriptedUpstream, text

OPENAI = {"openresponses-wire": "openai"}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
FILE = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,QQ=="}
SUPPORT = """
default = "2"

[versions.1]
instructions = "You help."

[versions.2]
model = "template-model"
instructions = "You help customers of {{company}}, {{ tone }}. {{company}}!"
temperature = 0.5
max_output_tokens = 50
text = { verbosity = "low" }
input = [
    { role = "developer", content = "Mind {{ company }}." },
    { role = "user", content = "Look: {{photo}} and {{file}}, {{company}}." },
    { role = "assistant", content = "I see {{ not a name }} {{}} {{{company}}}." },
]

[versions.2.variables]
company = {}
tone = { default = "kindly with {{company}}" }
photo = { type = "input_image" }
file = { type = "input_file" }

[[versions.2.tools]]
type = "function"
name = "look"
parameters = { type = "object", properties = {} }

[versions.3]
instructions = "Third."
"""
NO_PHOTO = {"company": "Acme", "file": FILE}
GIVEN = {**NO_PHOTO, "photo": PICTURE}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "support.toml").write_text(SUPPORT)
    return tmp_path / "prompts"


@pytest.fixture
def base(folder: Path, upstream: ScriptedUpstream) -> Iterator[str]:
    at = UpstreamSettings(url=upstream.url, name="scripted")
    with serving(Settings(upstreams=[at], prompts=str(folder), max_body_bytes=20_000)) as address:
        yield address


def prompt(**variables: Any) -> dict[str, Any]:
    return {"prompt": {"id": "support", "variables": {**GIVEN, **variables}}}


def ask(base: str, **request: Any) -> Reply:
    return call(base, "POST", "/v1/responses", request, OPENAI)


def test_a_template_gives_what_a_request_has_not(base: str, upstream: ScriptedUpstream) -> None:
    reply = ask(base, input="Hi", **prompt())
    sent = upstream.last("template-model").body
    system, developer, looked, seen, question = sent["messages"]
    assert system["content"] == "You help customers of Acme, kindly with {{company}}. Acme!"
    assert developer["content"] == "Mind Acme."
    assert [part["type"] for part in looked["content"]] == ["text", "image_url", "text", "file", "text"]
    assert [part["text"] for part in looked["content"][::2]] == ["Look: ", " and ", ", Acme."]
    assert seen["content"] == "I see {{ not a name }} {{}} {Acme}."
    assert question["content"] == "Hi"
    assert (sent["temperature"], sent["tools"][0]["function"]["name"]) == (0.5, "look")
    # it is echoed with the version that was taken
    assert reply.json["prompt"] == {"id": "support", "version": "2", "variables": GIVEN}
    assert reply.json["instructions"] == system["content"]
    assert reply.json["temperature"] == 0.5
    again = call(base, "GET", f"/v1/responses/{reply.json['id']}", headers=OPENAI).json
    assert again["prompt"] == reply.json["prompt"]


def test_what_a_request_has_goes_before(base: str, upstream: ScriptedUpstream) -> None:
    own = {"model": "own", "instructions": "Mine.", "temperature": 1.5, "tools": [], "tool_choice": "none"}
    reply = ask(base, **own, **prompt())
    sent = upstream.last("own").body
    assert sent["messages"][0]["content"] == "Mine."
    assert sent["temperature"] == 1.5
    assert "tools" not in sent
    assert reply.json["instructions"] == "Mine."


@pytest.mark.parametrize(("version", "said"), [("1", "You help."), ("3", "Third.")])
def test_versions(base: str, upstream: ScriptedUpstream, version: str, said: str) -> None:
    reference = {"id": "support", "version": version}
    reply = ask(base, model="m", input="Hi", prompt=reference)
    assert upstream.last("m").body["messages"][0]["content"] == said
    assert reply.json["prompt"] == reference


def test_without_a_default_the_last_version_is_it(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('versions.b.instructions = "1"\nversions.a.instructions = "2"\n')
    assert read_prompts(str(tmp_path))["a"].default == "a"


def test_a_value_is_no_template(base: str, upstream: ScriptedUpstream) -> None:
    """Whatever it has in it, and as an object too."""
    for value in ("{{photo}} {{company}} {{tone}}", {"type": "input_text", "text": "{{tone}}"}):
        ask(base, input="Hi", **prompt(company=value))
        sent = upstream.last("template-model").body["messages"]
        shown = value if isinstance(value, str) else value["text"]
        assert sent[0]["content"].count(shown) == 2
        assert sent[1]["content"] == f"Mind {shown}."


def test_its_messages_hold_for_one_request(base: str, upstream: ScriptedUpstream) -> None:
    """As instructions do: they are no input, and are not carried over."""
    first = ask(base, input="Hi", **prompt()).json
    listed = call(base, "GET", f"/v1/responses/{first['id']}/input_items").json["data"]
    assert [item["content"][0]["text"] for item in listed] == ["Hi"]
    second = ask(base, model="m", input="More", previous_response_id=first["id"]).json
    assert [each["role"] for each in upstream.last("m").body["messages"]] == ["user", "assistant", "user"]
    assert second.get("prompt") is None
    ask(base, input="Again", previous_response_id=second["id"], **prompt(company="Other"))
    messages = upstream.last("template-model").body["messages"]
    assert [each["role"] for each in messages] == [
        *("system", "system", "user", "assistant"),
        *("user", "assistant", "user", "assistant", "user"),
    ]
    assert messages[1]["content"] == "Mind Other."


def test_it_needs_no_input(base: str, upstream: ScriptedUpstream) -> None:
    assert ask(base, **prompt()).status == 200
    roles = [each["role"] for each in upstream.last("template-model").body["messages"]]
    assert roles == ["system", "system", "user", "assistant"]


@pytest.mark.parametrize(
    ("given", "status", "code", "param"),
    [
        ({"variables": {}}, 400, "missing_required_parameter", "prompt.variables.company"),
        ({"variables": {"company": None}}, 400, "missing_required_parameter", "prompt.variables.company"),
        ({"variables": {**GIVEN, "other": "x"}}, 400, "invalid_value", "prompt.variables.other"),
        ({"variables": {**GIVEN, "o" * 900: "x"}}, 400, "invalid_value", f"prompt.variables.{'o' * 64}"),
        ({"variables": {**GIVEN, "company": 3}}, 400, "invalid_value", "prompt.variables.company"),
        ({"variables": {**GIVEN, "company": PICTURE}}, 400, "invalid_value", "prompt.variables.company"),
        ({"variables": {**GIVEN, "photo": "x"}}, 400, "invalid_value", "prompt.variables.photo"),
        (
            {"variables": {"photo": FILE, **{"company": "x", "file": FILE}}},
            400,
            "invalid_value",
            "prompt.variables.photo",
        ),
        (
            {"variables": {**GIVEN, "photo": {"type": "input_image", "image_url": 3}}},
            *(400, "invalid_value", "prompt.variables.photo.image_url"),
        ),
        (
            {"variables": {"photo": {"type": "input_image"}, "company": "x", "file": FILE}},
            *(400, "invalid_value", "prompt.variables.photo"),
        ),
        (
            {"variables": {"photo": {"more": 1, **PICTURE}, "company": "x", "file": FILE}},
            *(400, "invalid_value", "prompt.variables.photo.more"),
        ),
        ({"variables": {**GIVEN, "company": "x" * 7000}}, 400, "invalid_value", "prompt.variables"),
        ({"variables": []}, 400, "invalid_value", "prompt.variables"),
        ({"version": 2}, 400, "invalid_value", "prompt.version"),
        ({"version": "9"}, 404, "prompt_not_found", "prompt.version"),
        ({"id": "nobody"}, 404, "prompt_not_found", "prompt.id"),
        ({"id": "../prompts/support"}, 404, "prompt_not_found", "prompt.id"),
        ({"id": "support.toml"}, 404, "prompt_not_found", "prompt.id"),
        ({"id": "/etc/passwd\0"}, 404, "prompt_not_found", "prompt.id"),
        ({"id": 3}, 400, "invalid_value", "prompt.id"),
        ({"more": 1}, 400, "invalid_value", "prompt.more"),
    ],
    ids=lambda value: str(value)[:60],
)
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
def test_what_does_not_fit_is_named(
    base: str, path: str, given: dict[str, Any], status: int, code: str, param: str
) -> None:
    body = {"input": "x", "prompt": {"id": "support", "variables": GIVEN, **given}}
    reply = call(base, "POST", path, body)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, param)
    assert reply.error["type"] == ("not_found" if status == 404 else "invalid_request_error")


def test_tokens_are_those_of_the_whole(base: str) -> None:
    def tokens(**request: Any) -> int:
        counted: int = call(base, "POST", "/v1/responses/input_tokens", request).json["input_tokens"]
        return counted

    assert tokens(input="Hi", **prompt(company="word " * 300)) > tokens(input="Hi", **prompt()) + 900


def test_on_a_websocket_and_in_the_background(base: str, upstream: ScriptedUpstream) -> None:
    with opened_socket(base) as socket:
        turn = socket.turn(model=None, input="Hi", store=False, **prompt())
        assert turn.final["model"] == "template-model"
        wrong = socket.turn(input="Hi", **prompt(company=3))
        assert wrong.error["error"]["param"] == "prompt.variables.company"
    response = stream(base, input="Hi", background=True, **prompt())
    assert response.final["status"] == "completed"
    assert upstream.last("template-model").body["messages"][1]["content"] == "Mind Acme."


@pytest.mark.parametrize("dialect", ["anthropic", "gemini", "responses"])
def test_over_other_upstreams(folder: Path, upstream: ScriptedUpstream, dialect: str) -> None:
    upstream.scripts["m"] = Script(scripts.text(dialect, "Yes."))
    at = UpstreamSettings(url=upstream.url, dialect=dialect)
    with serving(Settings(upstreams=[at], prompts=str(folder))) as base:
        reply = respond(base, model="m", input="Hi", **prompt())
    assert reply.status == 200
    sent = json.dumps(upstream.last("m").body)
    assert sent.count("Acme") == 5
    assert '"prompt"' not in sent


def test_a_prompt_of_the_upstream_s_own_is_passed_on(folder: Path, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(scripts.text("responses", "Yes."))
    at = UpstreamSettings(url=upstream.url, dialect="responses")
    theirs = {"id": "pmpt_1", "version": "2", "variables": {"a": "b"}}
    with serving(Settings(upstreams=[at], prompts=str(folder))) as base:
        reply = call(base, "POST", "/v1/responses", {"model": "m", "input": "Hi", "prompt": theirs}, OPENAI)
    assert upstream.last("m").body["prompt"] == theirs
    assert reply.json["prompt"] == theirs


def test_nothing_is_continued_by_an_id_that_lacks_the_messages(
    folder: Path, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = Script(scripts.text("responses", "Yes."))
    at = UpstreamSettings(url=upstream.url, dialect="responses", options={"stateful": True})
    with serving(Settings(upstreams=[at], prompts=str(folder))) as base:
        first = respond(base, model="m", input="Hi").json
        respond(base, model="m", input="More", previous_response_id=first["id"], **prompt())
    sent = upstream.last("m").body
    assert "previous_response_id" not in sent
    assert "Mind Acme." in json.dumps(sent)


def test_with_a_compaction(base: str, upstream: ScriptedUpstream) -> None:
    """Its messages are not condensed with the conversation: each request brings its own."""
    long = "the cat sat on the mat and looked " * 250
    upstream.scripts["template-model"] = [Script(text("A cat sat.")), Script(text("Oui."))]
    compact = {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}
    talk = [{"role": "user", "content": long}, {"role": "assistant", "content": "A"}]
    first = ask(base, input=[*talk, {"role": "user", "content": "And?"}], **compact, **prompt()).json
    assert [item["type"] for item in first["output"]] == ["compaction", "message"]
    upstream.scripts["template-model"] = Script(text("Oui."))
    ask(base, input="Go on", previous_response_id=first["id"], **compact, **prompt(company="Other"))
    messages = upstream.last("template-model").body["messages"]
    assert [each["role"] for each in messages] == [
        *("system", "system", "user", "assistant"),
        *("user", "user", "assistant", "user"),
    ]
    assert messages[1]["content"] == "Mind Other."
    assert "Acme" not in json.dumps(messages)


def test_the_example_of_the_page_works(tmp_path: Path) -> None:
    template, program = (block.code for block in blocks_of("docs/requests.md") if block.heading == "Prompts")
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "support.toml").write_text(template)
    (tmp_path / "bridge.toml").write_text('prompts = "prompts"\n')
    with serving(load_settings(tmp_path / "bridge.toml", store="memory://")) as base:
        run_python(program, "docs/requests.md", base)


# ── the folder ─────────────────────────────────────────────────────────────────────────────────────────
WRONG = {
    "no versions": ('default = "1"\n', "missing required field `versions`"),
    "empty": ("[versions]\n", "it has no"),
    "nothing to say": ('[versions.1]\nmodel = "m"\n', "neither instructions nor input"),
    "unknown field": ('[versions.1]\ninstruction = "x"\n', "did you mean 'instructions'"),
    "unknown variable": ('[versions.1]\ninstructions = "{{ x }}"\n', "is not one of its variables"),
    "unused variable": (
        '[versions.1]\ninstructions = "x"\nvariables.y = {}\n',
        "'y' is not used by any placeholder",
    ),
    "unknown type": (
        '[versions.1]\ninstructions = "{{x}}"\nvariables.x.type = "number"\n',
        "Invalid enum value 'number'",
    ),
    "picture in instructions": (
        '[versions.1]\ninstructions = "{{x}}"\nvariables.x.type = "input_image"\n',
        "only a user's message",
    ),
    "default of a picture": (
        '[versions.1]\ninput = [{role = "user", content = "{{x}}"}]\n'
        'variables.x = {type = "input_image", default = "y"}\n',
        "only a text has a default",
    ),
    "wrong default": ('default = "2"\n[versions.1]\ninstructions = "x"\n', "there is no version '2'"),
    "wrong role": ('[versions.1]\ninput = [{role = "tool", content = "x"}]\n', "Invalid enum value 'tool'"),
    "wrong field": ('[versions.1]\ninstructions = "x"\ntext = {verbosity = "some"}\n', "verbosity"),
    "limit": ('[versions.1]\ninstructions = "x"\nmax_output_tokens = 3\n', "max_output_tokens"),
    "unknown nested": ('[versions.1]\ninstructions = "x"\nreasoning = {efort = "low"}\n', "is not known"),
    "name of a version": ('[versions."a b"]\ninstructions = "x"\n', "can't be a version"),
    "name of a variable": (
        '[versions.1]\ninstructions = "x"\nvariables."a b" = {}\n',
        "can't be a variable",
    ),
    "no toml": ("[versions\n", "Expected"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_named_with_its_place(tmp_path: Path, name: str) -> None:
    content, message = WRONG[name]
    (tmp_path / "a.toml").write_text(content)
    with pytest.raises(SettingsError, match=r"prompt 'a': .*a\.toml") as raised:
        read_prompts(str(tmp_path))
    assert message in str(raised.value)


def test_what_is_in_the_folder_besides(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "a.toml").write_text('versions.1.instructions = "x"\n')
    for name in ("b.txt", ".hidden.toml", "c.toml~"):
        (folder / name).write_text("[")
    (folder / "folder.toml").mkdir()
    (tmp_path / "outside.toml").write_text("[")
    (folder / "link.toml").symlink_to(tmp_path / "outside.toml")
    assert list(read_prompts(str(folder))) == ["a"]
    (folder / "a b.toml").write_text("")
    with pytest.raises(SettingsError, match="can't be an id"):
        read_prompts(str(folder))
    (folder / "a b.toml").write_text(" " * (1 << 20) + "\n")
    (folder / "a b.toml").rename(folder / "large.toml")
    with pytest.raises(SettingsError, match="at most"):
        read_prompts(str(folder))


def test_the_folder_is_relative_to_the_config(tmp_path: Path, folder: Path) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text('prompts = "prompts"\n')
    assert load_settings(config).prompts == str(folder)
    config.write_text('port = 1\nprompts = "nowhere"\n')
    with pytest.raises(SettingsError, match=r"bridge\.toml:2: prompts: 'nowhere' is not a folder"):
        load_settings(config)


def test_commands_name_a_wrong_file_and_its_line(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "a.toml").write_text('[versions.1]\n\ninstruction = "x"\n')
    (tmp_path / "bridge.toml").write_text('prompts = "prompts"\n')
    for command in ("config check", "doctor --json --config", "serve --config"):
        done = CliRunner().invoke(main, [*command.split(), str(tmp_path / "bridge.toml")])
        assert done.exit_code != 0
        assert "prompt 'a'" in done.output
        assert "a.toml:3: 'instruction' is not a setting" in done.output


def test_an_application_that_is_made_again_reads_the_folder_again(folder: Path) -> None:
    """As each worker does that replaces another."""
    settings = Settings(store="memory://", prompts=str(folder))
    assert compose(settings).prompts["support"].default == "2"
    (folder / "support.toml").write_text('versions.1.instructions = "x"\n')
    assert compose(settings).prompts["support"].default == "1"


def test_many_braces_cost_no_more_than_their_length(tmp_path: Path) -> None:
    braces = "{{" * 200_000 + "}}"
    (tmp_path / "a.toml").write_text(f"versions.1.instructions = '{braces}'\n")
    (piece,) = read_prompts(str(tmp_path))["a"].versions["1"].instructions or ()
    assert piece == braces
