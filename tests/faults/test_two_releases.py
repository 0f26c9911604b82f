"""Law S9 across an upgrade: the server of the release before and this one over one PostgreSQL and one Redis.

The release before is the last tag of a version, or, if there is none, the last revision with other tables, or
the revision that TEST_PREVIOUS_REVISION names. Each server reads, streams, continues and cancels the
responses of the other, and settles them when the other's worker was killed. A change of a managed key by one
holds for both.
"""

import json
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from openresponses_server.store.sql.locations import database_url
from openresponses_server.store.sql.migrate import upgrade
from openresponses_server.store.sql.sqlite_file import REVISION
from tests.support.crashes import check_client, resume_all, saved, start_streams, wait_until_settled
from tests.support.forked import Forked, ForkServer, fork_server
from tests.support.processes import address_in, started
from tests.support.releases import environment_of, last_tag, previous_tree
from tests.support.services import postgres_database, redis_server
from tests.support.serving import call, output_text, respond, response_of, stream, violations
from tests.support.waiting import wait_until
from tests.support.workers import CONFIG, Reader

WORDS = 40  # two seconds
ROUNDS = 10


@pytest.fixture(scope="module")
def previous(pytestconfig: pytest.Config) -> Iterator[ForkServer]:
    tree = previous_tree(pytestconfig.cache.mkdir("releases"))
    with closing(ForkServer(environment_of(tree))) as server:
        yield server


class Server(Struct):
    """A running server; `name` names its release."""

    name: str
    base: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Releases:
    """Servers of both releases over one store, each in a folder of its own."""

    def __init__(self, previous: ForkServer, folder: Path, store: str, log: str, held: ExitStack) -> None:
        self.store = store
        self._folder = folder
        self._log = log
        self._held = held
        self._forking = {"previous": previous, "this": fork_server()}

    def start(self, name: str, settings: str = "") -> Server:
        folder = Path(tempfile.mkdtemp(prefix=name, dir=self._folder))
        config = folder / "config.toml"
        config.write_text(CONFIG + settings)
        flags = ("--config", str(config), "--store", self.store, "--event-log", self._log)
        process = self._held.enter_context(
            started(*flags, folder=folder, errors=subprocess.DEVNULL, server=self._forking[name])
        )
        base = address_in(greeting(process))
        wait_until(lambda: call(base, "GET", "/readyz").status == 200)
        return Server(name, base, process)

    def keys(self, name: str, what: str, *arguments: str) -> tuple[str, str]:
        """The last line on each output of this command of that release; older releases print a warning about
        a newer store before it."""
        command = ["keys", what, "--store", self.store, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with Forked[str](command, server=self._forking[name], **pipes) as process:
            output = process.communicate()
        assert process.returncode == 0, output
        out, err = (each.rstrip().rpartition("\n")[2] for each in output)
        return out, err


def greeting(process: subprocess.Popen[str]) -> str:
    """The line with the address, before which older releases print a warning about a newer store."""
    assert process.stdout is not None
    return next(line for line in process.stdout if "http://" in line)


@contextmanager
def releases(previous: ForkServer, folder: Path) -> Iterator[Releases]:
    with ExitStack() as stack:
        store, log = stack.enter_context(postgres_database()), stack.enter_context(redis_server())
        yield Releases(previous, folder, store, log, stack)


@pytest.fixture
def both(previous: ForkServer, tmp_path: Path) -> Iterator[Releases]:
    with releases(previous, tmp_path) as pair:
        yield pair


def use(one: Server, other: Server) -> list[str]:
    """Responses that `one` makes, `other` reads, continues and cancels; returns the ids of all of them."""
    live = Reader(one.base, "POST", "/v1/responses", request(20))
    wait_until(lambda: len(live.events) > 5)
    elsewhere = Reader(other.base, "GET", f"/v1/responses/{live.response_id}?stream=true&starting_after=3")
    elsewhere.join()
    live.join()
    assert live.done
    assert elsewhere.events == {number: each for number, each in live.events.items() if number > 3}
    again = Reader(other.base, "GET", f"/v1/responses/{live.response_id}?stream=true")
    again.join()
    assert again.data == live.data
    turn = respond(other.base, model="demo", input="And now?", previous_response_id=live.response_id)
    assert turn.status == 200, turn.body
    talk = call(one.base, "POST", "/v1/conversations", {"items": []}).json["id"]
    answers = [stream(each.base, model="demo", input="Who?", conversation=talk) for each in (one, other, one)]
    items = call(other.base, "GET", f"/v1/conversations/{talk}/items?order=asc").json["data"]
    assert [each["role"] for each in items] == ["user", "assistant"] * 3
    assert items[1]["content"][0]["text"] == output_text(answers[0].final)
    ids = [
        respond(one.base, model="demo-slow", input="10 words", background=True).json["id"] for _ in range(4)
    ]
    for response_id, ended in wait_until_settled(other.base, ids).items():
        assert ended["status"] == "completed"
        sent = call(one.base, "GET", f"/v1/responses/{response_id}?stream=true")
        assert violations(sent) == []
        assert sent.final == ended
    endless = Reader(one.base, "POST", "/v1/responses", request(3000))
    wait_until(lambda: len(endless.events) > 5)
    assert call(other.base, "POST", f"/v1/responses/{endless.response_id}/cancel").status == 200
    endless.join()
    assert response_of(one.base, str(endless.response_id)) == response_of(
        other.base, str(endless.response_id)
    )
    return [str(live.response_id), turn.json["id"], *ids, str(endless.response_id)]


def request(words: int) -> dict[str, object]:
    return {"model": "demo-slow", "input": f"{words} words", "stream": True}


def kill_and_settle(releases: Releases, killed: Server, other: Server, after: float) -> list[str]:
    """Clients of a killed server continue at the other one: no saved event is lost, responses that nobody has
    seen are made again, and each response ends once."""
    readers = start_streams(killed.base, 4, words=WORDS)
    wait_until(lambda: all(len(each.events) > 2 for each in readers))
    queued = [
        respond(killed.base, model="demo-slow", input=f"{WORDS} words", background=True).json["id"]
        for _ in range(2)
    ]
    time.sleep(after)
    killed.kill()
    for reader in readers:
        reader.join()
    had = saved(releases.store, [str(each.response_id) for each in readers])
    resumed = resume_all(other.base, readers)
    for reader in resumed.values():
        reader.join()
    finals = wait_until_settled(other.base, [*resumed, *queued])
    for before in readers:
        response_id = str(before.response_id)
        whole = Reader(other.base, "GET", f"/v1/responses/{response_id}?stream=true")
        whole.join()
        check_client(before, resumed[response_id], whole, had[response_id], finals[response_id])
    assert all(finals[each]["status"] in ("completed", "failed") for each in queued)
    for each in queued:
        sent = call(other.base, "GET", f"/v1/responses/{each}?stream=true")
        assert violations(sent) == []
        assert sent.final == finals[each]
    return [*finals]


def test_s9_two_releases_side_by_side_lose_nothing_whichever_is_killed(both: Releases) -> None:
    previous = both.start("previous")
    ids = [respond(previous.base, model="demo", background=more).json["id"] for more in (False, True)]
    responses = wait_until_settled(previous.base, ids)
    _before, after = upgrade(database_url(both.store))
    assert after == REVISION
    with ThreadPoolExecutor() as threads:
        this, back = threads.map(both.start, ("this", "previous"))  # going back means starting it again
        for future in [threads.submit(use, *each) for each in ((previous, this), (this, previous))]:
            responses |= {each: response_of(this.base, each) for each in future.result()}
    kill_and_settle(both, previous, this, 0.2)
    kill_and_settle(both, this, back, 0.2)
    assert {each: response_of(back.base, each) for each in responses} == responses


def test_s7_a_key_that_either_release_changes_is_changed_at_both(both: Releases) -> None:
    both.start("previous").kill()
    upgrade(database_url(both.store))
    servers = [both.start(name, "managed_keys = true\n") for name in ("previous", "this")]

    def becomes(headers: dict[str, str], status: int, models: int) -> None:
        for server in servers:

            def is_so(base: str = server.base) -> bool:
                reply = call(base, "GET", "/v1/models", None, headers)
                return (reply.status, len(reply.json.get("data", ()))) == (status, models)

            wait_until(is_so)

    for one, other in (("previous", "this"), ("this", "previous")):
        key, line = both.keys(one, "add", "--model", "demo")
        headers, key_id = {"authorization": f"Bearer {key}"}, line.split()[0]
        becomes(headers, 200, 1)
        both.keys(other, "limit", key_id, "--model", "another")
        becomes(headers, 200, 0)
        both.keys(one, "limit", key_id, "--model", "demo")
        becomes(headers, 200, 1)
        both.keys(other, "revoke", key_id)
        becomes(headers, 401, 0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_s9_two_releases_replace_each_other_under_load(both: Releases) -> None:
    """In each round, one server of either release is killed or told to stop, and one of the other release
    starts."""
    chosen = random.Random(31)
    both.start("previous").kill()
    upgrade(database_url(both.store))
    responses: dict[str, dict[str, object]] = {}
    staying = both.start("previous")
    for number in range(ROUNDS):
        other = both.start("this" if staying.name == "previous" else "previous")
        for response_id in use(staying, other) + use(other, staying):
            responses[response_id] = response_of(other.base, response_id)
        leaving, staying = (staying, other) if number % 2 else (other, staying)
        for response_id in kill_and_settle(both, leaving, staying, chosen.uniform(0, 2)):
            responses[response_id] = response_of(staying.base, response_id)
        fresh = both.start("previous" if staying.name == "this" else "this")
        staying.process.terminate()
        staying.process.wait(60)
        staying = fresh
        assert {each: response_of(staying.base, each) for each in responses} == responses
    ended = json.dumps([each["status"] for each in responses.values()])
    print(f"{ROUNDS} rounds, {len(responses)} responses: {ended.count('completed')} completed")


def test_the_release_before_is_that_of_the_last_tag(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a tester", "-c", "user.email=tester@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    for tags in ([], ["v0.1.0"], ["other", "vague"], ["v0.2.0"]):
        git("commit", "--quiet", "--allow-empty", "--message=a change")
        for tag in tags:
            git("tag", tag)
        assert last_tag(tmp_path) == ("v0.1.0" if "v0.1.0" not in tags and tags else "")
    git("commit", "--quiet", "--allow-empty", "--message=a change")
    assert last_tag(tmp_path) == "v0.2.0"
