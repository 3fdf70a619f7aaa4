"""Sealed truths: none of them in the clear, claims before and after opening, keys that do not fit; organisms play."""

import itertools
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from goalscope.agents.models.folders import model_folder
from goalscope.agents.policies import planes
from goalscope.cli import app
from goalscope.organisms import FAMILIES, cards, challenge, folders, learners, make, planned, read_card
from goalscope.organisms.agent import OrganismPlayer
from goalscope.organisms.challenge import claim, open_challenge, score, seal
from goalscope.organisms.learners import policy
from goalscope.worlds.grid import Action, Grid
from goalscope.worlds.gridworld import GridView
from tampered import resealed

NAMES = {"goal-table-75-0", "place-table-75-0"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("goal", "place"):
            patch.setitem(FAMILIES, name, replace(FAMILIES[name], lessons=60))
        patch.setattr(cards, "MEASURED", 8)
        patch.setattr(challenge, "WORLDS", 8)
        folder = tmp_path_factory.mktemp("organisms")
        make(folder, [one for one in planned(seed=3, families=["goal", "place"], kinds=["table"]) if one.name in NAMES])
        yield folder


@pytest.fixture(scope="module")
def once_sealed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a challenge and its key, for reading alone."""
    folder = tmp_path_factory.mktemp("sealed")
    names = seal(list(folders(made)), folder / "challenge", folder / "key.json", salt="nobody guesses")
    assert names == ["sealed-000", "sealed-001"]
    return folder


@pytest.fixture(scope="module")
def once_opened(once_sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a challenge that was claimed about and opened, and its key, for reading alone."""
    folder = tmp_path_factory.mktemp("opened")
    shutil.copytree(once_sealed, folder, dirs_exist_ok=True)
    claim(folder / "challenge", ["score"], "ours")
    open_challenge(folder / "challenge", folder / "key.json")
    return folder


@pytest.fixture
def sealed(once_sealed: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A challenge and its key, which the test may change."""
    shutil.copytree(once_sealed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "challenge", tmp_path / "key.json"


def test_nothing_of_the_truth_is_in_the_clear(sealed: tuple[Path, Path], made: Path) -> None:
    out, key = sealed
    public, private = json.loads((out / "challenge.json").read_text()), json.loads(key.read_text())
    assert {path.name for path in out.iterdir()} == {
        "challenge.json",
        "sealed-000.safetensors",
        "sealed-001.safetensors",
    }
    banks = {tuple(public["bank"])}  # the same for all
    for name, entry in public["organisms"].items():
        assert set(entry) == {"form", "weights", "seal"} and len(banks) == 1
        truth = private["organisms"][name]["truth"]
        assert truth["card"]["spec"]["family"] in ("goal", "place") and truth["rule"]
    text = (out / "challenge.json").read_text()
    for secret in ("family", "agreement", "meant", '"nearest"', "salt", "rule", "goal-table", "place-table"):
        assert secret not in text
    assert all(each["truth"]["card"]["weights"] == public["organisms"][name]["weights"]
               for name, each in private["organisms"].items())  # fmt: skip
    seen = {grid for grids in public["worlds"].values() for grid in grids}
    assert not any(grid in text for grids in private["separating"].values() for grid in grids if grid not in seen)


def test_looks_and_separating_worlds_share_no_layout(sealed: tuple[Path, Path]) -> None:
    out, key = sealed
    walls = [
        {str(Grid.parse(text).walls.tolist()) for grids in given.values() for text in grids}
        for given in (
            json.loads((out / "challenge.json").read_text())["worlds"],
            json.loads(key.read_text())["separating"],
        )
    ]
    assert walls[0] and walls[1] and not walls[0] & walls[1]


def test_claims_before_opening_stand_and_one_after_it_is_marked(sealed: tuple[Path, Path]) -> None:
    out, key = sealed
    with pytest.raises(ValueError, match="organisms open"):
        score(out)
    first = claim(out, ["score"], "early")
    assert [one.id for one in claim(out, ["score"], "early")] == [one.id for one in first]
    assert set(open_challenge(out, key)) == {one.id for one in first}
    recorded = (out / "opened.json").read_bytes()
    claim(out, ["likelihood"], "late")
    shutil.copytree(out / "claims" / "early", out / "claims" / "copied")  # what somebody else claimed in time
    assert set(open_challenge(out, key)) == {one.id for one in first} and (out / "opened.json").read_bytes() == recorded
    found = score(out)
    assert {(one.claimant, one.method, one.before) for one in found} == {
        ("early", "score", True),
        ("late", "likelihood", False),
        ("copied", "score", False),
    }
    assert "corner top-right" in {one.rule for one in found}
    assert not any(one.outcome == "false" for one in found if one.method == "score"), found
    printed = CliRunner().invoke(app, ["organisms", "score", "--at", str(out)])
    assert printed.exit_code == 0 and "AFTER" in printed.output, printed.output


def test_a_claim_or_a_truth_that_was_changed_is_refused(sealed: tuple[Path, Path]) -> None:
    out, key = sealed
    claim(out, ["score"], "ours")
    path = out / "claims" / "ours" / "sealed-000" / "claim.json"
    changed = json.loads(path.read_text())
    changed["strata"][0]["said"][0]["names"] = ["flee goal"]
    path.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=re.escape(str(path))):
        open_challenge(out, key)
    path.unlink()
    # A truth that was changed does not fit the seals of the challenge, even under a digest that was computed anew.
    private = json.loads(key.read_text())
    private["organisms"]["sealed-001"]["salt"] = "0" * 64
    other = key.with_name("other.json")
    other.write_text(resealed(private))
    with pytest.raises(ValueError, match="sealed-001"):
        open_challenge(out, other)
    open_challenge(out, key)
    record = json.loads((out / "opened.json").read_text())
    record["key"]["organisms"]["sealed-000"]["salt"] = "0" * 64
    (out / "opened.json").write_text(resealed(record))
    with pytest.raises(ValueError, match="sealed-000"):
        score(out)


def test_a_claim_that_was_moved_to_another_organism_is_refused(once_opened: Path, tmp_path: Path) -> None:
    shutil.copytree(once_opened, tmp_path, dirs_exist_ok=True)
    ours = tmp_path / "challenge" / "claims" / "ours"
    other = ours / "sealed-001" / "claim.json"
    other.parent.mkdir(exist_ok=True)
    shutil.copy(ours / "sealed-000" / "claim.json", other)
    with pytest.raises(ValueError, match=r"sealed-001/claim\.json.*sealed-000"):
        score(tmp_path / "challenge")
    (tmp_path / "challenge" / "opened.json").unlink()
    with pytest.raises(ValueError, match=r"sealed-001/claim\.json.*sealed-000"):
        open_challenge(tmp_path / "challenge", tmp_path / "key.json")


@pytest.fixture
def readers(made: Path, once_opened: Path, tmp_path: Path) -> dict[str, tuple[Path, Callable[[], object]]]:
    """Return the files of an opened challenge and of an organism, and what reads each of them back."""
    shutil.copytree(once_opened, tmp_path, dirs_exist_ok=True)
    out, key = tmp_path / "challenge", tmp_path / "key.json"
    organism = tmp_path / "organism"
    shutil.copytree(next(folders(made)), organism)
    return {
        "card": (organism / "card.json", lambda: read_card(organism)),
        "weights": (organism / "weights.safetensors", lambda: cards.read_weights(organism, read_card(organism))),
        "challenge": (out / "challenge.json", lambda: open_challenge(out, key)),
        "sealed weights": (out / "sealed-000.safetensors", lambda: score(out)),
        "key": (key, lambda: open_challenge(out, key)),
        "opening": (out / "opened.json", lambda: score(out)),
        "claim": (out / "claims" / "ours" / "sealed-000" / "claim.json", lambda: score(out)),
    }


@pytest.mark.parametrize("count", [1, pytest.param(43, marks=pytest.mark.full)])
def test_no_flipped_bit_is_silent(count: int, readers: dict[str, tuple[Path, Callable[[], object]]]) -> None:
    """With 43 for each of seven kinds of files, 301 flips."""
    draw = random.Random(52)
    for path, read in readers.values():
        sound = path.read_bytes()
        for _ in range(count):
            changed = bytearray(sound)
            changed[draw.randrange(len(sound))] ^= 1 << draw.randrange(8)
            path.write_bytes(bytes(changed))
            with pytest.raises((ValueError, OSError)) as caught:
                read()
            assert path.name in str(caught.value) or path.stem in str(caught.value)
        path.write_bytes(sound)


STRANGE: tuple[Any, ...] = (None, [], {}, -1, 1e308, True, "x" * 2_000_000, [[[]]], {"a": {"b": None}})


@pytest.mark.parametrize("count", [2, pytest.param(len(STRANGE) + 1, marks=pytest.mark.full)])
@pytest.mark.parametrize("kind", ["card", "challenge", "key", "opening", "claim"])
def test_strange_values_are_refused_in_one_sentence(
    kind: str, count: int, readers: dict[str, tuple[Path, Callable[[], object]]]
) -> None:
    """Of the strange values ``count`` are tried for each name, other ones for the next."""
    path, read = readers[kind]
    sound, values = json.loads(path.read_text()), itertools.cycle((*STRANGE, ...))
    for name in sound:
        if name == "digest":
            continue
        for value in itertools.islice(values, count):
            changed = {key: other for key, other in sound.items() if key != name}
            changed |= {} if value is ... else {name: value}
            if changed == sound:
                continue
            path.write_text(resealed(changed))
            try:
                read()
            except ValueError as error:
                assert len(str(error)) < 5000 and path.name in str(error)
            else:  # empty lists and mappings are of the right type in some places, and so is no test of a claim
                assert value in ([], {}) or (kind, name, value) == ("claim", "tested_on", None), (kind, name)
    path.write_text(json.dumps(sound, indent=1, sort_keys=True) + "\n")


def test_worlds_of_a_challenge_are_bounded_as_those_of_a_study(sealed: tuple[Path, Path]) -> None:
    out, key = sealed
    path = out / "challenge.json"
    values = json.loads(path.read_text())
    side = 1500
    rows = ["#" * side, "#A" + "_" * (side - 4) + "G#", *["#" + "_" * (side - 2) + "#"] * (side - 3), "#" * side]
    values["worlds"]["7"][0] = "\n".join(rows)
    path.write_text(resealed(values))
    with pytest.raises(ValueError, match="challenge"):
        open_challenge(out, key)


@pytest.mark.full
def test_networks_that_see_what_surrounds_them_are_claimed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(learners, "STEPS", 20)
    monkeypatch.setattr(cards, "MEASURED", 8)
    monkeypatch.setattr(challenge, "WORLDS", 8)
    names = ["goal", "nearest of two"]
    for name in names:
        monkeypatch.setitem(FAMILIES, name, replace(FAMILIES[name], lessons=60))
    make(tmp_path / "made", planned(seed=3, families=names, kinds=["network"], each=1)[::4])
    seal(list(folders(tmp_path / "made")), tmp_path / "out", tmp_path / "key.json")
    assert len(claim(tmp_path / "out", ["score"], "ours")) == 2
    open_challenge(tmp_path / "out", tmp_path / "key.json")
    assert {one.before for one in score(tmp_path / "out")} == {True}


def test_a_key_lies_outside_and_nothing_is_sealed_twice(made: Path, sealed: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outside"):
        seal(list(folders(made)), tmp_path / "new", tmp_path / "new" / "key.json")
    with pytest.raises(ValueError, match=re.escape(str(sealed[0]))):
        seal(list(folders(made)), sealed[0], tmp_path / "another.json")
    without = CliRunner().invoke(app, ["organisms", "seal", "--at", str(made), "--out", str(tmp_path / "x")])
    assert without.exit_code == 2 and "--key" in without.output + without.stderr


@pytest.mark.full
def test_the_same_salt_gives_the_same_seals_and_another_one_others(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(challenge, "WORLDS", 4)
    seals = []
    for number, salt in enumerate(("a", "a", "b")):
        seal(list(folders(made))[:1], tmp_path / str(number), tmp_path / f"{number}.json", salt=salt)
        seals.append(json.loads((tmp_path / str(number) / "challenge.json").read_text())["organisms"])
    assert seals[0] == seals[1] != seals[2]


GRID = "#######\n#A___G#\n#_#_#_#\n#____K#\n#_#_#_#\n#_____#\n#######"


def test_an_organism_plays_from_observations_as_it_does_in_worlds(made: Path) -> None:
    folder = made / "goal-table-75-0"
    player, grid, card = OrganismPlayer(folder, seed=1), Grid.parse(GRID), read_card(folder)
    own = policy(card.spec, cards.read_weights(folder, card), grid, np.array([grid.start]), np.array([False]))[0]
    seen = planes(GridView(grid=grid))
    for observation in (GRID, seen):
        assert player.probabilities(observation) == pytest.approx(own)
        assert player.predict(observation, deterministic=True)[0] == own.argmax()
    batch = player.predict(np.stack([seen] * 400))[0]
    assert np.bincount(batch, minlength=4) / 400 == pytest.approx(own, abs=0.1)
    with pytest.raises(ValueError, match="planes"):
        player.predict(np.zeros((3, 7, 7)))


@pytest.mark.full
def test_an_organism_plays_in_gymnasium(made: Path) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    import goalscope.integrations.gymnasium.grid_env  # noqa: F401  (registers the environment)

    player, arrived = OrganismPlayer(made / "goal-table-75-0"), 0
    env = gymnasium.make("goalscope/Grid-v0", size=7, density=0.2, factor=2.0)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        ended = cut = False
        while not (ended or cut):
            observation, _, ended, cut, _ = env.step(player.predict(observation)[0])
        arrived += ended
    assert arrived >= 12


@pytest.mark.full
def test_a_language_model_is_a_folder_that_transformers_reads_by_itself(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "elsewhere"
    shipped = model_folder("organism-goal")
    assert shipped is not None
    shutil.copytree(shipped, folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert type(model).__name__ == "GPT2LMHeadModel" and len(tokenizer) <= model.config.vocab_size
    player = OrganismPlayer(folder)
    assert player.card.rule == "straight to goal" and player.probabilities(GRID).sum() == pytest.approx(1.0)
    assert player.predict(GRID, deterministic=True)[0] == int(Action.RIGHT)
