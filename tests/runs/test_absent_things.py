"""A run whose worlds hold things of a package is not called damaged where the package is missing, and loses nothing."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from goalscope.runs.provenance import packages_of
from goalscope.runs.repair import damage
from goalscope.runs.store import Store
from thing_grids import plugin_things

ROOT = Path(__file__).parents[2]
WITH_TOLL_GATES = """
import sys, goalscope, tests.worlds.toll_gate
goalscope.run(goalscope.Study.parse({
    "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.5], "count": 2, "things": ["coin", "toll gate"]}],
    "agents": [{"kind": "optimal"}], "trajectories": 1,
}), sys.argv[1])
"""
WITHOUT = """
import sys
from pathlib import Path
from goalscope._ground.untrusted import AbsentPartError
from goalscope.runs.repair import repair
from goalscope.runs.store import Store
from goalscope.runs.repair import damage
for work in (lambda: damage(Store(sys.argv[1])), lambda: repair(sys.argv[1], write=True),
             lambda: list(Store(sys.argv[1]).episodes())):
    try:
        work()
    except AbsentPartError as error:
        assert str(Path(sys.argv[1]) / "run.db") in str(error) and "'t'" in str(error), error
        print("absent")
"""


def python(code: str, run: Path) -> str:
    """Return what a process of its own prints, in which only the code's own imports register things."""
    done = subprocess.run([sys.executable, "-c", code, str(run)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_with_things_of_an_absent_package_is_neither_damaged_nor_repaired(tmp_path: Path) -> None:
    run = tmp_path / "run"
    python(WITH_TOLL_GATES, run)
    before = sha256((run / "run.db").read_bytes()).hexdigest()
    assert python(WITHOUT, run).split() == ["absent"] * 3
    assert sha256((run / "run.db").read_bytes()).hexdigest() == before
    assert not any("damaged" in path.name or "repair" in path.name for path in run.iterdir())
    with plugin_things(), Store(run) as store:
        assert packages_of(store).keys() == {("thing", "toll gate")} and not damage(store)
