"""Failed connections to PostgreSQL by its message: refusals last, outages pass."""

import pytest
from psycopg import OperationalError as PsycopgError
from sqlalchemy.exc import OperationalError

from openresponses_server.store.base import StoreError
from openresponses_server.store.sql.failures import store_error

_TO = 'connection failed: connection to server at "127.0.0.1", port 5432 failed:'


def sent(words: str) -> StoreError:
    return store_error(OperationalError("SELECT", {}, PsycopgError(words)))


@pytest.mark.parametrize(
    "words",
    [
        'password authentication failed for user "me"',
        'role "me" does not exist',
        'database "x" does not exist',
        'no pg_hba.conf entry for host "10.0.0.1", user "me", database "x", no encryption',
        'role "me" is not permitted to log in',
        'permission denied for database "x"',
    ],
)
def test_refusal_lasts_and_is_reported_to_the_operator_alone(words: str) -> None:
    error = sent(f"{_TO} FATAL:  {words}")
    assert (error.code, error.permanent, error.details) == (StoreError.UNUSABLE, True, words)
    assert error.message == "The session store refuses access."


@pytest.mark.parametrize(
    ("words", "details"),
    [
        (f"{_TO} FATAL:  the database system is starting up", "the database system is starting up"),
        (f"{_TO} FATAL:  sorry, too many clients already", "sorry, too many clients already"),
        (f"{_TO} FATAL:  Rolle »me« existiert nicht", "Rolle »me« existiert nicht"),
        (f"{_TO} Connection refused\n\tIs the server running on that host?", "Connection refused"),
        ("failed to resolve host 'x.invalid': [Errno -2] Name or service not known", "its host is not known"),
        ("connection timeout expired", ""),
    ],
)
def test_outage_may_pass_and_has_its_reason(words: str, details: str) -> None:
    error = sent(words)
    assert (error.code, error.permanent, error.details) == (StoreError.UNAVAILABLE, False, details)
    assert error.message == "The session store can't be reached."


def test_one_host_of_several_that_may_come_back_is_waited_for() -> None:
    both = f'- host: a: {_TO} FATAL:  role "me" does not exist\n- host: b: {_TO} FATAL:  is starting up'
    assert not sent(both).permanent


def test_password_that_is_asked_for_and_not_given() -> None:
    error = sent(f"{_TO} fe_sendauth: no password supplied")
    assert (error.permanent, error.details) == (True, "a password is needed, and none was given")
