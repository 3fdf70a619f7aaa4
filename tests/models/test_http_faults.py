"""Twenty-five kinds of server faults: each alone is outlived, and a run under all of them is the clean run."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from http_studies import study, template
from server import Loopback, speaker
from server_faults import CHARGED, FAULTS, Mixed
from test_http_runs import kill_and_resume, killed
from tiny_models import request

from contents import hash_of
from families import long_after
from goalscope.agents.models import HttpModel, LocalModel, Sampling, Server
from goalscope.runs import Store, run

GREEDY = Sampling(temperature=0.0, max_tokens=3, reasoning_effort=None)
TOKENS = ("prompt_tokens", "output_tokens", "tokens_at_most")
WAITING: dict[str, Any] = {"timeout": 3.0, "retries": 30, "backoff": 0.002, "patience": 120}


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return speaker()


class Once(Mixed):
    """One fault, at the first request."""

    def draw(self, number: int) -> str | None:
        return self.kinds[0] if number == 1 else None


def test_there_are_twenty_five_kinds() -> None:
    assert len(FAULTS) == 25


@pytest.mark.parametrize("name", long_after(1, FAULTS))
def test_each_kind_alone_is_outlived_and_counted(name: str, model: LocalModel) -> None:
    waiting = WAITING | {"timeout": 1.5 if "deadline" in name else 60.0}
    with Loopback(model, faults=Once(kinds=(name,))) as server:
        asked = HttpModel("speaker", server=Server(base_url=server.url, **waiting))
        (found,) = asked.complete([request("#_")], GREEDY)
        assert [entry.outcome for entry in server.settled()] == [name, "answered"]
        # On a busy machine a connection may be lost before the server reads a request: it is counted and made again.
        assert found.usage["requests"] == asked.budget.calls and 2 <= asked.budget.calls <= 3
        spent = found.usage["prompt_tokens"] + found.usage["output_tokens"]
        if asked.budget.calls == 2:
            assert (asked.budget.tokens > spent) == (name in CHARGED), "what may have been charged counts at its most"
        assert found.answer


def under_faults(model: LocalModel, folder: Path, faults: Mixed, timeout: float, **size: int) -> Counter[str]:
    """Run a study under faults and without; return how often each kind was met."""
    waiting = WAITING | {"timeout": timeout}
    with Loopback(model) as clean:
        run(study(clean.url, template(folder), server=waiting, **size), folder / "clean", workers=4)
    with Loopback(model, faults=faults) as server:
        summary = run(study(server.url, template(folder), server=waiting, **size), folder / "faults", workers=4)
        met = server.outcomes()
        assert set(server.answered().values()) == {1}, "an answer that arrived was asked for again"
        assert met["answered"] == summary.calls and summary.lost == 0
    assert hash_of(folder / "faults") == hash_of(folder / "clean")
    with Store(folder / "faults") as store:
        ((made,),) = store.query("SELECT sum(json_extract(usage, '$.requests')) FROM calls")
    assert made == sum(met.values()), "every request is counted"
    return met


def test_a_run_under_faults_of_many_kinds_is_the_clean_run(model: LocalModel, tmp_path: Path) -> None:
    # Without those that are late: on a busy machine, an answer may be, too.
    kinds = tuple(name for name in FAULTS if "deadline" not in name)
    met = under_faults(model, tmp_path, Mixed(share=0.5, seed=7, kinds=kinds), 60, count=2, trajectories=2, steps=5)
    assert len(set(met) & set(FAULTS)) >= 8


@pytest.mark.full
def test_a_long_run_under_a_fifth_of_faults_of_all_kinds_is_the_clean_run(model: LocalModel, tmp_path: Path) -> None:
    met = under_faults(model, tmp_path, Mixed(seed=7), WAITING["timeout"], count=8, trajectories=10, steps=10)
    assert set(FAULTS) <= set(met), "each kind was met"


@pytest.mark.full
def test_kills_and_faults_of_all_kinds_together_end_like_a_clean_run(model: LocalModel, tmp_path: Path) -> None:
    with Loopback(model, delay=0.01, faults=Mixed(seed=5)) as server:
        asked = study(server.url, template(tmp_path), count=6, trajectories=6, steps=8, server=WAITING)
        kill_and_resume(server, asked, tmp_path, [40, 90, 60, 25], restarts=True)


@pytest.mark.full
@pytest.mark.parametrize("workers", [3, 64])
@pytest.mark.parametrize("kills", [(), (5, 4, 3)], ids=["sessions", "kills"])
@pytest.mark.parametrize(("cap", "most"), [("calls", 25), ("tokens", 9000), ("usd", 90.0)])
def test_caps_hold_under_faults_of_all_kinds(
    cap: str, most: float, kills: tuple[int, ...], workers: int, model: LocalModel, tmp_path: Path
) -> None:
    """Whatever a server charges for, all stays below its cap over sessions, workers, retries and kills."""
    path, out = tmp_path / "study.yaml", tmp_path / "run"
    prices = {"input": 1e4, "output": 2e4, "date": "2025-08-05"}
    with Loopback(model, delay=0.01, spread=0.05, faults=Mixed(share=0.4, seed=3)) as server:
        asked = study(server.url, template(tmp_path), caps={cap: most}, prices=prices, server=WAITING)
        path.write_text(yaml.safe_dump(asked.dump()), encoding="utf-8")
        for at in kills:
            killed(path, out, server, at, workers)
        for _ in range(4):
            with pytest.raises(ValueError, match=f"caps.{cap}"):
                run(asked, out, workers=workers)
        made = len(server.log)
        with Store(out) as store:
            held = store.query("SELECT lost, usage FROM calls")
    usages = [json.loads(usage or "{}") for _, usage in held]
    spent = {
        "calls": sum(lost for lost, _ in held) + sum(usage.get("requests", 0) for usage in usages),
        "tokens": sum(usage.get(name, 0) for usage in usages for name in TOKENS),
        "usd": sum(usage.get("usd", 0.0) for usage in usages),
    }
    assert made <= spent["calls"] <= made + workers * len(kills), "a call under way at a kill counts as sent"
    assert spent[cap] <= most
    sys.stdout.write(f"{cap}: {spent[cap]:.6g} of {most:.6g}, {made} requests, {len(kills)} kills\n")
