"""Steering along probes that a run keeps: those of its own model, site and layer; all others are refused by name."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goalscope.agents import ChatAgent
from goalscope.agents.models import LocalModel, Sampling
from goalscope.inside.interventions import Original, Pair, find_pairs
from goalscope.inside.interventions.directions import Steering, kept_probes, steer
from goalscope.inside.interventions.reading import fresh_views, states_of
from goalscope.inside.probing import Features, FitSettings, Probe, ProbeKey, Problem, fit
from goalscope.inside.probing.probe import ProbeStore
from goalscope.runs import Store
from goalscope.worlds import Grid, GridView

sys.path.insert(0, str(Path(__file__).parents[1] / "probing"))
from planted import noise, rooms

SETTINGS = FitSettings(penalties=(1e-2,))
PLAIN = Grid.parse(["#######", "#_____#", "#_____#", "#__A__#", "#___G_#", "#_____#", "#######"])


def fitted(frame: int = 5, **changes: Any) -> dict[str, Probe]:
    """Return a per-cell probe and the one of shuffled labels, of the site pre, layer 1, unless told otherwise."""
    cells = rooms(frame=frame)
    given = Features.of(noise(cells, **changes))
    problems = [
        Problem(
            key=ProbeKey(
                head="percell", target="cells", control=control, site=given.source.site, layer=given.source.layer
            ),
            features=given,
            target=labels,
            tags={"control": control},
        )
        for control, labels in (("none", cells.labels), ("shuffled", cells.labels[::-1].copy()))
    ]
    return dict(zip(("none", "shuffled"), fit(problems, SETTINGS), strict=True))


def kept(directory: Path, **changes: Any) -> Path:
    """Keep both probes in a run."""
    with Store(directory, "w") as store:
        for control, probe in fitted(**changes).items():
            source = probe.source
            ProbeStore(
                store=store,
                decisive={},
                settings={"cells": {}},
                models={("none", None): source.model},
                first="pre/1",
                tags={},
            ).keep(
                {ProbeKey(head="percell", target="cells", control=control, site=source.site, layer=source.layer): probe}
            )
    return directory


def test_the_probes_of_the_same_model_site_and_layer_are_taken(tmp_path: Path) -> None:
    found = kept_probes(kept(tmp_path), "pre", 1, "model-trained", 5)
    assert [one.id for one in found] == [one.id for one in fitted().values()]


@pytest.mark.parametrize(
    ("changes", "side", "said"),
    [
        ({"model": "model-other"}, 5, "site pre, layer 1 of model-other"),
        ({"layer": 2}, 5, "site pre, layer 2 of model-trained"),
        ({"site": "post"}, 5, "site post, layer 1 of model-trained"),
        ({}, 9, "with a frame of at least 9 cells; that run has: none"),
    ],
)
def test_probes_of_another_model_site_layer_or_size_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], side: int, said: str
) -> None:
    run = kept(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"site pre, layer 1 of model-trained.*{said}"):
        kept_probes(run, "pre", 1, "model-trained", side)


def test_a_study_of_steering_refuses_the_probes_of_another_model(tmp_path: Path) -> None:
    agent = ChatAgent(model=LocalModel("theseus"), sampling=Sampling(max_tokens=40))
    pairs: list[Pair] = list(
        find_pairs(agent, [Original(view=GridView(grid=PLAIN), cluster="plain")], moved=["goal"], tries=2).kept
    )
    views = fresh_views([replace(pair, tags={"density": 0.0}) for pair in pairs], count=2, seed=0)
    states = states_of(agent, views, ["pre"], max_tokens=1)
    settings = Steering(doses=(1.0,), random=1, states=2, probes=str(kept(tmp_path, frame=7)))
    with pytest.raises(ValueError, match="of model-trained"):
        steer(agent, pairs, states, settings, "pre", 1)
