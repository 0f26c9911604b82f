"""The routes of sessions: bounded, and of one owner each."""

import itertools

from openresponses_server.upstreams.routing.routes import Affinity, session_name
from openresponses_server.upstreams.routing.states import Route


def test_the_last_sessions_are_known() -> None:
    affinity, route = Affinity(most=100), Route("a", 0, "m")
    for number in range(5000):
        affinity.put(str(number), route)
    assert len(affinity) == 100
    assert affinity.get("4999") == route
    assert affinity.get("0") is None


def test_sessions_of_two_owners_never_have_one_name() -> None:
    texts = ["", "a", "b", "\0", "a\0b", "ab"]
    names = [session_name(*each) for each in itertools.product(texts, ["session"], texts)]
    assert len(set(names)) == len(names)
