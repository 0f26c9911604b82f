"""A WebSocket that has ended, or on which a request is still being sent, gets no other request, however
little time has passed since; and what was received on it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from openresponses_bridge.protocol.codec import encode
from openresponses_server.http.client.connection import request_target_of
from openresponses_server.http.client.failures import ConnectionLost
from openresponses_server.http.client.socket import SocketConnection, SocketLost
from openresponses_server.http.flow import BodyReader
from openresponses_server.upstreams.base import HttpClient, HttpResponse
from tests.support.socket_client import body_of, text_of
from tests.support.socket_network import ADDRESS, HttpAsked, Network, Networks, open_connection
from tests.support.socket_upstream import error_message, events_of, text_frame

SMALL, LARGE = body_of("Hello"), body_of("x" * 200_000)
EVENTS = events_of(["Hello"], "m", "resp_1")
MESSAGE = text_frame(b'{"type":"keepalive"}').data


def on_networks(use: Callable[[HttpClient, Networks], Awaitable[None]]) -> None:
    async def run() -> None:
        networks = Networks()
        requests = networks.client()
        try:
            async with asyncio.timeout(60):
                await use(requests, networks)
        finally:
            await requests.close()

    asyncio.run(run())


def ask(requests: HttpClient, data: bytes) -> asyncio.Task[HttpResponse]:
    return asyncio.ensure_future(requests.request("POST", f"{ADDRESS}/responses", headers={}, data=data))


async def written(networks: Networks, number: int = 0) -> Network:
    """Wait until something was sent on the network of this number."""
    while len(networks.networks) <= number or not networks.networks[number].written:
        await asyncio.sleep(0)
    return networks.networks[number]


def whole_answer() -> bytes:
    return b"".join(text_frame(encode(event)).data for event in EVENTS)


async def body(answer: HttpResponse) -> str:
    return (await BodyReader(answer.content).collect(10**9)).decode()


@pytest.mark.parametrize("unparsed", [0, 1, 1000])
def test_a_lost_connection_can_send_nothing(unparsed: int) -> None:
    """Not even before its reader knows of its end, who first gets what had arrived."""

    async def run() -> None:
        connection, network = await open_connection(64 * 1024)
        messages: list[bytes] = []
        errors: list[OSError] = []
        connection.on_message, connection.on_end = messages.append, errors.append
        connection.data_received(MESSAGE * unparsed)
        network.abort()
        assert errors == []
        assert not connection.is_open
        with pytest.raises(SocketLost):
            await connection.send(b"{}")
        while not errors:
            await asyncio.sleep(0)
        assert len(messages) == unparsed

    asyncio.run(run())


def test_a_connection_that_is_lost_before_its_handshake_sends_none() -> None:
    async def run() -> None:
        connection = SocketConnection(request_target_of(f"{ADDRESS}/responses"), 64 * 1024)
        network = Network(connection)
        connection.connection_made(network)
        network.abort()
        with pytest.raises(SocketLost):
            await connection.open({})

    asyncio.run(run())


@pytest.mark.parametrize("iterations", range(8))
@pytest.mark.parametrize("unparsed", [0, 1, 1000])
def test_a_request_about_the_time_of_the_end_gets_another_connection(unparsed: int, iterations: int) -> None:
    async def use(requests: HttpClient, networks: Networks) -> None:
        first = ask(requests, SMALL)
        network = await written(networks)
        network.connection.data_received(whole_answer())
        assert text_of(await body(await first)) == "Hello"
        network.connection.data_received(MESSAGE * unparsed)
        second = ask(requests, SMALL)
        for _ in range(iterations):
            await asyncio.sleep(0)
        network.abort()
        (await written(networks, 1)).connection.data_received(whole_answer())
        assert text_of(await body(await second)) == "Hello"

    on_networks(use)


def test_an_early_refusal_counts_although_its_request_is_not_sent_whole() -> None:
    """An upstream that refuses a request, and closes, before it has read all of it."""

    async def use(requests: HttpClient, networks: Networks) -> None:
        networks.are_full = True
        task = ask(requests, LARGE)
        network = await written(networks)
        assert len(network.written) < len(LARGE)
        network.connection.data_received(text_frame(error_message(413, "too_large")).data)
        network.abort()
        answer = await task
        assert answer.status == 413
        assert "It is too_large." in await body(answer)

    on_networks(use)


def test_a_connection_that_still_sends_gets_no_other_request() -> None:
    """Its frames would be within those of the first."""

    async def use(requests: HttpClient, networks: Networks) -> None:
        networks.are_full = True
        first = ask(requests, LARGE)
        await written(networks)
        networks.are_full = False
        second = ask(requests, SMALL)
        other = await written(networks, 1)
        other.connection.data_received(whole_answer())
        assert text_of(await body(await second)) == "Hello"
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    on_networks(use)


def test_a_request_goes_over_http_when_its_connection_is_lost_while_it_is_sent() -> None:
    async def use(requests: HttpClient, networks: Networks) -> None:
        networks.are_full = True
        task = ask(requests, LARGE)
        (await written(networks)).abort()
        with pytest.raises(HttpAsked):
            await task

    on_networks(use)


def test_a_request_is_made_once_when_its_answer_began_while_it_was_sent() -> None:
    async def use(requests: HttpClient, networks: Networks) -> None:
        networks.are_full = True
        task = ask(requests, LARGE)
        network = await written(networks)
        network.connection.data_received(text_frame(encode(EVENTS[0])).data)
        network.abort()
        answer = await task
        with pytest.raises(ConnectionLost, match="within its answer"):
            await body(answer)

    on_networks(use)
