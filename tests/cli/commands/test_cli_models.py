"""`models sync`: a dump of models.dev becomes the operator's file of models, which the server reads."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from openresponses_bridge.seal import Sealer
from openresponses_cli.commands.cli import main
from openresponses_server.settings import (
    Price,
    PriceTier,
    SettingsError,
    load_settings,
    of_worker,
    to_workers,
)
from openresponses_server.upstreams import catalog
from openresponses_server.upstreams.catalog import (
    Catalog,
    FiledModel,
    capabilities_of,
    read_models,
    written_models,
)
from openresponses_server.upstreams.routing.models import build_router

KIMI: dict[str, Any] = {
    "id": "kimi-k9",
    "tool_call": True,
    "reasoning": True,
    "reasoning_options": [{"type": "toggle"}, {"type": "effort", "values": ["high", "low", None, "default"]}],
    "modalities": {"input": ["text", "image"], "output": ["text"]},
    "limit": {"context": 300_000, "input": 250_000, "output": 50_000},
}
KNOWN = FiledModel(
    300_000, 250_000, 50_000, True, images=True, reasoning=True, efforts=["none", "low", "high"]
)


def dump(models: dict[str, Any], provider: str = "moonshotai", **others: Any) -> dict[str, Any]:
    return {provider: {"id": provider, "name": "N", "models": models}, **others}


def sync(folder: Path, given: Any, *flags: str) -> Result:
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    (folder / "api.json").write_bytes(data)
    into = str(folder / "models.toml")
    return CliRunner().invoke(main, ["models", "sync", str(folder / "api.json"), "--into", into, *flags])


def test_what_a_dump_says_is_written_and_read(tmp_path: Path) -> None:
    result = sync(tmp_path, dump({"kimi-k9": KIMI}))
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == (
        "+ kimi-k9: context_window 300000, max_input_tokens 250000, max_output_tokens 50000, tools True, "
        "images True, reasoning True, efforts ['none', 'low', 'high']"
    )
    assert read_models(tmp_path / "models.toml") == {"kimi-k9": KNOWN}


def test_it_is_idempotent_and_names_what_changes(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    sync(tmp_path, dump({"kimi-k9": KIMI, "old": KIMI}))
    written, at = file.read_bytes(), file.stat().st_mtime_ns
    again = sync(tmp_path, dump({"kimi-k9": KIMI}))
    assert (again.exit_code, file.read_bytes(), file.stat().st_mtime_ns) == (0, written, at)
    assert again.output.count("\n") == 1
    assert again.output.endswith("models.toml: 0 written, 1 as before, 2 in all\n")
    other = KIMI | {"limit": {"context": 400_000}}
    changed = sync(tmp_path, dump({"kimi-k9": other}))
    assert changed.output.startswith(
        "~ kimi-k9: context_window 300000 → 400000, max_input_tokens 250000 → None, max_output_tokens"
    )
    assert set(read_models(file)) == {"kimi-k9", "old"}


def test_providers_go_in_their_order(tmp_path: Path) -> None:
    dumped = dump({"m": KIMI | {"limit": {"context": 1}}}, "one") | dump(
        {"m": KIMI | {"limit": {"context": 2}}, "n": KIMI}, "two"
    )
    sync(tmp_path, dumped, "--provider", "two", "--provider", "one")
    models = read_models(tmp_path / "models.toml")
    assert (models["m"].context_window, set(models)) == (2, {"m", "n"})
    nobody = sync(tmp_path, dumped, "--provider", "tow")
    assert nobody.exit_code == 2
    assert "it has no provider 'tow' (did you mean 'two'?)" in nobody.output


FLAGS = FiledModel(reasoning=True, tools=True)
# a part of an entry → what is known; values of other types say nothing
ENTRIES: list[tuple[Any, FiledModel]] = [
    ({"limit": {"context": -1, "output": True, "input": "9"}}, FLAGS),
    ({"limit": {"context": 10**30, "output": 1.5}}, FLAGS),
    ({"limit": [1, 2], "tool_call": "yes", "reasoning": 1}, FiledModel()),
    ({"reasoning_options": []}, FLAGS),
    (
        {"reasoning_options": [{"type": "budget_tokens", "min": 0}, 7, None]},
        FLAGS,
    ),
    ({"reasoning_options": [{"type": "effort", "values": "high"}]}, FLAGS),
    (
        {"reasoning_options": [{"type": "effort", "values": [[], {}, "x"]}]},
        FLAGS,
    ),
    ({"modalities": {"input": ["text"], "output": ["audio"]}}, FiledModel()),
    ({"modalities": 5}, FLAGS),
]


@pytest.mark.parametrize(("entry", "known"), ENTRIES)
def test_wrong_types_say_nothing(entry: dict[str, Any], known: FiledModel) -> None:
    model = {"tool_call": True, "reasoning": True, **entry}
    models = catalog.dumped_models(json.dumps(dump({"m": model})).encode(), ["moonshotai"])
    assert models == ({} if known == FiledModel() else {"m": known})


NAMES = [
    *("", "\x1b[31mred", "a\nb", "a b", "../../etc/passwd", "/etc/passwd", '"]\n[evil', "a#b", "a" * 300),
    *("ｍodel", "*", "gpt-*", "[a]", "\u202emodel", "a\x00b", "~/x", "-rf", "a'b", 'a"b', "a\\b"),
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_that_can_not_be_one_are_left_out(tmp_path: Path, name: str) -> None:
    result = sync(tmp_path, dump({name: KIMI, "good/one:free": KIMI}))
    assert result.exit_code == 0
    assert set(read_models(tmp_path / "models.toml")) == {"good/one:free"}
    assert "\x1b" not in result.output
    assert sorted(os.listdir(tmp_path)) == ["api.json", "models.toml"]


BAD: dict[str, Any] = {
    "empty": b"",
    "no JSON": b"nonsense",
    "a list": b"[]",
    "a number": b"5",
    "models instead of providers": b'{"kimi": 5}',
    "deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "no UTF-8": b'{"\xff": {}}',
    "none of the makers": b'{"\\u001b[31mx": {"models": {}}}',
}


@pytest.mark.parametrize("case", BAD)
def test_a_dump_that_is_wrong_ends_with_2_and_writes_nothing(tmp_path: Path, case: str) -> None:
    result = sync(tmp_path, BAD[case])
    assert (result.exit_code, (tmp_path / "models.toml").exists()) == (2, False), result.output
    assert "api.json: " in result.output
    assert "\x1b" not in result.output
    assert len(result.output) < 1000


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = dump({f"m{number}": {"tool_call": True} for number in range(catalog.MOST_DUMPED + 1)})
    assert "more than 5000 models" in sync(tmp_path, many).output
    monkeypatch.setattr(catalog, "MOST_DUMP_BYTES", 10)
    assert "larger than 10 bytes" in sync(tmp_path, dump({})).output
    assert not (tmp_path / "models.toml").exists()


def test_files_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text("{}")
    run = CliRunner()
    os.mkfifo(tmp_path / "pipe")  # would be waited for
    for name in ("nowhere", "pipe", "/dev/zero"):
        result = run.invoke(main, ["models", "sync", str(tmp_path / name)])
        assert (result.exit_code, "not a regular file" in result.output) == (2, True)
    mine = tmp_path / "mine.toml"
    mine.write_text("[upstreams]\nurl = 'x'\n")
    result = run.invoke(main, ["models", "sync", str(tmp_path / "api.json"), "--into", str(mine)])
    assert (result.exit_code, mine.read_text()) == (2, "[upstreams]\nurl = 'x'\n")
    assert "mine.toml:2: " in result.output


def test_the_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync(tmp_path, dump({"kimi-k9": KIMI}))
    before = (tmp_path / "models.toml").read_bytes()

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = sync(tmp_path, dump({"other": KIMI}))
    assert result.exit_code == 1
    assert (tmp_path / "models.toml").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["api.json", "models.toml"]


def test_the_server_reads_the_file_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync(tmp_path, dump({"kimi-k9": KIMI, "gpt-5": {"limit": {"context": 7}}}))
    config = tmp_path / "bridge.toml"
    config.write_text('models_file = "models.toml"\n[models.kimi-k9]\ntools = false\n')
    settings = load_settings(config)
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_SETTINGS", "")
    to_workers(settings)
    monkeypatch.chdir("/")
    known = build_router(of_worker(), Sealer()).catalog
    capabilities = known.capabilities("u", "vendor/kimi-k9")
    assert (capabilities.context_window, capabilities.efforts, capabilities.tools) == (
        300_000,
        KNOWN.efforts,
        False,
    )
    assert known.capabilities("u", "openai/gpt-5").context_window == 7
    assert known.capabilities("u", "gpt-5").max_output_tokens == 128_000  # the table that ships fills in
    assert known.capabilities("u", "gpt-5.1").context_window == 400_000  # another model


def test_a_file_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    config, file = tmp_path / "bridge.toml", tmp_path / "models.toml"
    config.write_text('models_file = "models.toml"\n')
    with pytest.raises(SettingsError, match=r"'models.toml' is not a file"):
        load_settings(config)
    file.write_text('["m"]\ncontext_window = "many"\n')
    with pytest.raises(SettingsError) as raised:
        build_router(load_settings(config), Sealer())
    assert str(raised.value).startswith(f"{file}:2: ")


def test_a_file_of_many_models_costs_little_a_name() -> None:
    filed = {f"vendor{number}x": FiledModel(context_window=1) for number in range(5_000)}
    read = catalog.FiledModels(filed)
    assert max(map(len, read._of_family.values())) < 10
    assert capabilities_of("vendor3x", {}, filed=read).context_window == 1
    assert Catalog({}, filed).capabilities("u", "vendor3x").context_window == 1


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    tier = PriceTier(above=272_000, input=2.0, output=3.5, cached_input=0.0)
    price = Price(input=1.0, output=1e-06, reasoning=0.1, tiers=(tier,))
    models = {
        "a/b:c": KNOWN,
        "é": FiledModel(),
        "n": FiledModel(efforts=[]),
        "p": FiledModel(tools=True, price=price),
        "image": FiledModel(price=Price(per_image=0.04)),
    }
    (tmp_path / "m.toml").write_bytes(written_models(models))
    assert read_models(tmp_path / "m.toml") == models


PRICED = {"input": 1.25, "output": 10, "cache_read": 0.125}
TIER = {"input": 2.5, "output": 15, "tier": {"type": "context", "size": 272_000}}
OVER = {"input": 3, "output": 16, "cache_read": 0.3, "cache_write": 4.0}
KNOWN_PRICE = Price(input=1.25, output=10.0, cached_input=0.125)
# what a dump says of costs → the price that is taken
COSTS: dict[str, tuple[Any, Price | None]] = {
    "plain": (PRICED, KNOWN_PRICE),
    "all": (
        PRICED | {"cache_write": 2, "reasoning": 12.0, "input_audio": 5, "new_field": {}},
        Price(input=1.25, output=10.0, cached_input=0.125, cache_write=2.0, reasoning=12.0),
    ),
    "null is not there": ({"input": 1, "output": 2, "cache_read": None}, Price(input=1.0, output=2.0)),
    "embeddings cost input": ({"input": 0.02, "output": 0}, Price(input=0.02, output=0.0)),
    "tiers": (
        PRICED | {"tiers": [TIER], "context_over_200k": OVER},
        Price(
            input=1.25,
            output=10.0,
            cached_input=0.125,
            tiers=(PriceTier(above=272_000, input=2.5, output=15.0),),
        ),
    ),
    "the older tier": (
        PRICED | {"context_over_200k": OVER},
        Price(
            input=1.25,
            output=10.0,
            cached_input=0.125,
            tiers=(PriceTier(above=200_000, input=3.0, output=16.0, cached_input=0.3, cache_write=4.0),),
        ),
    ),
    "no tiers": (PRICED | {"tiers": [], "context_over_200k": None}, KNOWN_PRICE),
    "nothing is no price": ({"input": 0, "output": 0, "cache_read": 0}, None),
    "nothing but a tier": (
        {"input": 0, "output": 0, "tiers": [TIER]},
        Price(input=0.0, output=0.0, tiers=(PriceTier(above=272_000, input=2.5, output=15.0),)),
    ),
    "no output": ({"input": 1}, None),
    "no object": ([1, 2], None),
    "text": (PRICED | {"output": "10"}, None),
    "a flag": (PRICED | {"output": True}, None),
    "negative": (PRICED | {"input": -1}, None),
    "negative cache": (PRICED | {"cache_read": -0.1}, None),
    "too much": (PRICED | {"input": 1e7}, None),
    "a huge integer": (PRICED | {"input": 10**400}, None),
    "less than can be counted": (PRICED | {"input": 1e-7}, None),
    "a cache that is an object": (PRICED | {"cache_read": {}}, None),
    "a tier of another kind": (PRICED | {"tiers": [TIER | {"tier": {"type": "time", "size": 9}}]}, None),
    "a tier without a price": (PRICED | {"tiers": [{"tier": TIER["tier"]}]}, None),
    "a negative tier": (PRICED | {"tiers": [TIER | {"input": -2.5}]}, None),
    "a tier without a size": (PRICED | {"tiers": [TIER | {"tier": {"type": "context"}}]}, None),
    "a tier of no size": (PRICED | {"tiers": [TIER | {"tier": {"type": "context", "size": 0}}]}, None),
    "a tier twice": (PRICED | {"tiers": [TIER, TIER]}, None),
    "many tiers": (
        PRICED | {"tiers": [TIER | {"tier": {"type": "context", "size": at}} for at in range(1, 10)]},
        None,
    ),
    "tiers that are none": (PRICED | {"tiers": 5}, None),
    "tiers of numbers": (PRICED | {"tiers": [5]}, None),
    "an older tier that is none": (PRICED | {"context_over_200k": 5}, None),
}


@pytest.mark.parametrize("case", COSTS)
def test_prices_of_a_dump_are_taken_whole_or_not_at_all(case: str) -> None:
    cost, price = COSTS[case]
    dumped = dump({"m": {"tool_call": True, "cost": cost}})
    models = catalog.dumped_models(json.dumps(dumped).encode(), ["moonshotai"])
    assert models == {"m": FiledModel(tools=True, price=price)}


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
def test_numbers_that_are_none_price_nothing(tmp_path: Path, number: bytes) -> None:
    dumped = json.dumps(dump({"m": {"tool_call": True, "cost": PRICED}})).encode().replace(b"1.25", number)
    if sync(tmp_path, dumped).exit_code == 0:  # else it is no JSON
        assert read_models(tmp_path / "models.toml") == {"m": FiledModel(tools=True)}


def test_prices_are_written_read_and_named_when_they_change(tmp_path: Path) -> None:
    drawn = {"modalities": {"output": ["image"]}, "tool_call": True, "cost": {"input": 5, "output": 40}}
    result = sync(tmp_path, dump({"m": {"tool_call": True, "cost": PRICED | {"tiers": [TIER]}}, "i": drawn}))
    assert result.output.splitlines()[:2] == [
        "+ i: price { input = 5.0, output = 40.0 }",
        "+ m: tools True, price { input = 1.25, cached_input = 0.125, output = 10.0, "
        "tiers = [{ input = 2.5, output = 15.0, above = 272000 }] }",
    ]
    models = read_models(tmp_path / "models.toml")
    assert models["m"].price == COSTS["tiers"][1]
    assert models["i"] == FiledModel(price=Price(input=5.0, output=40.0))
    dearer = sync(tmp_path, dump({"m": {"tool_call": True, "cost": PRICED | {"input": 2}}}))
    assert dearer.output.startswith("~ m: price { input = 1.25, cached_input")
    assert "→ { input = 2.0, cached_input = 0.125, output = 10.0 }" in dearer.output
    gone = sync(tmp_path, dump({"m": {"tool_call": True, "cost": {"input": 0, "output": 0}}}))
    assert gone.output.splitlines()[0].endswith("→ None")
    assert read_models(tmp_path / "models.toml")["m"] == FiledModel(tools=True)


def test_a_model_with_a_price_alone_says_nothing_of_its_abilities() -> None:
    filed = {"gpt-5": FiledModel(price=KNOWN_PRICE)}
    assert Catalog({}, filed).capabilities("u", "gpt-5") == Catalog({}).capabilities("u", "gpt-5")
    assert Catalog({}, filed).filed_prices == {"gpt-5": KNOWN_PRICE}
