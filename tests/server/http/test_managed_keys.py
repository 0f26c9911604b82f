"""What managed keys give access to, without a store (law S7)."""

import pytest

from openresponses_server.errors import HttpError
from openresponses_server.http.access import ACCESS, check_access, may_use
from openresponses_server.http.auth import Keys
from openresponses_server.http.managed_keys import KeyBook, ManagedKey, hash_of, new_key, owner_of
from openresponses_server.limits.owners import DEFAULT, KeyLimits, OwnerLimits
from openresponses_server.settings.files import hashed


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(key: str, key_id: str = "key_1", owner: str = "alice", **fields: object) -> ManagedKey:
    return ManagedKey(key_id, hash_of(key), key[-4:], "n", owner, 1.0, **fields)  # type: ignore[arg-type]


def test_a_key_has_256_bits_and_is_kept_as_its_hash_and_last_four() -> None:
    key, key_id, kept = new_key()
    assert key.startswith("orb_")
    assert len(key) == len("orb_") + 43
    assert kept == hash_of(key)
    assert key not in key_id + kept
    assert new_key()[0] != key


def test_unknown_expired_and_revoked_keys_are_refused_alike() -> None:
    clock, book = Clock(), KeyBook(OwnerLimits())
    book._clock = clock
    good, expiring, revoked = (f"orb_{number}{'x' * 42}" for number in range(3))
    book.replace(
        [
            made(good),
            made(expiring, "key_2", expires_at=1001.0),
            made(revoked, "key_3", revoked_at=999.0),
        ]
    )
    keys = Keys([], managed=book)
    accepted = [keys.owner({"x-api-key": key}) for key in (good, expiring)]
    assert accepted == [owner_of("alice")] * 2
    clock.now = 1001.0
    said = set()
    for key in (expiring, revoked, "orb_unknown", "another", hash_of(good), hashed(good)):
        with pytest.raises(HttpError) as caught:
            keys.owner({"x-api-key": key})
        said.add((caught.value.http_status, caught.value.message, caught.value.code))
    assert len(said) == 1
    assert keys.owner({"authorization": f"Bearer {good}"}) == owner_of("alice")


def test_they_are_beside_those_of_the_settings_and_no_owner_is_the_same() -> None:
    book = KeyBook(OwnerLimits())
    key = new_key()[0]
    book.replace([made(key)])
    keys = Keys([hashed("configured")], managed=book)
    configured = keys.owner({"x-api-key": "configured"})
    managed = keys.owner({"x-api-key": key})
    assert configured != managed
    assert len(configured) == len(managed)
    assert not set(managed) <= set("0123456789abcdef"), "as those of the settings are"


def test_without_the_setting_they_are_not_asked_for_and_before_they_are_known_it_is_a_503() -> None:
    assert Keys([]).owner({"x-api-key": "orb_x"}) == ""
    keys = Keys([hashed("configured")], managed=KeyBook(OwnerLimits()))
    assert keys.owner({"x-api-key": "configured"})
    with pytest.raises(HttpError) as caught:
        keys.owner({"x-api-key": new_key()[0]})
    assert (caught.value.http_status, caught.value.code) == (503, "keys_unavailable")
    keys.managed.replace([])  # type: ignore[union-attr]
    for headers in ({}, {"x-api-key": "x"}):
        with pytest.raises(HttpError) as caught:
            keys.owner(headers)
        assert caught.value.http_status == 401


def test_an_owner_has_the_lowest_limits_of_its_live_keys() -> None:
    limits = OwnerLimits()
    book = KeyBook(limits)
    first = made("orb_1", "key_1", limits=KeyLimits(requests_per_minute=5, concurrent=9))
    second = made("orb_2", "key_2", limits=KeyLimits(requests_per_minute=3))
    book.replace([first, second, made("orb_3", "key_3", owner="bob")])
    assert limits.of(owner_of("alice")) == KeyLimits(requests_per_minute=3, concurrent=9)
    assert limits.of(owner_of("bob")) == DEFAULT
    book.replace([first, made("orb_2", "key_2", limits=second.limits, revoked_at=1.0)])
    assert limits.of(owner_of("alice")).requests_per_minute == 5
    for number in range(10_050):
        limits.claim(f"o{number}", KeyLimits(concurrent=1))
    assert (limits.of("o0"), limits.of("o10049").concurrent) == (DEFAULT, 1)
    limits.claim("o10049", DEFAULT)
    assert limits.of("o10049") == DEFAULT


def test_models_are_checked_by_the_name_that_the_client_gives() -> None:
    book = KeyBook(OwnerLimits())
    book.replace([made("orb_1", models=("gpt-4o-*", "fast"))])
    access = book.access("orb_1")
    token = ACCESS.set(access)
    try:
        for name in ("gpt-4o-mini", "fast"):
            check_access(name)
            assert may_use(name)
        for name in ("gpt-4o", "openai/gpt-4o-mini", "FAST", "", "xgpt-4o-mini"):
            with pytest.raises(HttpError) as caught:
                check_access(name)
            assert (caught.value.http_status, caught.value.code) == (403, "model_not_allowed")
            assert not may_use(name)
        book.replace([made("orb_1", models=("other",))])
        with pytest.raises(HttpError, match="may not be used"):
            check_access("fast")
        book.replace([])
        with pytest.raises(HttpError) as caught:
            check_access("other")
        assert caught.value.http_status == 401
    finally:
        ACCESS.reset(token)
    check_access("anything")
