"""`db upgrade` removes secrets of tools that versions before have stored with responses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from sqlalchemy import Engine, LargeBinary, create_engine, select
from sqlalchemy.pool import NullPool

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_request, encode, encode_sse
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_cli.commands.cli import main
from openresponses_server.store.base import Lease, StoredResponse
from openresponses_server.store.frames import PIECE_BYTES, Frames
from openresponses_server.store.sql import migrate
from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import remove_secrets, upgrade
from openresponses_server.store.sql.sqlite_file import REVISION
from openresponses_server.store.sql.tables import metadata
from openresponses_server.store.stores import open_store
from tests.support.services import postgres_database

SECRETS = [f"hidden-{number}-secret" for number in range(11)]
NETWORK = {"type": "allowlist", "domain_secrets": [{"domain": "d", "name": "N", "value": SECRETS[0]}]}
FUNCTION = {
    "type": "function",
    "name": "f",
    "parameters": {"properties": {"api_key": {"default": "shown-é"}}},
}
MCP = {
    "type": "mcp",
    "server_label": "shown-label",
    "server_url": f"https://u:{SECRETS[1]}@shown.example/{SECRETS[2]}?k={SECRETS[3]}",
    "headers": {"Authorization": f"Bearer {SECRETS[4]}"},
    "authorization": SECRETS[5],
}
SHELL = {"type": "shell", "environment": {"type": "container_auto", "network_policy": NETWORK}}
INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto", "env": {"A": SECRETS[6]}}}
TOOLS = [
    FUNCTION,
    MCP,
    SHELL,
    INTERPRETER,
    {
        "type": "namespace",
        "name": "n",
        "description": "d",
        "tools": [FUNCTION, {"type": "other", "api_key": SECRETS[7]}],
    },
]
INSIDE = {"type": "additional_tools", "role": "developer", "tools": [MCP | {"authorization": SECRETS[8]}]}
BEYOND = {"provider": {"name": "shown", "api_key": SECRETS[9]}, "cookie": SECRETS[10]}
QUOTED = 'Say "tools":[{"type":"mcp","authorization":"quoted-by-the-user"}]'
MESSAGE = {"type": "message", "role": "user", "content": QUOTED}


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        yield create_engine(database_url(f"sqlite:///{tmp_path}/s.sqlite3"), poolclass=NullPool)
    else:
        with postgres_database() as address:
            yield create_engine(database_url(address), poolclass=NullPool)


def as_before(
    response_id: str, tools: list[dict[str, Any]], deltas: int = 1
) -> tuple[StoredResponse, Frames]:
    """A record as it was stored with all that is in its request. Its response and its frames have a number in
    the place of the tools until they are in the database."""
    body = {"model": "m", "tools": tools, "input": [INSIDE, MESSAGE] if tools is TOOLS else [MESSAGE]}
    body |= {"background": True}
    request: CreateResponse = decode_request(json.dumps(body).encode())
    body |= BEYOND if tools is TOOLS else {"shown": "1"}
    machine = ResponseStreamStateMachine("m", replace(request, tools=None), response_id=response_id)
    events = machine.start()
    for _ in range(deltas):
        events += machine.text(QUOTED)
    events += machine.finish()
    frames = Frames(0, len(events) - 1, encode_sse(events).replace(b'"tools":[]', with_tools(tools)))
    assert isinstance(request.input, list)
    return StoredResponse(machine.snapshot, request.input, request=encode(body)), frames


def with_tools(tools: list[dict[str, Any]]) -> bytes:
    return b'"tools":' + encode(tools)


async def stored(engine: Engine, records: dict[str, tuple[StoredResponse, Frames]], tools: Any) -> None:
    upgrade(engine.url)
    store = open_store(address(engine))
    for record, frames in records.values():
        await store.put(record, frames)
    await store.close()
    responses = metadata.tables["responses"]
    with engine.begin() as connection:
        for response_id, body in connection.execute(select(responses.c.id, responses.c.response)).all():
            response = body.replace(b'"tools":[]', with_tools(tools[response_id]))
            assert response != body
            which = responses.c.id == response_id
            connection.execute(responses.update().where(which).values(response=response))


def address(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False).replace("+pysqlite", "")


def rows(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    with engine.connect() as connection:
        return {
            name: sorted(map(tuple, connection.execute(select(*table.c)).all()), key=repr)
            for name, table in metadata.tables.items()
        }


def found_in(engine: Engine) -> list[str]:
    data = repr(rows(engine)).encode()
    if engine.dialect.name == "sqlite":
        path = Path(str(engine.url.database))
        data += b"".join(each.read_bytes() for each in path.parent.iterdir() if each.is_file())
    return [secret for secret in SECRETS if secret.encode() in data]


def expected(found: dict[str, list[tuple[Any, ...]]], ids: set[str]) -> dict[str, list[tuple[Any, ...]]]:
    """The same rows, with the tools of these responses as they are shown."""
    shown_mcp = {"type": "mcp", "server_label": "shown-label", "server_url": "https://shown.example"}
    open_policy = {"type": "allowlist"}
    shown = [
        FUNCTION,
        shown_mcp,
        {"type": "shell", "environment": {"type": "container_auto", "network_policy": open_policy}},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        TOOLS[4] | {"tools": [FUNCTION, {"type": "other"}]},
    ]
    pairs = [(encode(TOOLS), encode(shown)), (encode(INSIDE["tools"]), encode([shown_mcp]))]
    pairs.append((encode(BEYOND)[1:-1], b'"provider":{"name":"shown"}'))

    def cleaned(value: Any, padded: bool) -> Any:
        for before, after in pairs if isinstance(value, bytes) else ():
            value = value.replace(before, after.ljust(len(before)) if padded else after)
        return value

    def of(name: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
        columns = metadata.tables[name].c
        padded = name == "response_frames"
        return tuple(
            cleaned(value, padded) if isinstance(column.type, LargeBinary) else value
            for column, value in zip(columns, row, strict=True)
        )

    return {
        name: sorted(
            (of(name, row) if ids.intersection(map(str, row[:1])) else row for row in table), key=repr
        )
        for name, table in found.items()
    }


async def test_case_55_secrets_that_were_stored_before_are_removed(engine: Engine) -> None:
    declarations = {"a": TOOLS, "b": [FUNCTION], "c": TOOLS}
    await stored(engine, {name: as_before(name, tools) for name, tools in declarations.items()}, declarations)
    before = rows(engine)
    assert found_in(engine) == SECRETS
    for notice in ("\nsecrets of tools removed from 2 responses\n", "\n"):
        done = CliRunner().invoke(main, ["db", "upgrade", "--store", address(engine)])
        assert (done.exit_code, done.stdout) == (0, f"at revision {REVISION}{notice}")
        assert found_in(engine) == []
        assert rows(engine) == expected(before, {"a", "c"})


async def test_case_55_long_frames_keep_their_places(engine: Engine) -> None:
    """A secret lies across the end of a piece."""
    record, frames = as_before("a", TOOLS)
    begin = frames.data.index(SECRETS[1].encode()) + 5
    filler = b"x" * (PIECE_BYTES - begin - len(b'event: e\ndata: ""\n\n'))
    data = b'event: e\ndata: "%b"\n\n%b' % (filler, frames.data)
    assert data[:PIECE_BYTES].endswith(SECRETS[1][:5].encode())
    await stored(engine, {"a": (record, Frames(0, frames.last + 1, data))}, {"a": TOOLS})
    assert len(rows(engine)["response_pieces"]) == 1
    assert remove_secrets(engine.url) == 1
    assert found_in(engine) == []
    store = open_store(address(engine))
    again = b"".join([piece.data async for piece in store.frames("a", "", -1)])
    await store.close()
    assert len(again) == len(data)
    for line, other in zip(again.splitlines(), data.splitlines(), strict=True):
        assert line == other or json.loads(line[6:])["response"]["tools"][1]["type"] == "mcp"


async def test_case_55_json_that_another_encoder_made_is_cleaned(engine: Engine) -> None:
    """What is not ASCII is escaped in it."""
    await stored(engine, {"a": as_before("a", TOOLS)}, {"a": TOOLS})
    responses, frames = metadata.tables["responses"], metadata.tables["response_frames"]

    def escaped(data: bytes) -> bytes:
        return b"".join(
            b"\\u%04x" % ord(char) if ord(char) > 127 else char.encode() for char in data.decode()
        )

    with engine.begin() as connection:
        for table, column in ((responses, responses.c.response), (frames, frames.c.data)):
            data = connection.scalar(select(column))
            assert data is not None
            connection.execute(table.update().values({column.name: escaped(data)}))
    before = rows(engine)
    assert remove_secrets(engine.url) == 1
    assert found_in(engine) == []
    ((*_, body, _),) = rows(engine)["responses"]
    ((*_, whole, _),) = before["responses"]
    assert json.loads(body) == json.loads(whole) | {"tools": json.loads(body)["tools"]}
    sizes = [[len(each) for each in row if isinstance(each, bytes)] for row in before["response_frames"]]
    after = rows(engine)["response_frames"]
    assert [[len(each) for each in row if isinstance(each, bytes)] for row in after] == sizes


async def test_case_55_what_was_interrupted_is_repeated(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    declarations = dict.fromkeys("abcd", TOOLS)
    await stored(engine, {name: as_before(name, tools) for name, tools in declarations.items()}, declarations)
    before = rows(engine)
    clean, seen = migrate._clean_frames, []

    def interrupted(connection: Any, response_id: str) -> None:
        seen.append(response_id)
        if response_id == "c":
            raise KeyboardInterrupt
        clean(connection, response_id)

    with monkeypatch.context() as patch:
        patch.setattr(migrate, "_clean_frames", interrupted)
        with pytest.raises(KeyboardInterrupt):
            remove_secrets(engine.url)
    assert seen == ["a", "b", "c"]
    assert rows(engine) == expected(before, {"a", "b"})
    assert remove_secrets(engine.url) == 2
    assert rows(engine) == expected(before, set(declarations))
    assert found_in(engine) == []


async def test_case_55_what_runs_keeps_its_secrets_until_it_has_ended(engine: Engine) -> None:
    """Its worker of the version before needs them."""
    record, frames = as_before("a", TOOLS)
    running = replace(record, lease=Lease("w", 1e11))
    await stored(engine, {"a": (running, frames)}, {"a": TOOLS})
    before = rows(engine)
    assert remove_secrets(engine.url) == 0
    assert rows(engine) == before


async def test_case_55_servers_go_on_meanwhile(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two responses others are stored, deleted and ended."""
    declarations = dict.fromkeys("abc", TOOLS)
    await stored(engine, {name: as_before(name, tools) for name, tools in declarations.items()}, declarations)
    clean = migrate._clean_response

    def deleting(connection: Any, response_id: str) -> bool:
        if response_id == "b":
            responses = metadata.tables["responses"]
            connection.execute(responses.delete().where(responses.c.id == "b"))
        return clean(connection, response_id)

    monkeypatch.setattr(migrate, "_clean_response", deleting)
    assert remove_secrets(engine.url) == 2
    store = open_store(address(engine))
    assert await store.get("b") is None
    again = await store.get("c")
    await store.close()
    assert again is not None
    assert found_in(engine) == []
