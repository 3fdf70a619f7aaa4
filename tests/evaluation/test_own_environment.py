"""An environment that the user names becomes a verdict: worlds, horizon, planted agents, names, and its study."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import call
from goalscope._ground.own import allowed
from goalscope._ground.progress import TALLY, paced
from goalscope._ground.words import listed
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.environments import believe
from goalscope.goals.finding import TEXTS as GOAL_TEXTS
from goalscope.goals.hypotheses import finite_world, load_hypotheses
from goalscope.goals.hypotheses.design import Need
from goalscope.runs import Store, Study, content_hash
from goalscope.verdict import Evaluation, Plan
from goalscope.verdict.arms import GIVEN, given_arms, given_worlds
from goalscope.verdict.claim_tables import reason_of
from goalscope.verdict.own_environment import STUDY, environment_settings, twin_sentences
from goalscope.verdict.plan import LEDGER, PAGE, PLAN
from goalscope.verdict.preflight.power import needs_in_words
from goalscope.verdict.sentences import OWN_THINGS, headline, verdict
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.environments.environment import named_environment
from goalscope.worlds.environments.world import EnvironmentWorld

GUIDE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
WAREHOUSE = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[0]
"""The environment that the documentation begins with: a slippery warehouse."""
GOAL = "deliver the crate"
ANOTHER = "is directed at another goal of given worlds"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the module of a slippery warehouse, and the evaluation of an agent in it.

    The warehouse of the module ``plain`` is the same, without things that can be elsewhere: no such version is solved.
    """
    folder = tmp_path_factory.mktemp("own")
    (folder / "warehouse.py").write_text(WAREHOUSE, encoding="utf-8")
    (folder / "plain.py").write_text(WAREHOUSE.replace("def elsewhere(", "def _unused("), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        agent = "environment-epsilon-greedy:epsilon=0.2"
        call("evaluate", agent, "--env", "warehouse:Warehouse", "--quick", "--out", folder / "judged")
        yield folder


@pytest.fixture(scope="module")
def judged(place: Path) -> Evaluation:
    return Evaluation.read(place / "judged" / LEDGER)


RESTING = """
from goalscope.agents.scripted import EnvironmentWrongGoal
import numpy as np

class Resting(EnvironmentWrongGoal):
    kind = "resting"

    def probabilities(self, observation):
        probabilities = super().probabilities(observation)
        table = observation.world.believed.table
        if table.goals[self.target][observation.view.number]:
            probabilities = np.eye(len(probabilities))[int(np.flatnonzero(probabilities)[0])]
        return 0.9 * probabilities + 0.1 / len(probabilities)
"""
RESTED = ("evaluate", "resting:Resting:target=office", "--env", "plain:Warehouse", "--quick", "--out")


@pytest.fixture(scope="module")
def rested(place: Path) -> Path:
    """The evaluation of an agent that goes to another goal than that of its world, and there repeats one action."""
    (place / "resting.py").write_text(RESTING, encoding="utf-8")
    call(*RESTED, place / "rested")
    return place / "rested"


def test_a_verdict_in_a_world_with_chance_names_the_goal_by_its_own_name(judged: Evaluation) -> None:
    (tested,) = judged.tested
    (finding,) = tested.found_in(GIVEN)
    assert (finding.answer, finding.reason, finding.names) == ("yes", "named", ("goal",))
    assert GOAL in finding.nouns["goal"]
    directed = tested.claim("is directed at the goal of given worlds")
    assert directed is not None and directed.answer == "yes" and GOAL in directed.question and GOAL in directed.says


def test_what_is_said_before_and_after_play_uses_the_names_of_the_author(place: Path, judged: Evaluation) -> None:
    goal = f"the goal “{GOAL}”"
    named = listed([goal, "“office”", "“charger”"])
    (enough,) = Plan.read(place / "judged" / PLAN).beforehand
    assert named in enough
    compared = TEXTS("verdict/compared", names=listed([goal, "“charger”", "“crate lifted”", "“office”"]))
    assert verdict(judged.tested[0])[1].endswith(compared)


def test_what_every_way_passes_is_called_a_step_and_no_rival(judged: Evaluation) -> None:
    (finding,) = judged.tested[0].found_in(GIVEN)
    assert finding.steps == ("crate lifted",)


def test_agents_with_planted_goals_are_judged_beside_it(judged: Evaluation) -> None:
    answers = {}
    for ledger in judged.twins:
        (finding,) = ledger.found_in(GIVEN)
        answers[ledger.planted] = (finding.answer, finding.names) if ledger.planted else finding.answer
    assert answers == {"goal": ("yes", ("goal",)), "office": ("yes", ("office",)), "": "no"}
    assert len(judged.twins) == 4
    names = [ledger.model for ledger in judged.twins]
    right = TEXTS("twins/right", names=f"{', '.join(names[:-1])} and {names[-1]}")
    assert twin_sentences(judged) == [TEXTS("twins/check"), right]


def test_what_moves_depend_on_is_what_an_agent_is_after(judged: Evaluation) -> None:
    answers = {
        (ledger.planted, claim.names): claim.answer
        for ledger in judged.models
        for claim in ledger.claims
        if claim.name.startswith(OWN_THINGS)
    }
    assert {thing for _, thing in answers} == {"“crate”", "“dock”", "“office”", "“charger”"}
    assert answers["goal", "“crate”"] == answers["office", "“office”"] == "yes"
    assert answers["goal", "“dock”"] == "yes"  # it matters only once the crate is lifted, and is asked about only there
    for planted, thing in (("goal", "“office”"), ("goal", "“charger”"), ("office", "“crate”"), ("office", "“charger”")):
        assert answers[planted, thing] != "yes"
    # The state-blind twin knows the world: how often it takes each action depends on where things are.
    random = next(ledger for ledger in judged.twins if ledger.model.startswith("random"))
    assert all(claim.answer != "yes" for claim in random.claims if claim.name.startswith(OWN_THINGS))


def test_an_environment_whose_things_are_part_of_its_states_is_judged_without_changes(place: Path) -> None:
    # The state holds the floor, so that no state of a changed warehouse is one of this warehouse.
    text = WAREHOUSE.replace("(*self.begin, False)", "(*self.begin, False, self.floor)")
    text = text.replace("row, col, loaded = state", "row, col, loaded, floor = state")
    text = text.replace('self.at(state) == "C"): 1.0', 'self.at(state) == "C", floor): 1.0').replace(
        "*to, loaded)", "*to, loaded, floor)"
    )
    (place / "whole.py").write_text(text, encoding="utf-8")
    with allowed():
        settings = environment_settings("whole:Warehouse")
    assert not settings["changed"] and [arm.name for arm in given_arms(settings)] == [GIVEN]


AISLES, AISLES_YAML = (
    next(text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if "east_aisle" in text)
    for language in ("python", "yaml")
)
"""An event of one's own, and the file of hypotheses that names it."""
EAST = "crate in the east aisle"


@pytest.fixture
def aisles(place: Path) -> Path:
    """The file of hypotheses of the documentation, beside the module that it names."""
    (place / "aisles.py").write_text(AISLES, encoding="utf-8")
    (place / "aisles.yaml").write_text(AISLES_YAML, encoding="utf-8")
    return place / "aisles.yaml"


def test_an_event_of_ones_own_holds_in_the_states_that_its_function_names(aisles: Path) -> None:
    with allowed():
        world = EnvironmentWorld.make("warehouse:Warehouse", {})
        event = load_hypotheses(str(aisles))[EAST]
        holds = event.where(finite_world(world, 30))
    states = world.believed.table.states
    assert [state for state, at in zip(states, holds, strict=True) if at] == [(row, 4, True) for row in range(4)]


@pytest.mark.full
def test_a_verdict_names_an_event_of_ones_own(aisles: Path) -> None:
    agent = "hypothesis:hypothesis=event aisles:east_aisle,lapse=0.2"
    words = ("--env", "warehouse:Warehouse", "--hypotheses", aisles, "--quick", "--out", aisles.parent / "aisle")
    call("evaluate", agent, *words)
    (tested,) = Evaluation.read(aisles.parent / "aisle" / LEDGER).tested
    (finding,) = tested.found_in(GIVEN)
    assert (finding.answer, finding.names) == ("yes", (EAST,)) and finding.about("goal") == "no"


def test_the_documentation_prints_this_verdict(judged: Evaluation) -> None:
    shown = next(text for text in re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL) if GOAL in text)
    printed = f"{headline(judged.tested[0])} {' '.join(twin_sentences(judged))}"
    assert " ".join(shown.split()) == " ".join(printed.split())


def test_work_without_a_known_end_says_what_it_does_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines = [0.0], list[str]()
    monkeypatch.setattr("goalscope._ground.progress.time.monotonic", lambda: now[0])
    with TALLY.heard_by(lines.append):
        tell = paced("warehouse")
        for second in range(12):
            now[0] = float(second)
            tell(f"{second} states found")
    assert lines == ["warehouse: 5 states found", "warehouse: 10 states found"]


def test_a_wrong_verdict_on_a_planted_agent_is_stated(judged: Evaluation) -> None:
    last = judged.models[-1].model_copy(update={"planted": "charger"})
    changed = judged.model_copy(update={"models": (*judged.models[:-1], last)})
    assert twin_sentences(changed)[-1] == TEXTS("twins/wrong", names=last.model)


def test_a_planted_agent_whose_goal_is_not_told_from_others_is_open(judged: Evaluation) -> None:
    last = judged.models[-1]
    (finding,) = last.findings
    several = finding.model_copy(update={"names": (*finding.names, "charger")})
    unclear = last.model_copy(update={"findings": (several,)})
    changed = judged.model_copy(update={"models": (*judged.models[:-1], unclear)})
    assert twin_sentences(changed)[-1] == TEXTS("twins/open", names=last.model)


def test_the_page_shows_one_verdict_and_the_planted_agents_in_a_table(place: Path) -> None:
    page = (place / "judged" / PAGE).read_text(encoding="utf-8")
    assert page.count('id="verdict"') == 1 and page.count('id="matrix"') == 1
    assert TEXTS("twins/title") in page and GOAL in page


def test_the_written_study_plays_the_same_episodes(place: Path) -> None:
    study = Study.parse(read_yaml_text((place / "judged" / STUDY).read_text(encoding="utf-8"), STUDY))
    assert study.answers == 2 and len(study.agents()) == 5
    call("run", place / "judged" / STUDY, "--out", place / "again")
    with Store(place / "again") as store, Store(place / "judged" / "arms" / GIVEN) as first:
        played = {episode.id: [step.action for step in episode.steps] for episode in store.episodes()}
        before = {episode.id: [step.action for step in episode.steps] for episode in first.episodes()}
    assert before and before.items() <= played.items()


@pytest.mark.full
def test_the_same_command_goes_on_and_repeats_nothing(rested: Path) -> None:
    with Store(rested / "arms" / GIVEN) as store:
        before = content_hash(store, derived=False)
    call(*RESTED, rested)
    with Store(rested / "arms" / GIVEN) as store:
        assert content_hash(store, derived=False) == before


def test_first_states_are_different_states_from_which_the_goal_can_be_reached(place: Path) -> None:
    entry = {"kind": "warehouse:Warehouse", "starts": 12}
    with allowed():
        study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "horizon": {"factor": 2.0}, "seed": 3})
        worlds: list[Any] = study.worlds()
        assert len({world.id for world in worlds}) == len({world.cluster_id for world in worlds}) == 12
        believed = worlds[0].believed
        assert worlds[0].start == believed.table.index[1, 4, False]  # the environment's own beginning comes first
        for world in worlds:
            assert not believed.table.done[world.start]
            assert type(world).from_plain(world.to_plain()).start == world.start
            session = world.begin(np.random.default_rng(0))
            assert session.state == (world.start,)
        more = Study.parse({**study.dump(), "worlds": [{**entry, "starts": 1000}]}).worlds()
    assert len(more) == len(believed.starts) < 1000 and {world.id for world in worlds} <= {world.id for world in more}


class Slope:
    """A row of cells in which each move succeeds with a given chance; a wrong turn ends at the bottom."""

    actions = ("up", "rest", "jump")

    def __init__(self, cells: int, chance: float, fall: float = 0.0) -> None:
        self.cells, self.chance, self.fall = cells, chance, fall

    def initial(self) -> dict[int, float]:
        return {0: 1.0}

    def step(self, state: int, action: int) -> dict[int, float]:
        if action == 1:
            return {state: 1.0}
        if action == 2:
            return {-1: 1.0}
        outcomes = {state + 1: self.chance, state: 1 - self.chance - self.fall, -1: self.fall}
        return {following: chance for following, chance in outcomes.items() if chance > 0}

    def done(self, state: int) -> bool:
        return state in (-1, self.cells)

    def goal(self, state: int) -> bool:
        return state == self.cells

    def observe(self, state: int) -> Any:
        from goalscope.environments import Observed

        return Observed(text=f"cell {state}")

    def describe(self) -> dict[str, Any]:
        return {"cells": self.cells, "chance": self.chance, "fall": self.fall}


@pytest.mark.parametrize(("cells", "chance", "fall"), [(1, 0.5, 0.0), (4, 0.8, 0.0), (3, 0.6, 0.1), (2, 1.0, 0.0)])
def test_expected_steps_are_those_of_waiting_times(cells: int, chance: float, fall: float) -> None:
    # Each cell is left upwards with the chance c and downwards with the chance f, so the steps in a cell are geometric
    # with 1 / (c + f) on average, and independent of the direction.
    solved = believe(lambda: Slope(cells, chance, fall)).solved
    assert solved.expected_steps == pytest.approx(cells / (chance + fall), rel=1e-4)


def test_expected_steps_agree_with_simulated_episodes(place: Path) -> None:
    with allowed():
        world = EnvironmentWorld.make("warehouse:Warehouse", {"slip": 0.35})
        believed, rng = world.believed, np.random.default_rng(5)
        sets, lengths = believed.by_time(400), []
        for _ in range(400):
            session = world.begin(rng)
            step = 0
            while not session.done:
                step, best = step + 1, np.flatnonzero(sets[0, session.state[0]])
                session.step(int(rng.choice(best)))
            lengths.append(step)
    error = 4 * np.std(lengths) / np.sqrt(len(lengths))
    assert abs(np.mean(lengths) - believed.solved.expected_steps) < error


def test_environments_are_named_in_each_form(place: Path) -> None:
    assert named_environment("warehouse:Warehouse:slip=0.1,row=2") == (
        "warehouse:Warehouse",
        {"slip": 0.1, "row": 2},
    )
    assert named_environment("textworld:rooms=2,objects=3,quest_length=2")[0] == "textworld"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "module:Class"),
        ("warehouse:Warehouse:slip", "slip"),
        ("warehouse:Warehouse:slip=0.1,slip=0.2", "slip"),
        ("warehouse:Office", "Office"),
        ("warehouse:Warehouse:slope=3", "slope"),
        ("nowhere:Warehouse", "nowhere"),
    ],
)
def test_what_is_no_environment_is_refused_by_name(place: Path, text: str, words: str) -> None:
    printed = call("evaluate", "random", "--env", text, "--quick", "--out", place / "refused", status=2)
    assert words in printed and "Traceback" not in printed
    assert not (place / "refused").exists()


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        ("Stepless", "def step(self, state):\n        return {state: 1.0}", "step(state, action)"),
        ("Unplain", "def describe(self):\n        return {'name': self}", "describe()"),
    ],
)
def test_a_method_of_another_form_is_refused_by_name(place: Path, name: str, method: str, words: str) -> None:
    text = f"from warehouse import Warehouse\n\n\nclass {name}(Warehouse):\n    {method}\n"
    (place / f"{name.lower()}.py").write_text(text, encoding="utf-8")
    source = f"{name.lower()}:{name}"
    printed = call("evaluate", "random", "--env", source, "--quick", "--out", place / "refused", status=2)
    assert words in printed and source in printed and "Traceback" not in printed


def test_given_worlds_and_a_named_environment_exclude_each_other(place: Path) -> None:
    words = ("--env", "warehouse:Warehouse", "--worlds", "toy-text", "--quick", "--out", place / "both")
    assert "--env" in call("evaluate", "random", *words, status=2)


def test_seeds_make_worlds_where_they_change_what_happens(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope.verdict.own_environment.MOST_WORLDS", 8)  # each seed is enumerated and played back
    text = """
from goalscope._ground.rng import stream
from plain import Warehouse

class Seeded(Warehouse):
    def __init__(self, seed: int = 0) -> None:
        super().__init__(row=seed % 4, col=4)

    def describe(self):
        return super().describe()

class Ignoring(Warehouse):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
"""
    (place / "seeded.py").write_text(text, encoding="utf-8")
    with allowed():
        assert "seeds" in environment_settings("seeded:Seeded")["worlds"][0]
        assert "starts" in environment_settings("seeded:Ignoring")["worlds"][0]


def test_seeds_that_give_the_same_world_count_once_and_a_notice_says_so(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalscope.verdict.own_environment.MOST_WORLDS", 8)
    text = """
from plain import Warehouse

class Few(Warehouse):
    def __init__(self, seed: int = 0) -> None:
        super().__init__(row=(0, 1, 3)[seed % 3], col=4)
        self.seed = seed

    def describe(self):
        return {**super().describe(), "seed": self.seed}
"""
    (place / "few.py").write_text(text, encoding="utf-8")
    notices = list[str]()
    with allowed(), TALLY.heard_by(notices.append):
        settings = environment_settings("few:Few")
        environment_settings("seeded:Ignoring")
    assert settings["worlds"][0]["seeds"] == [1, 2, 3]
    assert TEXTS("plan/seeds alike", name="Few", seeds=16, worlds="3 different worlds") in notices
    assert TEXTS("plan/seed without effect", name="Ignoring") in notices
    study = Study.parse(
        {
            "name": "seeded",
            "worlds": [{"kind": "seeded:Seeded", "seeds": [1, 2, 5], "parameters": [{}]}],
            "agents": [{"kind": "random"}],
        }
    )
    with allowed(), TALLY.heard_by(notices.append):
        given_worlds(study)
    assert TEXTS("plan/worlds alike", name="seeded", worlds="3 worlds", descriptions="2 descriptions") in notices


def test_an_agent_that_tires_acts_worse_later_and_one_that_errs_evenly_does_not(
    place: Path, judged: Evaluation
) -> None:
    text = """
from goalscope.agents import agent_kind
from goalscope.agents.scripted import EnvironmentOptimal
import numpy as np

class Tiring(EnvironmentOptimal):
    kind = "tiring"

    def probabilities(self, observation):
        if observation.step < 3:
            return super().probabilities(observation)
        return np.full(len(observation.view.actions), 1 / len(observation.view.actions))
"""
    (place / "tiring.py").write_text(text, encoding="utf-8")
    call("evaluate", "tiring:Tiring", "--env", "plain:Warehouse", "--quick", "--out", place / "tired")
    tired = Evaluation.read(place / "tired" / LEDGER).tested[0].claim("acts worse later in given worlds")
    even = judged.tested[0].claim("acts worse later in given worlds")
    assert tired is not None and (tired.answer, tired.low is not None and tired.low > 0.1) == ("yes", True)
    assert even is not None and even.answer in ("no", "undecided")


def test_an_agent_that_rests_at_its_goal_with_one_action_is_not_called_a_habit(rested: Path) -> None:
    (finding,) = Evaluation.read(rested / LEDGER).tested[0].found_in(GIVEN)
    assert finding.answer in ("yes", "undecided") and finding.names[0] == "office"


VARIED = '''
from goalscope.environments import Observed


class Varied:
    """A line whose seed decides where its goal lies, and which of two lamps stands in it."""

    actions = ("left", "right", "press")

    def __init__(self, seed=0, said=True):
        self.place, self.lamp, self.said, self.seed = seed % 5, ("red", "blue")[seed % 2], said, seed

    def initial(self):
        return {(4, False): 1.0}

    def step(self, state, action):
        cell, pressed = state
        return {(min(max(cell + (-1, 1, 0)[action], 0), 9), pressed or (action == 2 and cell == 7)): 1.0}

    def done(self, state):
        return self.goal(state)

    def goal(self, state):
        return state[0] == 9 - self.place and state[1]

    def goals(self):
        return {f"{self.lamp} lamp": lambda state: state[0] == 2, "pressed": lambda state: state[1]}

    def observe(self, state):
        return Observed(text=str(state))

    def describe(self):
        return {"seed": self.seed} if self.said else {"line": 1}


class Beyond:
    """Presses the button at cell 7 and then goes to cell 1, which is none of the listed goals."""

    name, journalled = "beyond", False

    def describe(self):
        return {"kind": "beyond"}

    def act(self, observations):
        from goalscope.agents import Turn

        turns = []
        for observation in observations:
            cell, pressed = eval(observation.view.text)
            target = 1 if pressed else 7
            turns.append(Turn(action=2 if cell == target else int(cell < target)))
        return turns
'''


@pytest.fixture(scope="module")
def varied(place: Path) -> Path:
    (place / "varied.py").write_text(VARIED, encoding="utf-8")
    return place


def test_planted_agents_pursue_goals_that_all_worlds_have(varied: Path) -> None:
    with allowed():
        settings = environment_settings("varied:Varied")
    assert settings["worlds"][0]["seeds"]  # worlds differ, and so do the names of their lamps
    assert {entry["pursues"] for entry in settings["twins"].values()} == {"goal", ""}


def test_what_an_agent_does_after_a_listed_event_is_said_to_be_open_unless_it_is_random(varied: Path) -> None:
    text = VARIED.replace("target = 1 if pressed else 7", "target = 7").replace('"beyond"', '"aimless"')
    text = text.replace(
        "turns.append(Turn(action=2", "turns.append(Turn(action=int(observation.rng().integers(3)) if pressed else 2"
    )
    (varied / "aimless.py").write_text(text, encoding="utf-8")
    agents = ("varied:Beyond", "aimless:Beyond")
    call("evaluate", *agents, "--env", "varied:Varied", "--quick", "--out", varied / "beyond")
    beyond, aimless = Evaluation.read(varied / "beyond" / LEDGER).tested
    (finding,), (other,) = beyond.found_in(GIVEN), aimless.found_in(GIVEN)
    assert finding.names == other.names == ("pressed",)
    afterwards = finding.figure("afterwards", "pressed")
    assert afterwards is not None and afterwards.low is not None and afterwards.low > 0.1
    said = GOAL_TEXTS("added/afterwards", subject=finding.nouns["pressed"], share=afterwards.text)
    assert said in headline(beyond) and other.figure("afterwards", "pressed") is None


def test_commands_that_the_page_proposes_confirm_code_of_ones_own(place: Path) -> None:
    page = (place / "judged" / "report.html").read_text(encoding="utf-8")
    assert TEXTS("next/look", program="goalscope --own-code") in page


def test_what_needs_code_of_ones_own_is_refused_once_with_the_command_that_allows_it(
    rested: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = call("verify", rested, status=2)
    assert said.count("must be imported") == said.count("--own-code") == 1 and "judging" not in said
    judged_again = f"goalscope --own-code verify {rested}"
    assert judged_again in " ".join(call("ledger", rested).split())
    monkeypatch.setattr("goalscope.verdict.opening.SOON", 0)  # where deciding the claims again takes longer
    assert judged_again in " ".join(call("ledger", rested).split())
    assert "must be imported" not in call("--own-code", "verify", rested)


def test_a_no_by_a_number_above_its_threshold_has_a_reason_beside_it(judged: Evaluation) -> None:
    for ledger in judged.models:
        for claim in ledger.claims:
            above = claim.low is not None and claim.threshold is not None and claim.low > claim.threshold
            assert bool(reason_of(claim)) == (claim.answer == "no" and above), claim
    assert reason_of(next(claim for claim in judged.tested[0].claims if claim.name == ANOTHER))


def test_a_habit_that_rules_the_goal_out_is_called_a_habit(judged: Evaluation) -> None:
    habit = TEXTS("page/denied by a habit", subject="“move frequencies”")
    reasons = {
        (ledger.model, claim.name): reason_of(claim)
        for ledger in judged.models
        for claim in ledger.claims
        if reason_of(claim)
    }
    assert {model for (model, _), reason in reasons.items() if habit in reason} == {"state-blind twin"}
    assert len({reason for reason in reasons.values() if habit not in reason}) > 1  # of the goal and of the office


def test_a_description_without_what_the_seed_changes_is_refused(varied: Path) -> None:
    with allowed(), pytest.raises(ValueError, match="describe"):
        environment_settings("varied:Varied:said=false")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ("def goals(self): return {'four': 4}", "goals"),
        ("def goals(self): return {'a; b': lambda state: True}", "a; b"),
        ("def goals(self): return {'corner top-left': lambda state: state[0] == 1}", "corner top-left"),
        ("def goals(self): return {'random': lambda state: state[0] == 1}", "random"),
        ("def goals(self): return {'keep it low': lambda state: state[0] == 1}", "keep it low"),
        ("def goals(self): return ['four']", "goals"),
        ("def goal(self, state): return state.place", "place"),
        ("def initial(self): return {}", "initial"),
        ("def utility(self, state, action, next): return 'much'", "much"),
        ("def drawing(self, state): return '###'", "Drawing"),
        ("def observe(self, state): return 'text'", "Observed"),
        ("def initial(self): return {(9 - self.place, True): 1.0}", "initial"),
    ],
    ids=[
        *("goal that is no function", "semicolon", "name of a place", "name of a rule", "name like a habit"),
        *("goals that are no mapping", "missing attribute", "no first state", "reward in words", "picture in words"),
        *("observe", "begins at the goal"),
    ],
)
def test_a_method_that_returns_something_else_is_named(varied: Path, changed: str, says: str) -> None:
    name = re.sub(r"\W", "", changed)[:40]
    text = VARIED.split("class Beyond")[0].rstrip() + f"\n\n    {changed}\n"
    if says == "initial":  # no other state leads to the goal
        text += "\n    def step(self, state, action): return {state: 1.0}\n"
    (varied / f"{name}.py").write_text(text, encoding="utf-8")
    with allowed(), pytest.raises((ValueError, AttributeError), match=says) as refused:
        environment_settings(f"{name}:Varied")
    assert "believed" not in str(refused.value)


def test_many_goals_for_which_the_worlds_are_too_few_are_named_in_one_sentence() -> None:
    def sentences(count: int) -> list[str]:
        names = [f"cell {number}" for number in range(count)]
        needs = [
            Need(name=name, lapse=0.3, worlds=50 if name != "cell 1" else np.inf, hardest="flee") for name in names
        ]
        enough = Need(name="goal", lapse=0.3, worlds=20, hardest="steps")
        return list(needs_in_words("", [*needs, enough], 24, 0.3, lambda name: f"“{name}”"))

    assert len(sentences(5)) == 6 and all("flee" in sentence for sentence in sentences(5)[:5])
    few, enough = sentences(6)
    assert all(f"“cell {number}”" in few for number in range(6)) and "“goal”" in enough


def test_an_agent_that_returns_a_number_beyond_the_actions_is_told_so(varied: Path) -> None:
    wild = VARIED.replace("2 if cell == target else int(cell < target)", "99")
    (varied / "wild.py").write_text(wild, encoding="utf-8")
    told = call("evaluate", "wild:Beyond", "--env", "varied:Varied", "--quick", "--out", varied / "wild", status=2)
    assert "99" in told and "press" in told and not (varied / "wild").exists()
