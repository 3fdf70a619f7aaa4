"""A package of others with worlds, an environment and a measure that fails: used, and then taken away."""

import json
import tomllib
from pathlib import Path

import pytest
from program import Program
from test_plugin import HERE, MEASURE, STRANGE, install

from goalscope.runs import Store


@pytest.fixture
def program(tmp_path: Path) -> Program:
    site, folder = tmp_path / "site", tmp_path / "work"
    folder.mkdir()
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    modules = {str(path.relative_to(HERE)): path.read_text(encoding="utf-8") for path in HERE.glob("*/*.py")}
    install(site, project["name"], modules, project["entry-points"]["goalscope"])
    install(site, "goalscope-strange", {"strange.py": STRANGE}, {"strange": "strange"})
    for name in ("study", "ice", "gems"):
        (folder / f"{name}.yaml").write_text((HERE / f"{name}.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    # The same environment without its package's name: a class of a module in the working directory.
    module = (HERE / "goalscope_compass" / "environment.py").read_text(encoding="utf-8")
    (folder / "fields.py").write_text(
        module.replace("gem-field", "own-field").replace("edge of the", "edge of my"), encoding="utf-8"
    )
    text = (folder / "gems.yaml").read_text(encoding="utf-8").replace("source: gem-field", "source: fields:GemField")
    (folder / "own.yaml").write_text(text, encoding="utf-8")
    return Program(folder, site)


@pytest.mark.full
def test_a_package_with_a_measure_that_fails(program: Program, tmp_path: Path) -> None:
    for study in ("study", "ice"):
        run = f"runs/{study}"
        program("run", f"{study}.yaml", "--out", run)
        measured = program("measure", run, status=1)
        (line,) = [line for line in measured.splitlines() if "'one that raises'" in line]
        assert "goalscope-strange 0.1" in line and "KeyError" in line
        with Store(program.folder / run) as store:
            assert {"success", MEASURE} <= set(store.row_counts("behaviour"))
        assert "'a broken section'" in program("report", run, status=1)
        assert MEASURE in (program.folder / run / "report.html").read_text(encoding="utf-8")
        program("show", run)
    asked = ("--worlds", "gems.yaml", "--quick", "--out", "runs/verdict")
    program("evaluate", "environment-optimal", *asked, status=1)
    program("card", "runs/verdict", status=1)  # the claims are decided again, and one is left out again
    own = ("--worlds", "own.yaml", "--quick", "--out", "runs/own")
    told = program("evaluate", "environment-optimal", *own, status=1)
    assert "fields:GemField" in told and "fields.py" in told
    plain, _ = json.JSONDecoder().raw_decode(program("ledger", "runs/own", "--json", status=1))
    claims = plain["models"][0]["claims"]
    assert any(claim["answer"] == "yes" for claim in claims)
    assert program.follow({})
    # Without the packages: what was stored is read; what needs their code says what to install.
    bare = Program(program.folder)
    for study, kind in (("study", "compass"), ("ice", "ice")):
        run = f"runs/{study}"
        assert "goalscope-compass 0.1" in bare("show", run)
        bare("report", run)
        assert f"'{kind}'" in bare("run", f"{study}.yaml", "--out", f"runs/{study}-again", status=2)
        bare("measure", run, status=(0, 2))
