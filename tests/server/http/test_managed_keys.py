"""What managed keys give access to, without a store (law S7)."""

import random

import pytest

from openresponses_server.errors import HttpError
from openresponses_server.http.access import ACCESS, check_access, may_use
from openresponses_server.http.auth import Keys
from openresponses_server.http.managed_keys import KeyBook, ManagedKey, hash_of, new_key, owner_of
from openresponses_server.limits.owners import DEFAULT, KeyLimits, OwnerLimits
from openresponses_server.settings.files import hashed
from tests.support.clocks import Clock


def made(key: str, key_id: str = "key_1", owner: str = "alice", **fields: object) -> ManagedKey:
    return ManagedKey(key_id, hash_of(key), key[-4:], "n", owner, 1.0, **fields)  # type: ignore[arg-type]


def test_a_key_has_256_bits_and_is_kept_as_its_hash_and_last_four() -> None:
    key, key_id, digest = new_key()
    assert key.startswith("orb_")
    assert len(key) == len("orb_") + 43
    assert digest == hash_of(key)
    assert key not in key_id + digest
    assert new_key()[0] != key


def test_unknown_expired_and_revoked_keys_are_refused_alike() -> None:
    clock, book = Clock(1000.0), KeyBook(OwnerLimits())
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
    refusals = set()
    for key in (expiring, revoked, "orb_unknown", "another", hash_of(good), hashed(good)):
        with pytest.raises(HttpError) as caught:
            keys.owner({"x-api-key": key})
        refusals.add((caught.value.http_status, caught.value.message, caught.value.code))
    assert len(refusals) == 1
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


def test_limits_of_a_key_bind_its_owner_until_it_expires_whichever_way_the_clock_is_set() -> None:
    clock, limits = Clock(1000.0), OwnerLimits()
    book, alice = KeyBook(limits, clock), owner_of("alice")
    book.replace(
        [
            made("orb_1", "key_1", limits=KeyLimits(concurrent=9)),
            made("orb_2", "key_2", limits=KeyLimits(concurrent=2), expires_at=1005.0),
            made("orb_3", "key_3", limits=KeyLimits(concurrent=1), expires_at=1002.0),
            made("orb_4", "key_4", "bob", limits=KeyLimits(concurrent=4), expires_at=1002.0),
        ]
    )
    for now, most, of_bob in ((1001, 1, 4), (1002, 2, None), (1007, 9, None), (1004, 2, None), (1000, 1, 4)):
        clock.now = now
        book.expire()
        assert limits.of(alice).concurrent == most
        assert limits.of(owner_of("bob")).concurrent == of_bob
        assert (book.access("orb_3") is not None) == (now < 1002)
    clock.now = 1003.0
    book.change({"key_2": made("orb_2", "key_2", limits=KeyLimits(concurrent=2), expires_at=1004.0)})
    assert limits.of(alice).concurrent == 2
    clock.now = 1004.5
    book.expire()
    assert (limits.of(alice).concurrent, book.access("orb_2")) == (9, None)


def test_keys_one_after_the_other_are_as_all_at_once() -> None:
    """Whatever becomes of single keys, requests meet what they would after reading all."""
    chosen, clock, limits = random.Random(31), Clock(1000.0), OwnerLimits()
    book, table = KeyBook(limits, clock), dict[str, ManagedKey]()
    ids = [f"key_{number}" for number in range(12)]
    for _ in range(500):
        clock.now += chosen.choice([0.0, 0.0, 1.0, 5.0, -5.0])
        changes: dict[str, ManagedKey | None] = {}
        for key_id in chosen.sample(ids, chosen.randrange(4)):
            table.pop(key_id, None)
            changes[key_id] = None
            if chosen.random() < 0.8:
                changes[key_id] = table[key_id] = made(
                    f"orb_{key_id}",
                    key_id,
                    chosen.choice("ab"),
                    limits=KeyLimits(concurrent=chosen.randrange(1, 9)),
                    expires_at=chosen.choice([None, clock.now + chosen.randrange(-9, 9)]),
                    revoked_at=chosen.choice([None, None, clock.now]),
                )
        book.change(changes)
        of_all = OwnerLimits()
        fresh = KeyBook(of_all, clock)
        fresh.replace(table.values())
        for owner in map(owner_of, "ab"):
            assert limits.of(owner) == of_all.of(owner)
        for key_id in ids:
            one, other = (each.access(f"orb_{key_id}") for each in (book, fresh))
            assert (one and one.owner) == (other and other.owner)


def test_a_key_under_another_id_is_the_later_one() -> None:
    """As when one that was swept by a process which says nothing of it was imported again."""
    book = KeyBook(OwnerLimits())
    book.replace([made("orb_1", "key_1")])
    book.change({"key_2": made("orb_1", "key_2", "bob")})
    book.replace([made("orb_1", "key_2", "bob")])
    access = book.access("orb_1")
    assert access is not None
    assert access.owner == owner_of("bob")


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
