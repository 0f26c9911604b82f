"""An upstream that answers a request on a WebSocket before it has read all of it, and then neither reads on
nor closes: the answer ends the sending, and the connection, on which half a request is, gets no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from openresponses_bridge.protocol.codec import encode
from openresponses_server.http.flow import BodyReader
from openresponses_server.upstreams.base import HttpClient, HttpResponse, SocketCounts
from tests.support.listening import listening
from tests.support.socket_client import body_of, client, text_of
from tests.support.socket_network import ADDRESS, HttpAsked, Network, Networks, handshake_answer
from tests.support.socket_upstream import error_message, events_of, text_frame

LARGE = body_of("x" * 200_000)
NAMED = body_of("x" * 200_000, prompt_cache_key="one")
EVENTS = events_of(["Hello"], "m", "resp_1")
SKIPPED = text_frame(b'{"type":"codex.rate_limits"}').data
KEEPALIVE = text_frame(b'{"type":"keepalive"}').data
REFUSAL = text_frame(error_message(413, "too_large")).data
EXPIRED = text_frame(error_message(400, "websocket_connection_limit_reached")).data
NOT_FOUND = text_frame(error_message(400, "previous_response_not_found")).data
WHOLE = b"".join(text_frame(encode(event)).data for event in EVENTS)
CLOSING = Frame(Opcode.CLOSE, b"\x03\xf1").serialize(mask=False)  # 1009, too large
ANSWERS = {
    "a refusal": REFUSAL,
    "a refusal of the connection": EXPIRED,
    "an answer": WHOLE,
    "its beginning": WHOLE[:500],
    "the end": CLOSING,
    "nothing": b"",
}
ITERATIONS = range(8)


def on_networks(use: Callable[[HttpClient, Networks], Awaitable[None]]) -> None:
    async def run() -> None:
        networks = Networks()
        networks.are_full = True
        requests = networks.client()
        try:
            async with asyncio.timeout(30):
                await use(requests, networks)
        finally:
            await requests.close()

    asyncio.run(run())


def ask(requests: HttpClient, data: bytes = LARGE) -> asyncio.Task[HttpResponse]:
    return asyncio.ensure_future(requests.request("POST", f"{ADDRESS}/responses", headers={}, data=data))


async def half_sent(networks: Networks, number: int = 0) -> Network:
    """Wait until a part of a request was sent on the network of this number."""
    while len(networks.networks) <= number or not networks.networks[number].written:
        await asyncio.sleep(0)
    assert networks.networks[number].reads
    return networks.networks[number]


async def iterate(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def body(answer: HttpResponse) -> str:
    return (await BodyReader(answer.content).collect(10**9)).decode()


async def is_refused(asked: asyncio.Task[HttpResponse], status: int = 413) -> None:
    answer = await asked
    assert answer.status == status
    assert "It is " in await body(answer)


async def has_another(requests: HttpClient, networks: Networks) -> None:
    """The next request gets a connection of its own."""
    number = len(networks.networks)
    networks.are_full = False
    task = ask(requests, body_of("Hello"))
    (await half_sent(networks, number)).connection.data_received(WHOLE)
    assert text_of(await body(await task)) == "Hello"


@pytest.mark.parametrize("iterations", ITERATIONS)
@pytest.mark.parametrize("before", [0, 1, 1000])
def test_a_refusal_ends_the_sending(before: int, iterations: int) -> None:
    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        sent = len(network.written)
        await iterate(iterations)
        network.connection.data_received(SKIPPED * before + REFUSAL)
        await is_refused(task)
        assert network.is_gone
        assert len(network.written) == sent < len(LARGE)
        await has_another(requests, networks)

    on_networks(use)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_refusal_that_comes_in_pieces_ends_the_sending(size: int) -> None:
    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        for start in range(0, len(REFUSAL), size):
            assert not task.done()
            network.connection.data_received(REFUSAL[start : start + size])
            await asyncio.sleep(0)
        await is_refused(task)
        assert network.is_gone

    on_networks(use)


BEHIND = {
    "another": REFUSAL,
    "an answer": WHOLE,
    "its end": CLOSING,
    "a flood": KEEPALIVE * 1000,
    "no frame": b"\xff" * 100,
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_follows_a_refusal_means_nothing(name: str) -> None:
    behind = BEHIND[name]

    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        network.connection.data_received(REFUSAL + behind)
        network.connection.data_received(behind)
        await is_refused(task)
        assert network.is_gone
        await has_another(requests, networks)

    on_networks(use)


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_a_whole_answer_ends_the_sending(iterations: int) -> None:
    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        network.connection.data_received(WHOLE[:500])
        await iterate(iterations)
        assert not task.done()
        network.connection.data_received(WHOLE[500:])
        assert text_of(await body(await task)) == "Hello"
        assert network.is_gone
        await has_another(requests, networks)

    on_networks(use)


def test_the_beginning_of_an_answer_does_not_end_the_sending() -> None:
    """A server may send events only to keep the connection alive."""

    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        received = b""
        while network.written:
            network.connection.data_received(KEEPALIVE)
            await iterate(3)
            assert not network.is_gone
            received += await drained(network, most=1)
        network.connection.data_received(WHOLE)
        assert text_of(await body(await task)) == "Hello"
        assert not network.is_gone
        (frame,) = frames(received)
        assert json.loads(frame.data)["input"] == json.loads(LARGE)["input"]

    on_networks(use)


@pytest.mark.parametrize("iterations", ITERATIONS)
def test_an_answer_to_a_request_that_has_just_left_frees_the_connection(iterations: int) -> None:
    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests, NAMED)
        network = await half_sent(networks)
        await written_whole(network)
        network.drain()
        await iterate(iterations)
        network.connection.data_received(WHOLE)
        assert text_of(await body(await task)) == "Hello"
        assert not network.is_gone
        await iterate(len(ITERATIONS))
        again = ask(requests, NAMED)
        while not network.written:
            await asyncio.sleep(0)
        network.connection.data_received(REFUSAL)
        await is_refused(again)
        assert network.is_gone
        assert len(networks.networks) == 1

    on_networks(use)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_refusal_before_the_last_bytes_have_left_closes_the_connection(left: int) -> None:
    """All is written, and the server has not taken it."""

    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        await written_whole(network)
        await iterate(left)
        network.connection.data_received(REFUSAL)
        await is_refused(task)
        assert network.is_gone

    on_networks(use)


def test_an_early_answer_of_an_expired_connection_is_asked_for_on_another() -> None:
    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        network.connection.data_received(EXPIRED)
        other = await half_sent(networks, 1)
        assert network.is_gone
        other.connection.data_received(REFUSAL)
        await is_refused(task)
        assert other.is_gone

    on_networks(use)


def test_a_continuation_that_is_refused_early_goes_over_http() -> None:
    """The whole request cannot follow the half one."""
    first = {"role": "user", "content": "Hello"}
    second = {"role": "user", "content": "x" * 200_000}
    (output_item,) = json.loads(encode(EVENTS[-1]))["response"]["output"]

    def asking(*items: object) -> bytes:
        return json.dumps({"model": "m", "stream": True, "input": items}).encode()

    async def use(requests: HttpClient, networks: Networks) -> None:
        networks.are_full = False
        task = ask(requests, asking(first))
        network = await half_sent(networks)
        network.connection.data_received(WHOLE)
        assert text_of(await body(await task)) == "Hello"
        network.written.clear()
        network.is_full = True
        again = ask(requests, asking(first, output_item, second))
        await half_sent(networks)
        assert b"previous_response_id" in unmasked(network.written)
        network.connection.data_received(NOT_FOUND)
        with pytest.raises(HttpAsked):
            await again
        assert network.is_gone

    on_networks(use)


@pytest.mark.parametrize("iterations", ITERATIONS)
@pytest.mark.parametrize("how", ["a closing frame", "the end of its data"])
def test_a_server_that_closes_early_and_reads_no_more_is_lost(how: str, iterations: int) -> None:
    """Closing the connection waits for no reader. Nothing of an answer was received, so that the request
    goes over HTTP."""

    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        await iterate(iterations)
        if how == "a closing frame":
            network.connection.data_received(CLOSING)
        else:
            network.connection.eof_received()
            network.close()
        with pytest.raises(HttpAsked):
            await task
        assert network.is_gone

    on_networks(use)


@pytest.mark.parametrize("iterations", ITERATIONS)
@pytest.mark.parametrize("name", ANSWERS)
def test_a_request_that_is_cancelled_about_the_time_of_an_early_answer(name: str, iterations: int) -> None:
    answer = ANSWERS[name]

    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        if answer:
            network.connection.data_received(answer)
        await iterate(iterations)
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled() and task.exception() is None:
            assert answer in (REFUSAL, WHOLE)
        assert network.is_gone
        await has_another(requests, networks)

    on_networks(use)


def test_pings_while_a_request_is_sent_are_answered_behind_it_and_once() -> None:
    """However many there are, and though the server reads nothing: only the last is kept."""

    async def use(requests: HttpClient, networks: Networks) -> None:
        task = ask(requests)
        network = await half_sent(networks)
        sent = len(network.written)
        for number in range(2000):
            network.connection.data_received(ping(b"%d" % number))
            if number % 50 == 0:
                await asyncio.sleep(0)
        while not network.reads:
            await asyncio.sleep(0)
        assert len(network.written) == sent
        assert len(network.connection._unsent) == 1
        received = await drained(network)
        message, pong = frames(received)
        assert json.loads(message.data)["input"] == json.loads(LARGE)["input"]
        assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"1999")
        network.connection.data_received(ping(b"later") + WHOLE)
        assert text_of(await body(await task)) == "Hello"
        assert [bytes(each.data) for each in frames(await drained(network))] == [b"later"]

    on_networks(use)


async def drained(network: Network, most: int = 100) -> bytes:
    """Let the server read what is sent, up to so many times; return it."""
    received = b""
    for _ in range(most):
        received += network.drain()
        await iterate(len(ITERATIONS))
        if not network.written:
            break
    return received


async def written_whole(network: Network) -> None:
    """Let the server read until all of a large request is written, of which some waits for it."""
    count = 0
    while count + len(network.written) < 200_000:
        count += len(network.drain())
        await iterate(len(ITERATIONS))
    assert network.connection._write_resumed is not None


def frames(data: bytes) -> list[Frame]:
    """The frames of a client in these bytes, as a server reads them."""
    server = ServerProtocol(state=OPEN, max_size=None)
    server.receive_data(data)
    received = [each for each in server.events_received() if isinstance(each, Frame)]
    assert server.parser_exc is None
    return received


def unmasked(data: bytes) -> bytes:
    """The content of a client's frame of which only the beginning is here."""
    start = 10 if data[1] & 0x7F == 127 else 4
    mask, masked = data[start : start + 4], data[start + 4 :]
    return bytes(byte ^ mask[number % 4] for number, byte in enumerate(masked))


def ping(data: bytes) -> bytes:
    return text_frame(data, opcode=Opcode.PING).data


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_server_that_reads_no_further_on_a_real_connection(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The request is larger than what the system keeps of it."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(handshake_answer(await reader.readuntil(b"\r\n\r\n")))
        await reader.readexactly(1000)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(REFUSAL)
        await asyncio.Event().wait()

    async def run() -> None:
        counts = SocketCounts()
        requests = client(counts)
        async with listening(refuse) as port:
            url = f"http://127.0.0.1:{port}/responses"
            huge = body_of("x" * 40_000_000)
            await is_refused(asyncio.ensure_future(requests.request("POST", url, headers={}, data=huge)))
            assert counts.open == 0
            await requests.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
