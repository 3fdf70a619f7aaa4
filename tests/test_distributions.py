"""Probabilities from float32 libraries are accepted, normalised and mentioned; what is no distribution is refused."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

from goalscope._ground import own
from goalscope._ground.distributions import (
    note_rounding,
    rounding_of,
    to_array,
    to_chances,
    to_distributions,
    to_shares,
    to_sparse_distributions,
)
from goalscope._ground.rng import stream
from goalscope.cli import app
from goalscope.environments import Observed, enumerate_states
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.definition import FiniteWorld
from goalscope.goals.meg.causal import Variable
from goalscope.meg import meg_known, meg_unknown
from goalscope.worlds.environments.playback import play_back
from goalscope.worlds.environments.solution import solve_table
from goalscope.worlds.planning import TabularMDP
from goalscope.worlds.planning.process import Process

# Three thirds in float32 sum to 1 + 2.98e-8, beyond the 1e-8 that float64 is allowed.
THIRDS = np.full(3, 1 / 3, dtype=np.float32)
TABLE = np.broadcast_to(THIRDS, (3, 2, 3)).copy()
POLICY = np.array([[0.1, 0.9], [0.7, 0.3], [0.9, 0.1]], dtype=np.float32)


def process(**changes: Any) -> TabularMDP:
    """Return a process of three states whose table and start are float32."""
    parts: dict[str, Any] = {
        "transitions": TABLE,
        "start": THIRDS,
        "utility": np.array([0.0, 0.5, 1.0], dtype=np.float32),
        "horizon": 3,
    }
    return TabularMDP(**parts | changes)


class Foreign:
    """An array of another library, which numpy can read, as JAX's."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values."""
        return self.values if dtype is None else self.values.astype(dtype)


def test_a_float32_process_and_policy_are_normalised_and_it_is_said_once() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        mdp = process()
        found = meg_known(mdp, POLICY)
        meg_known(process(), POLICY)
    assert sorted(str(one.message).split()[0] for one in said) == ["policy:", "start:", "transitions:"]
    assert all("float32" in str(one.message) for one in said)
    np.testing.assert_allclose(mdp.start.sum(), 1, rtol=0, atol=1e-15)
    np.testing.assert_allclose(mdp.transitions.sum(axis=2), 1, rtol=0, atol=1e-15)
    exact = process(transitions=np.full((3, 2, 3), 1 / 3), start=np.full(3, 1 / 3))
    double = np.array([[0.1, 0.9], [0.7, 0.3], [0.9, 0.1]])
    assert found.value == pytest.approx(meg_known(exact, double).value, abs=1e-7)


def test_tensors_on_a_graph_and_arrays_of_other_libraries_are_read() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.tensor(stream(0, "logits").normal(size=(3, 2, 3)), dtype=torch.float32, requires_grad=True)
    table = torch.softmax(logits, dim=-1)
    policy = torch.softmax(torch.zeros(3, 2, requires_grad=True), dim=-1)
    with pytest.warns(UserWarning, match=r"transitions: .*float32"):
        mdp = process(transitions=table, start=torch.tensor([0.5, 0.5, 0]), utility=Foreign([0.0, 1.0, 2.0]))
    assert mdp.transitions.dtype == np.float64 and mdp.utility.tolist() == [0, 1, 2]
    assert meg_known(mdp, policy).value == pytest.approx(0, abs=1e-12)
    foreign: Any = Foreign(np.full((3, 2), 0.5))
    assert meg_unknown(mdp, foreign).value == pytest.approx(0, abs=1e-6)
    successor = torch.tensor([[0, 1], [1, 2], [2, 0]])
    ring = TabularMDP.deterministic(successor, utility=np.eye(3)[0], horizon=2, start=Foreign(np.eye(3)[0]))
    assert np.asarray(ring.transitions).tolist() == successor.tolist()
    with pytest.raises(ValueError, match="numpy"):
        to_array("policy", torch.full((3, 2), 0.5, dtype=torch.bfloat16))


@pytest.mark.parametrize("entries", [3, 300, 20_000])
def test_rows_of_every_length_within_rounding_are_accepted(entries: int) -> None:
    numbers = stream(0, "row", entries).normal(size=(4, entries)).astype(np.float32)
    weights = np.exp(numbers)
    rows = weights / np.cumsum(weights, axis=1, dtype=np.float32)[:, -1:]  # the coarsest way to sum in float32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = to_distributions("policy", rows)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12)
    beyond = rows.astype(np.float64) * (1 + 2 * float(rounding_of(entries)))
    with pytest.raises(ValueError, match=r"policy.*1 .* index \(0,\)"):
        to_distributions("policy", beyond)


def test_exact_rows_keep_their_bits_and_say_nothing() -> None:
    rows = np.array([[0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]])
    assert to_distributions("policy", rows).tobytes() == rows.tobytes()


def test_half_precision_and_sums_that_are_wrong_are_refused_with_row_and_sum() -> None:
    half = np.array([[0.5, 0.5], [0.3, 0.7]], dtype=np.float16)
    with pytest.raises(
        ValueError, match=r"half precision.*got 1\.0\d+ at index \(1,\)|half.*got 0\.9\d+ at index \(1,\)"
    ):
        meg_known(process(transitions=np.full((3, 2, 3), 1 / 3), start=np.eye(3)[0]), np.vstack([half, half[:1]]))
    wrong = TABLE.copy()
    wrong[2, 1, 0] += np.float32(1e-4)
    with pytest.raises(ValueError, match=r"transitions .*got 1\.0001\d* for state 2 and action 1"):
        process(transitions=wrong, start=np.eye(3)[0])
    with pytest.raises(ValueError, match=r"start.*finite.*got inf"):
        process(start=np.array([np.inf, 0, 0], dtype=np.float32))
    with pytest.raises(ValueError, match=r"start.*got 0\.0"):
        process(start=np.zeros(3, dtype=np.float32))


def test_sparse_rows_are_those_of_the_dense_table() -> None:
    with pytest.warns(UserWarning, match="transitions"):
        dense = to_distributions("transitions", TABLE)
    with pytest.warns(UserWarning, match="transitions"):
        sparse = to_sparse_distributions("transitions", csr_array(TABLE.reshape(6, 3)), 2)
    assert sparse.toarray().tobytes() == dense.reshape(6, 3).tobytes()
    with pytest.raises(ValueError, match="for state 1 and action 0"):
        to_sparse_distributions("transitions", csr_array(np.array([[1, 0], [1, 0], [0.5, 0.4], [0, 1]])), 2)
    with pytest.warns(UserWarning, match=r"start|transitions"):
        found = Process(transitions=csr_array(TABLE.reshape(6, 3)), start=THIRDS.astype(np.float64), number=None)
    assert found.start.sum() == pytest.approx(1, abs=1e-15) and found.transitions.dtype == np.float64


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1e-320, 0.0], [np.nan, 1.0], [np.inf, 1.0], [1e308, 1e308], [-1, 2]])
def test_weights_without_a_normal_sum_are_refused_by_name(weights: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^the weights"):
        to_shares("the weights of a policy", weights)
    assert to_shares("weights", np.array([1, 3], dtype=np.float32)).tolist() == [0.25, 0.75]


def test_chances_by_outcome() -> None:
    outcomes, distance = to_chances("step", {"a": THIRDS[0], "b": THIRDS[1], "c": THIRDS[2], "d": 0})
    assert sum(outcomes.values()) == pytest.approx(1, abs=1e-15) and 1e-8 < distance < 1e-7 and "d" not in outcomes
    for wrong in ({"a": 0.5, "b": 0.4}, {"a": 1.2, "b": -0.2}, {"a": np.nan, "b": 1}):
        with pytest.raises(ValueError, match=r"step.*chances"):
            to_chances("step", wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note_rounding("step", 1e-9)


class Slippery:
    """A ring of three cells; an action reaches each of them with equal float32 chances."""

    actions: tuple[str, ...] = ("left", "right")

    def initial(self) -> dict[int, Any]:
        """Begin anywhere."""
        return dict(enumerate(THIRDS))

    def step(self, state: int, action: int) -> dict[int, Any]:
        """Slip."""
        return dict(enumerate(THIRDS))

    def done(self, state: int) -> bool:
        """The goal ends an episode."""
        return self.goal(state)

    def goal(self, state: int) -> bool:
        """Cell 2."""
        return state == 2

    def observe(self, state: int) -> Observed:
        """The cell."""
        return Observed(text=str(state))

    def describe(self) -> dict[str, Any]:
        """No parameters."""
        return {"environment": "slippery"}


def test_an_environment_with_float32_chances_is_enumerated_and_played_back() -> None:
    with pytest.warns(UserWarning, match=r"initial\(\) and step\(\)") as said:
        table = enumerate_states(Slippery())
    assert len(said) == 1
    assert table.start.sum() == pytest.approx(1, abs=1e-15)
    assert table.chance.reshape(4, 3).sum(axis=1) == pytest.approx(np.ones(4), abs=1e-15)
    assert play_back(solve_table(table), Slippery, episodes=20).asked == 4


def test_a_hypothesis_given_as_a_float32_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import numpy\n\ndef policy(world):\n    return numpy.full((3, 3), 1 / 3, dtype=numpy.float32)\n"
    (tmp_path / "thirds.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    world = FiniteWorld(
        world=None,  # type: ignore[arg-type]
        process=Process(transitions=np.array([[0, 1, 2]] * 3), start=np.eye(3)[0], number=None),
        horizon=2,
    )
    with own.allowed(), pytest.warns(UserWarning, match=r"thirds:policy: .*float32"):
        solved = parse("table thirds:policy").solved(world)
    assert solved.policy.sum(axis=-1) == pytest.approx(np.ones((1, 3)), abs=1e-15)


def test_chances_of_a_causal_model_may_be_float32() -> None:
    with pytest.warns(UserWarning, match="of rain"):
        found = Variable(name="rain", values=(0, 1, 2), chances=THIRDS)
    assert np.asarray(found.chances).sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("form", ["json", "npz"])
def test_the_command_takes_a_float32_file_and_says_so_once(tmp_path: Path, form: str) -> None:
    parts = {"horizon": np.int64(3), "start": THIRDS, "utility": np.arange(3.0), "transitions": TABLE, "policy": POLICY}
    path = tmp_path / f"world.{form}"
    if form == "npz":
        np.savez(path, **parts)  # type: ignore[arg-type]
    else:
        path.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in parts.items()}))
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as outside of tests: the command prints them
        result = CliRunner().invoke(app, ["meg", str(path), "--json"])
    assert result.exit_code == 0, result.output
    assert result.stderr.count("transitions: ") == 1 and "float32" in result.stderr
    assert json.loads(result.stdout)["known"]["value"] >= 0
