"""Connections to Redis that turn out to be closed at the next write."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from openresponses_server.redis_clients import redis_client
from tests.support.services import redis_server


async def _ping(connection: AbstractConnection) -> None:
    await connection.send_command("PING")
    await connection.read_response()


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("connections", [None, 1], ids=["any number", "one"])
def test_a_connection_that_was_closed_meanwhile_is_an_error_of_redis(
    loop: Callable[[], asyncio.AbstractEventLoop], connections: int | None
) -> None:
    """And not one of this program, as which it would be answered with status 500."""

    async def lose_one(url: str) -> None:
        client = redis_client(url, connections=connections)
        connection = await client.connection_pool.get_connection()
        connection._writer.transport.abort()
        await asyncio.sleep(0.01)  # in which it is closed
        with pytest.raises(RedisConnectionError):
            await _ping(connection)
        await client.connection_pool.release(connection)
        assert await client.ping() is True
        await client.aclose()

    with redis_server() as url, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(lose_one(url))


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_call_is_cancelled_at_each_of_its_steps(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Also when the command has just been sent: a reader that was cancelled then would go on reading."""

    async def cancel_at(url: str) -> int:
        client = redis_client(url, connections=1, socket_timeout=5.0)
        await client.ping()
        cancelled = 0
        for steps in range(40):
            ping = asyncio.ensure_future(client.ping())
            for _ in range(steps):
                await asyncio.sleep(0)
            if ping.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await ping
                cancelled += 1
            assert await client.ping() is True
        await client.aclose()
        return cancelled

    with redis_server() as url, asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(cancel_at(url)) > 0
