"""The sealed envelope: it opens to what was sealed, and nothing else is accepted as an envelope."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.seal import Sealed, Sealer, SealError, is_envelope

KEY = b"0123456789abcdef0123456789abcdef"
OTHER = b"x" * 32


def nonces(*values: bytes):
    return iter(values).__next__


def code(sealer: Sealer, text: str) -> str:
    with pytest.raises(BridgeError) as caught:
        sealer.open(text)
    assert isinstance(caught.value, SealError)
    assert caught.value.http_status == 400
    return caught.value.code


@pytest.mark.parametrize("key", [None, KEY[:16], KEY[:24], KEY], ids=["plain", "128", "192", "256"])
@given(payload=st.binary(max_size=300))
def test_opens_what_it_sealed_to_the_byte(key, payload):
    sealer = Sealer(key)
    assert sealer.open(sealer.seal(payload, "some-kind_1")) == Sealed("some-kind_1", payload)


def test_envelope_names_version_mode_and_kind():
    assert Sealer().seal(b"x", "thought").startswith("orb1.p.thought.")
    assert Sealer(KEY).seal(b"x", "thought").startswith("orb1.s.thought.")
    assert is_envelope(Sealer().seal(b"x", "thought"))
    assert not is_envelope("gAAAAAB…")


def test_sealed_payload_is_not_readable_and_the_nonce_is_fresh():
    sealer = Sealer(KEY)
    first, second = sealer.seal(b"secret words", "k"), sealer.seal(b"secret words", "k")
    assert first != second
    assert "c2VjcmV0" not in first  # base64 of "secret"


def test_an_injected_nonce_makes_it_deterministic():
    envelopes = [Sealer(KEY, nonces(b"n" * 12)).seal(b"x", "k") for _ in range(2)]
    assert envelopes[0] == envelopes[1]
    assert Sealer(KEY).open(envelopes[0]).payload == b"x"


@pytest.mark.parametrize(
    "text", ["", "hello", "gAAAAABo", "orb", "orb.p.k.AA", "Orb1.p.k.AA", " orb1.p.k.AA"]
)
def test_a_text_of_someone_else_is_foreign(text):
    assert code(Sealer(), text) == "bridge.seal.foreign"
    assert code(Sealer(KEY), text) == "bridge.seal.foreign"


def test_another_version_is_foreign_and_named():
    with pytest.raises(SealError, match="version orb2"):
        Sealer().open("orb2.p.k.AAAA")
    assert code(Sealer(), "orb2.p.k.AAAA") == "bridge.seal.foreign"


def test_a_plain_envelope_is_foreign_where_sealed_ones_are_made():
    # else a client could put words into the history's mouth
    assert code(Sealer(KEY), Sealer().seal(b"x", "k")) == "bridge.seal.foreign"


def test_a_sealed_envelope_is_foreign_where_there_is_no_key():
    assert code(Sealer(), Sealer(KEY).seal(b"x", "k")) == "bridge.seal.foreign"


def test_another_key_breaks_it():
    assert code(Sealer(OTHER), Sealer(KEY).seal(b"x", "k")) == "bridge.seal.broken"


def test_other_keys_open_and_do_not_seal():
    sealer = Sealer(OTHER, others=[b"2" * 16, KEY])
    assert sealer.open(Sealer(KEY).seal(b"x", "k")).payload == b"x"
    assert Sealer(OTHER).open(sealer.seal(b"x", "k")).payload == b"x"
    assert code(sealer, Sealer(b"3" * 32).seal(b"x", "k")) == "bridge.seal.broken"
    with pytest.raises(BridgeError, match=r"bridge\.seal\.key"):
        Sealer(KEY, others=[b"short"])


@pytest.mark.parametrize("key", [None, KEY])
def test_every_altered_character_is_noticed(key):
    sealer = Sealer(key, nonces(b"n" * 12))
    envelope = sealer.seal(b"payload", "kind")
    for index in range(len("orb1."), len(envelope)):
        other = "B" if envelope[index] == "A" else "A"
        altered = envelope[:index] + other + envelope[index + 1 :]
        assert code(sealer, altered) in ("bridge.seal.broken", "bridge.seal.foreign"), index


@pytest.mark.parametrize("key", [None, KEY])
def test_every_cut_is_noticed(key):
    sealer = Sealer(key)
    envelope = sealer.seal(b"payload", "kind")
    for length in range(len(envelope)):
        assert code(sealer, envelope[:length]).startswith("bridge.seal.")


@pytest.mark.parametrize(
    "text",
    [
        "orb1.p.k",
        "orb1.x.k.AAAA",
        "orb1.p.K.AAAA",
        "orb1.p.k.A",
        "orb1.p.k.AA=A",
        "orb1.p.k.AB==",
        "orb1.p.k.ä",
        "orb1.s.k.AAAA",
    ],
)
def test_an_envelope_that_is_not_whole_is_broken(text):
    sealer = Sealer(KEY) if ".s." in text else Sealer()
    assert code(sealer, text) == "bridge.seal.broken"


def test_the_kind_is_part_of_what_is_sealed():
    for sealer in (Sealer(), Sealer(KEY)):
        moved = sealer.seal(b"x", "aaaa").replace(".aaaa.", ".bbbb.")
        assert code(sealer, moved) == "bridge.seal.broken"


@pytest.mark.parametrize("kind", ["", "A", "a.b", "a" * 41, "ä"])
def test_a_kind_is_a_short_plain_word(kind):
    with pytest.raises(BridgeError, match=r"bridge\.seal\.kind"):
        Sealer().seal(b"", kind)


@pytest.mark.parametrize("size", [0, 15, 17, 33])
def test_a_key_of_another_size_is_refused(size):
    with pytest.raises(BridgeError, match=r"bridge\.seal\.key"):
        Sealer(b"k" * size)


@pytest.mark.parametrize(("key", "mode"), [(None, "po"), (KEY, "so")])
def test_a_bound_envelope_opens_for_its_owner_alone(key, mode):
    whole = Sealer(key)
    envelope = whole.bound("alice").seal(b"secret", "k")
    assert envelope.startswith(f"orb1.{mode}.k.")
    assert "alice" not in envelope
    assert whole.bound("alice").open(envelope) == Sealed("k", b"secret")
    assert code(whole.bound("bob"), envelope) == "bridge.seal.broken"
    assert code(whole.bound("bob").bound("alicex"), envelope) == "bridge.seal.broken"
    assert code(whole, envelope) == "bridge.seal.owner"
    assert code(whole.bound("alice"), whole.seal(b"x", "k")) == "bridge.seal.owner"


def test_nobody_s_envelopes_are_those_of_a_sealer_that_is_not_bound():
    nobody = Sealer(KEY, nonces(b"n" * 12)).bound("")
    assert nobody.seal(b"x", "k") == Sealer(KEY, nonces(b"n" * 12)).seal(b"x", "k")
    assert Sealer(KEY).bound("alice").bound("").open(Sealer(KEY).seal(b"x", "k")).payload == b"x"


@pytest.mark.parametrize("key", [None, KEY])
def test_taking_the_owner_s_sign_away_or_putting_it_on_opens_nothing(key):
    whole, alice = Sealer(key), Sealer(key).bound("alice")
    bare = alice.seal(b"x", "k").replace("o.k.", ".k.")
    assert code(whole, bare) == "bridge.seal.broken"
    signed = whole.seal(b"x", "k").replace(".k.", "o.k.")
    assert code(alice, signed) == "bridge.seal.broken"
    # the kind and the owner are apart: no owner's name reads as part of a kind
    assert code(whole.bound("b.alice"), whole.bound("alice").seal(b"x", "b")) == "bridge.seal.broken"
