"""`goalscope meg FILE`: every schema, what is printed, and files that nobody should trust."""

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from goalscope.cli import app
from goalscope.goals.meg.file import meg_of_file, read_meg_file
from goalscope.meg import meg_known, meg_unknown
from goalscope.worlds.environments import stored
from goalscope.worlds.planning import TabularMDP

MOUSE: dict[str, Any] = {
    "horizon": 1,
    "start": [0.5, 0.5],
    "next": [[0, 0], [1, 1]],
    "utility": [[1, -1], [-1, 1]],
    "policy": [[0.8, 0.2], [0.2, 0.8]],
}
WALK: dict[str, Any] = {
    "horizon": 3,
    "start": 0,
    "actions": 2,
    "possible": [[0, 0, 0], [0, 1, 1], [0, 1, 0], [1, 0, 1], [1, 1, 1]],
    "chance": [1, 0.75, 0.25, 1, 1],
    "utility": [0, 1],
    "terminal_utility": [0, 5],
}


POLICY: dict[str, Any] = {"policy": [[0.3, 0.7], [0.5, 0.5]]}


def write(folder: Path, content: Any, name: str = "world.json") -> Path:
    path = folder / name
    if name.endswith(".npz"):
        np.savez(path, allow_pickle=False, **{key: np.asarray(value) for key, value in content.items()})
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def call(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["meg", *(str(word) for word in words)])
    assert result.exit_code == status, result.output
    return str(result.output)


@pytest.mark.parametrize("name", ["world.json", "world.npz"])
def test_a_policy_as_json_and_npz(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, MOUSE, name)
    printed = call(path)
    assert "0.192745" in printed and "0.693147" in printed and "2 states, 2 actions, 1 decision" in printed
    content = json.loads(call(path, "--json"))
    assert content["known"]["value"] == pytest.approx(0.19274475702175747)
    assert content["known"]["low"] is None and content["process"] == {"states": 2, "actions": 2, "horizon": 1}
    optimal = write(tmp_path, MOUSE | {"policy": [[1, 0], [0, 1]]}, name)
    assert json.loads(call(optimal, "--json"))["known"]["beta"] == "inf" and " inf" in call(optimal)


def test_three_forms_of_one_process(tmp_path: Path) -> None:
    dense = np.zeros((2, 2, 2))
    for (state, action, after), chance in zip(WALK["possible"], WALK["chance"], strict=True):
        dense[state, action, after] += chance
    rest = {name: value for name, value in WALK.items() if name not in ("possible", "chance", "actions")}
    policy = {"policy": [[0.3, 0.7], [0.5, 0.5]]}
    mdp = TabularMDP(
        transitions=dense, utility=np.array([0.0, 1.0]), horizon=3, start=np.array([1.0, 0.0]),
        terminal_utility=np.array([0.0, 5.0]),
    )  # fmt: skip
    expected = meg_known(mdp, np.array(policy["policy"])).value
    for number, form in enumerate((WALK | policy, rest | policy | {"transitions": dense.tolist()})):
        for ending in ("json", "npz"):
            found = read_meg_file(write(tmp_path, form, f"{number}.{ending}"))
            assert meg_known(found.mdp, found.policy).value == pytest.approx(expected, abs=1e-12)
    stayer = rest | {"next": [[0, 1], [1, 1]], "utility": [[[0, 1], [0, 1]], [[0, 1], [0, 1]]], "mean_return": 6.0}
    assert read_meg_file(write(tmp_path, stayer)).mean_return == 6.0


def test_unknown_utilities(tmp_path: Path) -> None:
    content = WALK | {"policy": [[0.3, 0.7], [0.5, 0.5]]}
    path = write(tmp_path, content)
    found = read_meg_file(path)
    assert found.policy is not None
    asked = meg_of_file(path, unknown=True)
    assert asked.unknown is not None and asked.known.value == meg_known(found.mdp, found.policy).value
    assert json.loads(call(path, "--unknown", "--json")) == asked.to_plain()
    assert "unknown" not in meg_of_file(path).to_plain()
    printed = asked.to_plain()["unknown"]
    assert printed["value"] == pytest.approx(meg_unknown(found.mdp, found.policy, terminal=True).value)
    assert printed["value"] >= asked.known.value - 1e-6
    assert "Utility unknown" in call(path, "--unknown")
    sampled = write(tmp_path, WALK | {"returns": [5.0, 7.0]})
    assert "--unknown" in call(sampled, "--unknown", status=2)


def test_returns_that_cannot_be_told_from_chance_have_no_share_and_no_beta(tmp_path: Path) -> None:
    for returns, told in (([0.0, 7.0, 5.0, 0.0], False), ([6.0, 7.0, 7.0, 6.5], True), ([7.0], False)):
        path = write(tmp_path, WALK | {"returns": returns})
        found, shown = json.loads(call(path, "--json"))["known"], call(path)
        assert (found["signed_low"] is not None and found["signed_low"] > 0) == told
        assert (found["share"] is not None) == (found["beta"] is not None) == told
        assert ("cannot be told from chance" in found["note"]) == ("cannot be told from chance" in shown) == (not told)
    assert "cannot be told" not in call(write(tmp_path, WALK | POLICY))  # exact, not a sample


def test_trajectories_are_their_returns(tmp_path: Path) -> None:
    states, actions = [[0, 1, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1]], [[1, 0, 1], [0, 1, 0], [1, 1, 0]]
    by_steps = write(tmp_path, WALK | {"trajectory_states": states, "trajectory_actions": actions})
    found = read_meg_file(by_steps)
    assert found.returns is not None and found.returns.tolist() == [7.0, 0.0, 6.0]
    returns = write(tmp_path, WALK | {"returns": [7, 0, 6]}, "returns.npz")
    assert call(by_steps, "--json") == call(returns, "--json")
    assert "95 %, t of the mean return" in call(returns) and "80 %" in call(returns, "--confidence", 0.8)
    short = {name: value for name, value in WALK.items() if name != "terminal_utility"} | {
        "trajectory_states": [row[:3] for row in states],
        "trajectory_actions": actions,
    }
    assert read_meg_file(write(tmp_path, short)).returns is not None
    dense = {"transitions": [[[1, 0], [0.5, 0.5]], [[0, 1], [0, 1]]], "utility": [[0, 1], [2, 3]]}
    other = {"horizon": 3, "start": 0, "trajectory_states": states, "trajectory_actions": actions}
    steps = read_meg_file(write(tmp_path, dense | other)).returns
    assert steps is not None and steps.tolist() == [6.0, 1.0, 4.0]


def gone(*names: str) -> dict[str, Any]:
    return {name: value for name, value in MOUSE.items() if name not in names}


WRONG: dict[str, tuple[Any, str]] = {
    "no object": ([1, 2], "must be an object"),
    "not JSON": ("{horizon: 1}", "must be JSON in UTF-8"),
    "deep": ("[" * 100_000, "must be JSON"),
    "a name twice": ('{"horizon": 1, "horizon": 2}', "must occur once"),
    "NaN": ('{"horizon": NaN}', "numbers must be finite"),
    "overflow": ('{"horizon": 1e999}', "horizon must be finite"),
    "a huge number": (MOUSE | {"start": 10**40}, "start must hold real numbers"),
    "no episodes": (gone("policy") | {"trajectory_states": [], "trajectory_actions": []}, "must have shape [N, 1]"),
    "an unknown field": (MOUSE | {"reward": [1]}, "got 'reward'"),
    "text": (MOUSE | {"utility": "high"}, "utility must be a number or nested lists"),
    "text inside": (MOUSE | {"utility": [["a", "b"]]}, "utility must hold real numbers"),
    "truth values": (MOUSE | {"policy": [[True, False], [True, False]]}, "policy must hold real numbers"),
    "ragged": (MOUSE | {"policy": [[1], [0.5, 0.5]]}, "policy"),
    "no horizon": (gone("horizon"), "got no horizon"),
    "a horizon below 0": (MOUSE | {"horizon": -3}, "from 1 to 1000000, got -3"),
    "a broken horizon": (MOUSE | {"horizon": 1.5}, "horizon must be a whole number"),
    "many horizons": (MOUSE | {"horizon": [1, 2]}, "horizon must be one number"),
    "endless": (MOUSE | {"horizon": 10**9}, "from 1 to 1000000"),
    "no utility": (MOUSE | {"utility": []}, "utility must have shape"),
    "a start elsewhere": (MOUSE | {"start": 2}, "a state from 0 to 1"),
    "a start that is none": (MOUSE | {"start": [0.5, 0.4]}, "start must sum to 1"),
    "no transitions": (gone("next"), "exactly one form"),
    "two forms": (MOUSE | {"transitions": [[[1]]]}, "exactly one form"),
    "a spare field": (MOUSE | {"chance": [1]}, "chance must go with possible"),
    "nowhere": (MOUSE | {"next": [[0, 7], [1, 1]]}, "got 7 at index"),
    "half a state": (MOUSE | {"next": [[0, 0.5], [1, 1]]}, "next must hold whole numbers"),
    "rows off 1": (gone("next") | {"transitions": [[[1, 0], [0.5, 0.4]]] * 2}, "transitions must sum to 1"),
    "negative chances": (gone("next") | {"transitions": [[[2, -1], [1, 0]]] * 2}, "probabilities >= 0"),
    "another shape": (gone("next") | {"transitions": [[1, 0]]}, "transitions must have shape"),
    "no action": (gone("next") | {"transitions": [[], []]}, "transitions must have shape"),
    "no chance": (WALK | {"chance": [1, 1]} | {"policy": [[1, 0], [1, 0]]}, "chance must have shape"),
    "too many actions": (WALK | {"actions": 10**12}, "at least one possible transition"),
    "a large empty process": (
        WALK | {"utility": [0] * 5000, "actions": 3000, "possible": [[0, 0, 0]] * 5000, "chance": [1] * 5000},
        "got 5000 rows for 5000 states and actions = 3000",
    ),
    "chances below 0 that a sum hides": (
        WALK | {"possible": [*WALK["possible"], [0, 1, 1]], "chance": [1, 1.75, 0.25, 1, 1, -1]},
        "chance must hold probabilities >= 0, got -1.0 at index 5",
    ),
    "a transition twice": (
        WALK | {"possible": [*WALK["possible"], [0, 1, 1]], "chance": [1, 0.75, 0.25, 1, 1, 0.25]} | POLICY,
        "got 1.25 for state 0 and action 1",
    ),
    "a state beyond": (WALK | {"possible": [*WALK["possible"][:4], [1, 1, 2]]}, "states below 2"),
    "digits without end": (f'{{"horizon": {"9" * 5000}}}', "a number must have at most"),
    "lists without end": (f'{{"utility": {"[" * 200}1{"]" * 200}}}', "utility"),
    "a policy of another horizon": (MOUSE | {"policy": [MOUSE["policy"]] * 3}, "with n = 1, S = 2, A = 2, got [3,"),
    "utilities beyond all numbers": (
        MOUSE | {"utility": [[1.7e308, -1.7e308], [-1.7e308, 1.7e308]]},
        "the attainable utility must have a range from 1e-302 to 1.8e308, got inf",
    ),
    "utilities below all numbers": (MOUSE | {"utility": [[5e-324, 0], [0, 5e-324]]}, "multiply all utilities by"),
    "a gap": (
        WALK | {"actions": 3, "possible": [*WALK["possible"], [0, 1, 1]], "chance": [1, 0.5, 0.25, 1, 1, 0.25]},
        "got 0.0 for state 0 and action 2",
    ),
    "fewer transitions than choices": (WALK | {"actions": 3}, "got 5 rows for 2 states and actions = 3"),
    "no agent": (gone("policy"), "trajectory_states"),
    "two agents": (MOUSE | {"returns": [1]}, "got policy; returns"),
    "a policy off 1": (MOUSE | {"policy": [[0.9, 0.2], [0.5, 0.5]]}, "policy must sum to 1"),
    "returns of another world": (gone("policy") | {"returns": [40, 41, 40]}, "check their unit"),
    "no returns": (gone("policy") | {"returns": []}, "at least one"),
    "an impossible mean": (gone("policy") | {"mean_return": 3}, "must be attainable"),
    "half a trajectory": (gone("policy") | {"trajectory_states": [[0, 0]]}, "got no trajectory_actions"),
    "an early end": (
        WALK | {"trajectory_states": [[0, 0]], "trajectory_actions": [[1]]},
        "must end in an absorbing state, where the utility of every action is the same, got state 0 in episode 0",
    ),
    "no last state": (
        WALK | {"trajectory_states": [[0, 1, 1]], "trajectory_actions": [[1, 1, 1]]},
        "add the state after",
    ),
    "an impossible step": (
        WALK | {"trajectory_states": [[0, 1, 0, 0]], "trajectory_actions": [[1, 1, 1]]},
        "got state 1, action 1, then state 0, which has chance 0, in episode 0 at step 1",
    ),
    "another start": (
        WALK | {"trajectory_states": [[1, 1, 1, 1]], "trajectory_actions": [[1, 1, 1]]},
        "must begin where start has a chance",
    ),
    "an unknown action": (
        WALK | {"trajectory_states": [[0, 1, 1, 1]], "trajectory_actions": [[1, 1, 2]]},
        "trajectory_actions must lie from 0 to 1, got 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_in_words(tmp_path: Path, what: str) -> None:
    content, words = WRONG[what]
    message = call(write(tmp_path, content), status=2)
    assert words in " ".join(message.split()) and "Traceback" not in message


def test_hostile_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No such file" in call(tmp_path / "none.json", status=2)
    assert "is read from a .json or .npz file" in call(write(tmp_path, "horizon: 1", "world.yaml"), status=2)
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 but not really")
    assert "broken.npz" in call(broken, status=2)
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, horizon=np.array([{"a": 1}], dtype=object))
    assert "horizon" in call(pickled, status=2)
    text = tmp_path / "text.npz"
    np.savez(text, horizon=np.array("three"))
    assert "horizon" in call(text, status=2)
    members = tmp_path / "members.npz"
    with zipfile.ZipFile(members, "w") as packed:
        packed.writestr("horizon", b"no array")
    assert "horizon" in call(members, status=2)
    cut = write(tmp_path, MOUSE, "cut.npz")
    with zipfile.ZipFile(cut) as packed:
        whole = {name: packed.read(name) for name in packed.namelist()}
    with zipfile.ZipFile(cut, "w") as packed:
        for name, content in whole.items():
            packed.writestr(name, content[:-4])
    assert "plain array of numbers" in call(cut, status=2)
    for name, offset, value in (("encrypted", 8, 1), ("compressed", 10, 97)):  # fields of the directory of the file
        packed_bytes = bytearray(write(tmp_path, MOUSE, f"{name}.npz").read_bytes())
        entry = packed_bytes.find(b"PK\x01\x02")
        packed_bytes[entry + offset] = packed_bytes[offset - 2] = value
        (tmp_path / f"{name}.npz").write_bytes(packed_bytes)
        assert "plain array of numbers" in call(tmp_path / f"{name}.npz", status=2)
    declared = tmp_path / "declared.npz"  # a header that promises what no machine has
    with zipfile.ZipFile(declared, "w") as packed:
        head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000), }".ljust(117) + b"\n"
        packed.writestr("utility.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    assert "plain array of numbers" in call(declared, status=2)
    nan = write(tmp_path, MOUSE | {"policy": [[float("nan"), 1], [0, 1]]}, "nan.npz")
    assert "policy" in call(nan, status=2)
    control = write(tmp_path, MOUSE | {"\x1b[31mred": 1})
    assert "\x1b" not in call(control, status=2)
    doubled = tmp_path / "doubled.npz"
    with zipfile.ZipFile(doubled, "w") as packed, pytest.warns(UserWarning, match="Duplicate name"):
        packed.writestr("horizon.npy", b"")
        packed.writestr("horizon.npy", b"")
    assert "each field once, got 'horizon' repeatedly" in call(doubled, status=2)
    marked = tmp_path / "marked.json"  # as some editors write it
    marked.write_bytes(b"\xef\xbb\xbf" + json.dumps(MOUSE).encode())
    assert "0.192745" in call(marked)
    monkeypatch.setattr(stored, "LARGEST_JSON", 10)
    assert "at most 10 bytes" in call(write(tmp_path, MOUSE), status=2)
    monkeypatch.setattr(stored, "LARGEST_NPZ", 100)
    assert "at most 100 bytes unpacked" in call(write(tmp_path, MOUSE, "large.npz"), status=2)


def test_the_best_utility_pays_for_the_last_state_where_the_file_does(tmp_path: Path) -> None:
    described = {
        "next": [[0, 1], [1, 1]],
        "utility": [0, 0],
        "terminal_utility": [0, 1],
        "horizon": 1,
        "start": [1, 0],
        "policy": [[0.1, 0.9], [0.5, 0.5]],
    }
    path = tmp_path / "last.json"
    path.write_text(json.dumps(described))
    found = meg_of_file(path, unknown=True)
    # One decision, taken with .9: nine tenths and one tenth against halves.
    expected = math.log(2) + 0.9 * math.log(0.9) + 0.1 * math.log(0.1)
    assert found.known.value == pytest.approx(expected)
    assert found.unknown is not None and found.unknown.value == pytest.approx(expected, abs=1e-6)
    assert len(found.to_plain()["unknown"]["terminal_utility"]) == 2
    path.write_text(json.dumps({name: value for name, value in described.items() if name != "terminal_utility"}))
    without = meg_of_file(path, unknown=True).unknown
    assert without is not None and without.value == 0 and without.terminal_utility is None
