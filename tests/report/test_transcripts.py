"""The report shows some transcripts of agents that write, and nothing that they wrote is markup."""

from pathlib import Path

from goalscope.report import RunData, sections_of, write_report
from goalscope.runs import Store
from measured_runs import HOSTILE, Talker, measured, small_study


def test_a_failure_the_longest_and_a_success_of_agents_that_write(tmp_path: Path) -> None:
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 6}]
    study = small_study(worlds=worlds, trajectories=1, horizon={"steps": 20})
    measured(tmp_path, study, [Talker(), *study.agents()[:1]])
    with Store(tmp_path) as store:
        (told,) = sections_of(RunData.of(store), "transcripts")
        mine = [one for one in store.episodes() if one.agent == HOSTILE]
        page = write_report(store, tmp_path / "page.html").read_text()
    titles = [fold.title for fold in told.folds]
    assert all(HOSTILE in title for title in titles) and 2 <= len(titles) <= 3  # a scripted agent writes nothing
    failed, succeeded = ([one for one in mine if one.success is won] for won in (False, True))
    assert failed and succeeded and "first failure" in titles[0] and "first success" in titles[-1]
    longest = max(len(one.steps) for one in mine)
    assert any("longest" in title and f"{longest} steps" in title for title in titles)
    [text] = told.folds[0].code
    assert "verdict: invalid, no action (" in text and "  | <script>" in text and text.endswith("8 steps more")
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page


def test_agents_that_write_nothing_have_none(tmp_path: Path) -> None:
    measured(tmp_path, small_study(trajectories=1))
    with Store(tmp_path) as store:
        assert sections_of(RunData.of(store), "transcripts") == []
