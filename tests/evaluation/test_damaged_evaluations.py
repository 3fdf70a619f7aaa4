"""Flipped bits, cuts and zeroed pages in each file of an evaluation: detected, or without effect on any number."""

import shutil
from pathlib import Path

import pytest
from killed_evaluations import quiet

from flipped import FULL, attack
from goalscope.verdict import Evaluation, judging, playing, subject_of
from goalscope.verdict.plan import LEDGER, PLAN, Plan, prepare

SOME = pytest.mark.parametrize(
    "changes", [{"flip": 30, "cut": 8, "page": 2}, pytest.param(FULL, marks=pytest.mark.full)], ids=["few", "full"]
)
SIZES = {"keys": 1}
SAYS = r"failed: \w+Error: .*(run\.db.*(doctor|copy)|(doctor|copy).*run\.db)"


def judged(directory: Path, *, play: bool = True) -> str:
    """Evaluate a noisy agent; what fails is an error here."""
    run = prepare(directory, [subject_of("epsilon-greedy:epsilon=0.3")], SIZES, seed=7)
    if play:
        playing.play(run, quiet)
    with judging.opened(run) as data:
        found = judging.judge(run, data)
    if run.failures.failed:
        raise ValueError(run.failures.failed)
    judging.write(run, found)
    return found.to_json()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "one"
    judged(folder)
    return folder


@SOME
@pytest.mark.parametrize("name", [LEDGER, PLAN])
def test_no_bit_of_a_ledger_or_a_plan_changes_what_it_says(
    sound: Path, tmp_path: Path, changes: dict[str, int], name: str
) -> None:
    path = tmp_path / name

    def read(content: bytes) -> object:
        path.write_bytes(content)
        return Evaluation.read(path).to_json() if name == LEDGER else Plan.read(path).model_dump()

    advice = "evaluate again" if name == LEDGER else "another directory"
    found = attack(name, (sound / name).read_bytes(), read, changes, says=f"{name}.*{advice}", seed=8)
    assert found["flip"] == changes["flip"] and found["page"] == changes["page"]


@pytest.mark.parametrize(
    "changes",
    [{"flip": 6, "cut": 2, "page": 4}, pytest.param({"flip": 200, "cut": 30, "page": 60}, marks=pytest.mark.full)],
    ids=["few", "full"],
)
def test_no_bit_of_the_run_of_an_arm_changes_an_answer(sound: Path, tmp_path: Path, changes: dict[str, int]) -> None:
    """Judged again from what is stored, and played again: the arm says that it is damaged, and is not asked."""
    one = tmp_path / "one"

    def read(content: bytes) -> object:
        shutil.rmtree(one, ignore_errors=True)
        shutil.copytree(sound, one)
        for other in (one / "arms" / "keys").iterdir():
            other.unlink()
        (one / "arms" / "keys" / "run.db").write_bytes(content)
        return judged(one, play=False), judged(one)

    with judging.opened(prepare(sound, [subject_of("epsilon-greedy:epsilon=0.3")], SIZES, seed=7)) as runs:
        next(iter(runs.values())).store.query("PRAGMA wal_checkpoint(TRUNCATE)")
    content = (sound / "arms" / "keys" / "run.db").read_bytes()
    found = attack("run.db of an arm", content, read, changes, says=SAYS, seed=9)
    assert found["cut"] == changes["cut"]
