"""`import goalscope` offers what people use; results are records, frames and tables; what was changed is refused."""

import ast
import json
import logging
import os
import pydoc
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import goalscope
from families import long_after
from goalscope.cli import app
from goalscope.runs import Store
from goalscope.runs.tables import remove_episodes
from goalscope.stats.records import html_table
from goalscope.verdict import Evaluation
from goalscope.verdict.judging import reopened
from goalscope.verdict.opening import Checked, judged_again
from goalscope.verdict.page import CheckedPage, compare_page, same_text
from goalscope.verdict.plan import PAGE
from page_numbers import deviations
from tampered import resealed

NOTEBOOK = Path(__file__).parents[2] / "docs" / "first-notebook.ipynb"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    out = tmp_path_factory.mktemp("door") / "two"
    return goalscope.evaluate(["optimal", "random"], out, arms=["grids", "keys"], sizes=[7], quick=True, seed=7)


def sealed(directory: Path, change: Any) -> None:
    """Change the ledger of an evaluation as somebody does who knows how its digest is found."""
    path = directory / "ledger.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(resealed(fields))


def test_the_door_is_light_and_fits_on_a_screen() -> None:
    code = (
        "import sys, goalscope\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'numpy', 'pydantic', 'scipy'}))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
    offered = ["evaluate", "run", "measure", "towards", "compare", "predict", "open", "Study", "World", "Agent"]
    assert set(offered) <= set(dir(goalscope)) and len(dir(goalscope)) <= 18
    plain = pydoc.plaintext  # type: ignore[attr-defined]
    text = pydoc.render_doc(goalscope, renderer=plain).partition("PACKAGE CONTENTS")[0]
    assert all(name in text for name in offered) and len(text.splitlines()) <= 40
    assert all(callable(getattr(goalscope, name)) for name in offered)
    with pytest.raises(AttributeError, match="evaluat"):
        _ = goalscope.evaluat


def test_the_package_of_evaluations_has_the_function_of_that_name() -> None:
    from goalscope.verdict import evaluate

    assert evaluate is goalscope.evaluate and callable(evaluate)


def test_meg_is_a_plain_module_and_towards_measures_a_run(found: Evaluation) -> None:
    from goalscope.goals.meg.known import meg_known

    assert goalscope.meg.meg_known is meg_known and not callable(goalscope.meg)
    run = shutil.copytree(found.directory / "arms" / "grids-2", found.directory.parent / "copy")
    goals = goalscope.towards(run, hypotheses=("goal",))
    assert {one.agent for one in goals.estimates} == {"random"}
    assert [one["hypothesis"] for one in goals.records] == ["goal"] and "random" in goals._repr_html_()


def test_an_evaluation_is_records_a_frame_and_a_table(found: Evaluation, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    assert found.complete and not found.failed
    assert {claim["model"] for claim in found.claims} == {"optimal", "random"}
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(found.claims)
    assert found._repr_html_().count("<tr>") == len(found.claims) + 1
    assert found.report(tmp_path / "page.html").read_bytes() == found.report().read_bytes()
    again = goalscope.open(found.directory)
    assert (
        isinstance(again, Evaluation)
        and again.models == found.models
        and set(again.runs) == {*("grids", "grids-2", "keys", "keys-2")}
    )


def test_texts_of_strangers_are_text_in_a_notebook() -> None:
    table = html_table(("<b>a",), [("<script>alert(1)</script> & 'x'",), (None,)])
    assert "<script" not in table and "&lt;script&gt;" in table and "<b>" not in table


def test_a_run_is_read_by_one_model(found: Evaluation) -> None:
    run = found.runs["grids"]
    episodes = run.episodes()
    assert len(episodes) == 18 and {one["agent"] for one in episodes} == {"optimal"}
    steps = run.steps(episodes[0]["episode_id"])
    assert len(steps) == episodes[0]["steps"]
    assert len(run.rows(measure="success")) == 18 and "success" in {one["measure"] for one in run.estimates().records}
    compared = goalscope.compare(found, measures=["success"])
    expected = [("grids", "MEG towards the goal"), ("grids", "success"), ("keys", "success")]
    assert [(one["arm"], one["measure"]) for one in compared.records] == expected
    assert "optimal" in compared._repr_html_()
    opened = goalscope.open(run.path)
    assert not isinstance(opened, Evaluation) and opened.agents == run.agents
    with pytest.raises(KeyError, match="nothing"):
        run.steps("nothing")


def test_what_is_no_run_and_no_evaluation_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither a run \(run\.db\) nor an evaluation \(ledger\.json\)"):
        goalscope.open(tmp_path)


def test_lines_go_to_standard_error_or_to_the_logger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run = goalscope.run("scripted", tmp_path / "run", shard="1/90")
    assert "episodes run" in capsys.readouterr().err
    with caplog.at_level(logging.INFO, logger="goalscope"):
        goalscope.measure(run, measures=["success"])
    assert any("measured" in record.message for record in caplog.records) and not capsys.readouterr().err


def check_page(directory: Path) -> CheckedPage:
    with reopened(directory) as opened:
        return compare_page(opened)


def test_an_edited_page_is_named_and_an_untouched_one_is_sound(found: Evaluation, tmp_path: Path) -> None:
    one = shutil.copytree(found.directory, tmp_path / "one")
    page = one / "report.html"
    sound = page.read_bytes()
    for edited in (sound.replace(b"random", b"Random", 1), sound + b" ", sound.replace(b"<p>", b"<p>Yes. ", 1)):
        assert edited != sound
        page.write_bytes(edited)
        assert str(page) in check_page(one).deviation
    page.unlink()
    assert str(page) in check_page(one).deviation
    page.write_bytes(sound)
    verified = CliRunner().invoke(app, ["verify", str(one)])
    assert verified.exit_code == 0 and "grids" in verified.output and "keys" in verified.output
    assert "the page that the ledger and the runs give" in " ".join(verified.output.split())


@pytest.mark.parametrize(
    "number",
    [
        r"<span>Questions</span><strong>(\d)",
        r"(\d)\.\d{3} \[[^\]]*\] nats per episode",
        r'data-label="estimate">(\d)\.',
        r'data-label="estimate">[^<]*<span>\[.?(\d)',
        r'data-label="threshold">0\.(\d)',
        r'data-label="worlds">(\d)',
        r'data-label="n">(\d)',
        r'class="ends" x1="(\d)\d\.',
        r'class="threshold" x1="(\d)\d\.',
        r"</strong><span>(\d)\.\d+ \[",
        r"threshold 0\.(\d): ",
        r"The intervals cover (\d)",
        r"(?:optimal|random),goal,share,-?(\d)\.",
        r'data-label="first minus second">[−+](\d)',
    ],
)
def test_a_number_of_a_page_that_differs_from_the_ledger_is_found(found: Evaluation, number: str) -> None:
    page = found.report().read_text()
    assert not deviations(page, found)
    digit = re.search(number, page)
    assert digit is not None
    at = digit.start(1)
    assert deviations(f"{page[:at]}{(int(page[at]) + 4) % 10}{page[at + 1 :]}", found)


@pytest.mark.full
def test_the_command_names_an_edited_page_whose_digest_was_changed_too(found: Evaluation, tmp_path: Path) -> None:
    one = shutil.copytree(found.directory, tmp_path / "one")
    page, ledger = one / "report.html", (one / "ledger.json").read_bytes()
    page.write_bytes(page.read_bytes().replace(b"<p>", b"<p>Yes. ", 1))
    sealed(one, lambda fields: fields.update(page=sha256(page.read_bytes()).hexdigest()))
    verified = CliRunner().invoke(app, ["verify", str(one), "--json"])
    assert verified.exit_code == 1 and str(page) in json.loads(verified.stdout)["page"]
    assert not json.loads(verified.stdout)["deviations"]
    (one / "ledger.json").write_bytes(ledger)
    assert str(page) in check_page(one).deviation


@pytest.mark.full
def test_an_edited_page_whose_digest_was_changed_too_is_named(found: Evaluation) -> None:
    page = found.directory / "report.html"
    sound = page.read_bytes()
    with reopened(found.directory) as opened:  # what is measured for one comparison serves the next ones
        assert compare_page(opened) == ("", "the digest in the ledger, and the page that the ledger and the runs give")
        try:
            for edited in (sound.replace(b"random", b"Random", 1), sound + b" ", sound.replace(b"<p>", b"<p>Yes. ", 1)):
                page.write_bytes(edited)
                digest = sha256(edited).hexdigest()
                forged = opened._replace(ledger=opened.ledger.model_copy(update={"page": digest}))
                assert str(page) in compare_page(forged).deviation
        finally:
            page.write_bytes(sound)


def test_a_page_of_another_version_is_no_false_alarm(found: Evaluation, tmp_path: Path) -> None:
    one = shutil.copytree(found.directory, tmp_path / "one")
    sealed(one, lambda fields: fields["origin"].update(goalscope="0.0.1"))
    checked = check_page(one)
    assert not checked.deviation and "0.0.1" in checked.basis
    (one / "report.html").write_bytes((one / "report.html").read_bytes() + b" ")
    assert "report.html" in check_page(one).deviation
    sealed(one, lambda fields: fields.update(page=""))  # as where a page was not written: it has none
    assert "report.html" in check_page(one).deviation
    (one / "report.html").unlink()
    assert not check_page(one).deviation


def test_numbers_on_a_page_may_be_rounded_otherwise_and_nothing_else_may_differ() -> None:
    text = '<p>0.25 of 12 worlds</p><path d="M1.5 2.0e-3"/>'
    assert same_text(text, text.replace("0.25", "0.2500000001"))
    for before, after in (("0.25", "0.26"), ("12", "13"), ("worlds", "grids"), ("1.5 ", "1.5 1.5 "), ("2.0", "-2.0")):
        assert not same_text(text, text.replace(before, after))


@pytest.mark.full
def test_an_answer_that_the_runs_do_not_lead_to_is_refused(found: Evaluation, tmp_path: Path) -> None:
    one = shutil.copytree(found.directory, tmp_path / "one")

    def say_yes(fields: Any) -> None:
        claim = next(claim for claim in fields["models"][0]["claims"] if claim["answer"] == "undecided")
        claim["answer"] = "yes"

    text = (one / "ledger.json").read_text()
    (one / "ledger.json").write_text(text.replace('"undecided"', '"yes"', 1))
    plain = CliRunner().invoke(app, ["ledger", str(one)])
    assert plain.exit_code == 2 and "goalscope evaluate again" in plain.output
    (one / "ledger.json").write_text(text)
    assert judged_again(one) == Checked(deviations=(), changed=(), added=(), failed=())
    sealed(one, say_yes)
    shown = CliRunner().invoke(app, ["ledger", str(one)])
    assert shown.exit_code == 2 and "goalscope evaluate again" in " ".join(shown.output.split())
    verified = CliRunner().invoke(app, ["verify", str(one), "--json"])
    assert verified.exit_code == 1 and json.loads(verified.stdout)["deviations"]


def test_a_claim_of_a_package_that_is_not_installed_is_named(found: Evaluation, tmp_path: Path) -> None:
    one = shutil.copytree(found.directory, tmp_path / "one")
    sealed(one, lambda fields: fields["models"][0]["claims"][0].update(name="goes straight"))
    shown = CliRunner().invoke(app, ["ledger", str(one)])
    assert shown.exit_code == 2 and "“goes straight”: install the package" in " ".join(shown.output.split())


@pytest.mark.full
def test_numbers_of_another_machine_are_the_same_and_others_are_not(found: Evaluation, tmp_path: Path) -> None:
    one = shutil.copytree(found.directory, tmp_path / "one")

    def times(factor: float) -> Any:
        def change(fields: Any) -> None:
            for claim in fields["models"][0]["claims"]:
                if claim["value"]:
                    claim["value"] *= factor
                    return

        return change

    sealed(one, times(1 + 1e-9))
    assert not judged_again(one).deviations
    sealed(one, times(1.001))
    [deviation] = judged_again(one).deviations
    assert "value" in deviation


def test_claims_whose_worlds_need_code_of_ones_own_are_printed_and_not_compared(
    found: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise ValueError("it must be allowed")

    monkeypatch.setattr("goalscope.verdict.evidence.directedness", refuses)
    shown = CliRunner().invoke(app, ["ledger", str(found.directory)])
    assert shown.exit_code == 0 and "it must be allowed" in " ".join(shown.output.split())
    assert CliRunner().invoke(app, ["verify", str(found.directory)]).exit_code == 1


@pytest.mark.full
def test_rows_that_were_added_after_the_verdict_are_told_and_nothing_is_wrong(
    found: Evaluation, tmp_path: Path
) -> None:
    one = shutil.copytree(found.directory, tmp_path / "one")
    goalscope.towards(one / "arms" / "keys", hypotheses=("goal",))
    checked = judged_again(one)
    assert not checked.deviations and not checked.changed
    assert len(checked.added) == 1 and "keys" in checked.added[0]
    assert CliRunner().invoke(app, ["ledger", str(one)]).exit_code == 0
    verified = CliRunner().invoke(app, ["verify", str(one)])
    assert verified.exit_code == 0 and "all claims agree" in verified.output and "the run keys" in verified.output
    record = json.loads(CliRunner().invoke(app, ["verify", str(one), "--json"]).stdout)
    assert record["added"] and not record["page"], record
    with Store(one / "arms" / "grids", "w") as store, store.transaction() as database:
        remove_episodes(database, [min(store.episode_ids())])
    assert len(judged_again(one).changed) == 1


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("expected", ["the page", "another page"])
def test_a_page_is_built_again_where_rows_were_added_and_is_not_wrong_for_them(
    added: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PAGE).write_text("the page", encoding="utf-8")
    digest = sha256(b"the page").hexdigest()
    ledger = SimpleNamespace(page=digest, origin=SimpleNamespace(goalscope=goalscope.__version__))
    evaluation: Any = SimpleNamespace(run=SimpleNamespace(directory=tmp_path), ledger=ledger, runs={})
    monkeypatch.setattr("goalscope.verdict.page.text_of", lambda *_: expected)
    same = expected == "the page"
    compared = compare_page(evaluation, added=added)
    assert bool(compared.deviation) == (not same and not added)
    if same:  # whatever was added, as for a measure that no part of the page shows
        assert compared == compare_page(evaluation)


def test_a_larger_evaluation_is_verified_on_demand(
    found: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalscope.verdict.opening.SOON", 10)
    shown = CliRunner().invoke(app, ["ledger", str(found.directory)])
    assert shown.exit_code == 0 and "goalscope verify" in shown.output


def test_an_evaluation_says_what_it_was_judged_by(found: Evaluation) -> None:
    origin = found.origin
    assert origin is not None and (origin.goalscope, origin.seed) == (goalscope.__version__, 7)
    assert origin.arguments["passed"]["models"] == ["optimal", "random"]
    for name, digest in origin.runs.items():
        with Store(found.directory / "arms" / name) as store:
            from goalscope.runs import content_hash

            assert content_hash(store) == digest
        assert digest in found.report().read_text()


@pytest.mark.parametrize("words", long_after(1, [["show"], ["show", "--agent", "random"], ["show", "--json"]]))
def test_commands_take_the_directory_of_an_evaluation(found: Evaluation, words: list[str]) -> None:
    done = CliRunner().invoke(app, [words[0], str(found.directory), *words[1:]])
    assert done.exit_code == 0, done.output
    assert "grids" in done.output and "keys" in done.output


def test_an_episode_of_an_evaluation_is_shown_and_its_tables_exported(found: Evaluation, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    identity = found.runs["keys"].episodes()[0]["episode_id"]
    done = CliRunner().invoke(app, ["show", str(found.directory), identity, "--json"])
    record = json.loads(done.stdout)
    assert record["episode_id"] == identity and len(record["steps"]) > 0
    assert CliRunner().invoke(app, ["export", str(found.directory), "--out", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "keys" / "rows.parquet").exists() and (tmp_path / "grids" / "steps.parquet").exists()


def test_two_evaluations_are_compared_in_goal_directedness_first(found: Evaluation, tmp_path: Path) -> None:
    other = goalscope.evaluate(
        "epsilon-greedy:epsilon=0.5", tmp_path / "b", arms=["grids"], sizes=[7], quick=True, seed=7
    )
    files = ["--measures", "success", "--json", str(tmp_path / "found.json")]
    done = CliRunner().invoke(app, ["compare", str(found.directory), str(other.directory), *files])
    assert done.exit_code == 0, done.output
    stored = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    nats, shares = stored["comparisons"][:2], stored["comparisons"][2:]
    assert len(shares) == 2 and stored["measures"] == ["MEG towards the goal", "success"]
    assert {(one["arm"], one["measure"], one["unit"]) for one in nats} == {("grids", "MEG towards the goal", "nats")}
    assert {(one["arm"], one["measure"], one["unit"]) for one in shares} == {("grids", "success", "share")}
    # The difference is that of the values which both verdicts state, in nats an episode.
    signed: dict[str, float] = {}
    for evaluation in (found, other):
        for run in (run for name, run in evaluation.runs.items() if name.startswith("grids")):
            signed |= {one.agent: one.signed for one in goalscope.towards(run, hypotheses=("goal",)).estimates}
    for one in nats:
        first, second = (one[side].partition(": ")[2] for side in ("first", "second"))
        assert one["difference"] == pytest.approx(signed[first] - signed[second], abs=1e-4)
        assert one["low"] < one["difference"] < one["high"] and one["grids"] == 18
    # What each is after stands beside it, in the answers and words of the ledgers.
    answers = {model.model: {one.answer for one in model.findings} for each in (found, other) for model in each.models}
    assert {one["model"]: {one["answer"]} for one in stored["findings"]} == answers
    assert answers["optimal"] == {"yes"} and all(one["finding"] for one in stored["findings"])
    assert done.output.index("MEG towards the goal") < done.output.index("Success")
    with pytest.raises(ValueError, match="evaluations"):
        goalscope.compare(found, other.runs["grids"])


@pytest.mark.parametrize("command", ["run", "measure", "estimate"])
def test_results_are_printed_as_json(command: str, found: Evaluation, tmp_path: Path) -> None:
    words = {
        "run": ["run", "scripted", "--out", str(tmp_path / "run"), "--shard", "1/90", "--json"],
        "measure": ["measure", str(found.directory / "arms" / "grids"), "--measures", "success", "--json"],
        "estimate": ["estimate", "scripted", "--json"],
    }[command]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    plain = json.loads(done.stdout)
    assert {"run": "episodes", "measure": "value", "estimate": "costs"}[command] in (
        plain[0] if command == "measure" else plain
    )


def test_each_link_of_a_claim_leads_to_its_number(found: Evaluation) -> None:
    """Each link of the page has a target; where it is one of a claim, the printed number stands in that section."""
    page = found.report().read_text()
    ids = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'<a href="#([^"]+)"', page)) <= ids
    seen = 0
    for number, ledger in enumerate(found.models):
        target = f"evidence-{number}" if number else "evidence"
        at = page.index(f'id="{target}"')
        section = unescape(re.sub(r"<[^>]+>", " ", page[at : page.index("</section>", at)]))
        for claim in ledger.claims:
            links = re.findall(rf'<a href="#([^"]+)">{re.escape(claim.answer)}</a>', page)
            assert target in links
            if claim.value is not None:
                value = claim.estimate.split()[0]
                assert claim.name in section and value in section, (claim.name, value)
                seen += 1
    assert seen > 15


def test_the_notebook_needs_the_door_alone() -> None:
    sources = notebook_cells()
    imports = [
        node for text in sources for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert len(sources) <= 10 and [ast.unparse(node) for node in imports] == ["import goalscope"]
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    text = "\n".join(sources)
    offered = [node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)
               and isinstance(node.value, ast.Name) and node.value.id == "goalscope"]  # fmt: skip
    assert "evaluate" in offered and all(hasattr(goalscope, name) for name in offered)


@pytest.mark.full
def test_the_notebook_runs(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    script = tmp_path / "notebook.py"  # a process of its own: its measure is registered there
    script.write_text("\n".join([*notebook_cells(), "print(own.records)"]))
    environment = {**os.environ, "MPLBACKEND": "agg"}
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "verdict" / "report.html").exists() and "turns up" in told.stdout
    assert "deciding" in told.stderr  # progress is shown


def notebook_cells() -> list[str]:
    """Return the code of the notebook, cell by cell."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
