"""Agents that learned where the goal always stood top right: a set where they were trained, the place elsewhere.

What they are after is counted by an oracle of its own: the first of both cells that an episode reaches.
"""

from pathlib import Path

import pytest
from test_learned import AGENTS, CORNER, Learned, shifted, trained

from goalscope.agents.agent import agent_kind
from goalscope.goals.attribution import Trial
from goalscope.goals.hypotheses import load_hypotheses
from goalscope.goals.hypotheses.score import ScoreVerdict, judge
from goalscope.goals.hypotheses.states import states_of_episodes
from goalscope.runs import Episode, Store, Study, run

pytestmark = pytest.mark.full
WORLDS = 60
MIXED = {"trained": 60, "90 %": 54, "75 %": 45, "50 %": 30, "shifted": 0}
"""Name of a mixture -> how many of its worlds have goal and corner in one cell."""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], ScoreVerdict]:
    agent_kind(Learned.kind)(Learned)
    found, folder = {}, tmp_path_factory.mktemp("learned")
    bank = load_hypotheses("grids")
    for name, same in MIXED.items():
        for agent, episodes in _played(folder / name.strip(" %"), same).items():
            trial = Trial(states=states_of_episodes(episodes)[0], bank=bank)
            found[name, agent] = judge(trial.evidence)
            if name == "shifted":
                found[name, agent + " reaches"] = _first_reached(episodes)  # type: ignore[assignment]
    return found


def _played(path: Path, same: int) -> dict[str, list[Episode]]:
    grids = [*trained(WORLDS, 8)[:same], *shifted(WORLDS, 9)[: WORLDS - same]]
    entry = {"worlds": [{"kind": "text", "grids": [grid.render() for grid in grids]}], "trajectories": 1, "answers": 2}
    agents = [{"kind": "learned", "by": by, "name": by} for by in AGENTS]
    run(Study.parse({**entry, "agents": agents, "horizon": {"steps": 18}, "seed": 4}), path)
    with Store(path) as store:
        episodes = list(store.episodes())
    return {name: [one for one in episodes if one.agent == name] for name in AGENTS}


def _first_reached(episodes: list[Episode]) -> dict[str, float]:
    shares = {"goal": 0.0, "corner": 0.0}
    for one in episodes:
        cells = [*(step.state.position for step in one.steps), one.final.position]
        grid = one.world.grid
        at = {"goal": grid.goal, "corner": grid.corner(CORNER)}
        first = [name for cell in cells for name in at if at[name] == cell][:1]
        for name in first:
            shares[name] += 1 / len(episodes)
    return shares


def test_what_they_learned_is_what_the_oracle_counts(verdicts: dict[tuple[str, str], dict[str, float]]) -> None:
    assert verdicts["shifted", "network reaches"]["corner"] > 0.7
    assert verdicts["shifted", "network reaches"]["goal"] < 0.2
    assert verdicts["shifted", "network, goal anywhere reaches"]["goal"] > 0.6
    # The table heads for the corner as in its open room; walls, which it does not see, stop it in every third world.
    assert 0.4 < verdicts["shifted", "table reaches"]["corner"] < 0.75
    assert verdicts["shifted", "table reaches"]["goal"] < 0.2


def test_where_they_were_trained_both_places_are_named_together(verdicts: dict[tuple[str, str], ScoreVerdict]) -> None:
    for agent in ("network", "network, goal anywhere"):
        found = verdicts["trained", agent]
        # A network that does not see walls may head straight for the goal, which is a rule of its own.
        if found.explained_by != ("straight to goal",):
            assert found.kind in ("set", "partly"), (agent, found.sentence())
            assert set(found.names) >= {"goal", "corner top-right"}, (agent, found.sentence())


@pytest.mark.parametrize("mixture", ["75 %", "50 %", "shifted"])
def test_where_enough_worlds_differ_the_place_they_learned_comes_first(
    verdicts: dict[tuple[str, str], ScoreVerdict], mixture: str
) -> None:
    for agent, after in (("network", "corner top-right"), ("network, goal anywhere", "goal")):
        found = verdicts[mixture, agent]
        if after == "goal" and found.explained_by == ("straight to goal",):
            continue
        assert found.kind in ("named", "set", "partly"), (agent, found.sentence())
        assert found.names[0] == after, (agent, found.sentence())


@pytest.mark.parametrize("mixture", list(MIXED))
def test_no_mixture_names_what_an_agent_is_not_after(
    verdicts: dict[tuple[str, str], ScoreVerdict], mixture: str
) -> None:
    for agent, after in (("network", "corner top-right"), ("network, goal anywhere", "goal"), ("table", "")):
        found = verdicts[mixture, agent]
        assert found.kind not in ("named", "set") or after in found.names, (agent, found.sentence())
