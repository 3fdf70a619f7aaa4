"""What a plan says that a study costs, held against runs whose server reports usage."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from families import long_after
from goalscope.runs import Store, Study, run
from goalscope.verdict.preflight.cost import costs

TEMPLATE = "{{grid}}\n{{history}}\nGo: "


@pytest.mark.parametrize(
    ("mode", "history"),
    long_after(
        2,
        [
            ("chat", "none"),
            ("completions", "conversation"),
            ("chat", "reasoning"),
            ("chat", "actions"),
            ("chat", "conversation"),
            ("completions", "none"),
            ("completions", "actions"),
            ("completions", "reasoning"),
        ],
        names=2,
    ),
)
def test_no_run_makes_more_calls_than_its_plan_says(mode: str, history: str, tmp_path: Path) -> None:
    from server import Loopback, speaker

    template = tmp_path / "template.txt"
    template.write_text(TEMPLATE, encoding="utf-8")
    model = speaker(positions=16_384)
    model.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with Loopback(model) as server:
        served: dict[str, Any] = {"base_url": server.url, "timeout": 20, "retries": 0, "mode": mode, "preflight": False}
        more = {}
        if mode == "completions":
            served["tokenizer"], more["reasoning"] = str(tmp_path / "tokenizer"), "none"
        study = Study.parse(
            {
                "worlds": [{"kind": "grid", "sizes": [7, 11], "densities": [0.3], "count": 1, "fog_radius": 2}],
                "agents": [
                    {
                        "kind": "chat",
                        "model": "speaker",
                        "task": str(template),
                        "temperature": 1.0,
                        "max_tokens": 4,
                        "reasoning_effort": None,
                        "server": served,
                        **more,
                    }
                ],
                "history": history,
                "failure": {"policy": "retry", "retries": 1},
                "trajectories": 1,
                "horizon": {"steps": 4},
            }
        )
        (cost,) = costs(study)
        run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        ((calls, read, said),) = store.query(
            "SELECT count(*), sum(json_extract(usage, '$.prompt_tokens')), "
            "sum(json_extract(usage, '$.output_tokens')) FROM calls"
        )
    assert cost.prompt is not None and cost.output == 4
    assert cost.tokens == round(cost.prompt * cost.calls) + 4 * cost.calls
    assert calls <= cost.calls and said <= 4 * calls
    if mode == "chat" and history != "reasoning":
        assert read > cost.prompt * calls, "with one token a character, an estimate from words is far from the most"


def test_planning_with_a_bundled_model_imports_no_torch() -> None:
    code = (
        "import sys\nfrom goalscope.cli.program import app\n"
        "app(['estimate', 'cognitive-map', '--count', '1'], standalone_mode=False)\n"
        "sys.exit(9 if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "most output" in done.stdout


@pytest.mark.parametrize("more", [{}, {"prior_symbol": "?"}])
def test_a_run_by_likelihood_takes_what_its_plan_says(more: dict[str, Any], tmp_path: Path) -> None:
    from server import Loopback, speaker

    template = tmp_path / "template.txt"
    template.write_text("{{grid}}\nGo: ", encoding="utf-8")
    model = speaker(positions=16_384)
    model.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with Loopback(model) as server:
        address = {
            "base_url": server.url,
            "mode": "completions",
            "tokenizer": str(tmp_path / "tokenizer"),
            "preflight": False,
        }
        agent = {"kind": "chat", "model": "speaker", "task": str(template), "max_tokens": 4, "reasoning": "none"}
        agent |= {"reasoning_effort": None, "server": address, "answer": "likelihood", "least_mass": 0.0, **more}
        study = Study.parse(
            {
                "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 1, "minimum_distance": 6}],
                "agents": [agent],
                "history": "conversation",
                "trajectories": 1,
                "horizon": {"steps": 3},
            }
        )
        (cost,) = costs(study)
        run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        totals = dict(store.query("SELECT name, SUM(value) FROM usage GROUP BY name"))
    assert totals["requests"] <= cost.calls and totals["requests"] == len(server.log)
    assert cost.prompt is not None and totals["prompt_tokens"] == pytest.approx(cost.prompt * cost.calls, rel=0.02)
    assert cost.output is not None and totals["output_tokens"] == cost.output * cost.calls, "a token for each answer"
