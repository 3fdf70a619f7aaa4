"""The arms of an evaluation: which worlds answer which questions, and how many of them are needed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel

from goalscope._ground import registry
from goalscope._ground.progress import TALLY
from goalscope._ground.words import counted
from goalscope.agents.agent import TASK_CHAT
from goalscope.agents.prompts import NAMED, WORDINGS
from goalscope.goals.counterfactual.worlds import TURNS
from goalscope.inside.interventions.patching import Patching
from goalscope.inside.interventions.reasoning import ReasoningEdits
from goalscope.runs.study import Study
from goalscope.runs.study_parts import Inside
from goalscope.stats.rows import Tag
from goalscope.verdict.subject import MODELS, Subject
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.environments.world import EnvironmentView
from goalscope.worlds.gridworld import GridView

SEED: Final = 1902
"""Default root seed of the worlds."""

GIVEN: Final = "worlds"
"""Name of the arm whose worlds come from a study of the user; it replaces all other arms."""

_MORE_STATES: Final = 2
"""First states from which those are chosen in which one thing is changed, as a multiple of those that are played."""

CHANGED: Final = "changed"
"""Name of the arm that changes one thing in the worlds of an environment that the user names."""

HYPOTHESES: Final = "hypotheses"
"""Name of the arm in which every step is answered twice; if the user gives grids, only this arm runs."""

USUAL: Final = "usual"
"""Name of the usual wording."""

MOVED: Final = ("agent", "goal")
"""What is moved in pairs of grids between which activations or reasoning are exchanged."""

_NEEDS: Final = ("wordings", "reasoning", "weights", "text", "tasks", "environments", "grids")
"""What arms need of a model, the rarest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What an arm does that looks inside a model, using the run of another arm.

    An arm is a part of an evaluation. Such an arm has no worlds of its own: it reads or changes the model's activations
    or its reasoning in the episodes of the other arm.

    Attributes:
        at: name of that other arm.
        settings: function from the name of a model and a size to the settings of the probes (`Inside`) or of a
            registered intervention.
        what: description of this work, for the page.
        counts: the unit that the sizes `quick` and `full` count, in the singular.
        turns: number of turns that take as long as one such unit.
    """

    at: str
    settings: Callable[[str, int], BaseModel]
    what: str
    counts: str
    turns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One part of an evaluation, with worlds and questions of its own.

    Attributes:
        name, title: its name in commands and on the page.
        needs: what a model must allow for the arm to be asked, see `Subject.access`; by default, to act in grids.
        why: sentence for a model that does not allow it: the reason, and what would make it possible. By default that
            of the rarest need.
        worlds: function from a number of worlds per cell (a combination of kind, size and density) to the world
            entries of its study.
        recorded: function that decides from the tags of episode and world whether a recorded episode belongs to the
            arm.
        agent: keys that the arm sets in a language model's entry.
        study: further keys of its study.
        quick: worlds per cell with ``--quick``; 0 if ``--quick`` leaves the arm out unless the user names it.
        least: worlds per cell below which no budget asks the arm, because its answer could not be yes.
        full: worlds per cell at which its claims are expected to be decided, for agents built to pursue a known goal.
        varies: for recorded logs: tag, e.g. "transform", that must take two values among the episodes; "" for none.
        variants: name -> keys of an agent's entry. Each model plays the same worlds once per variant.
        looks: for an arm that looks inside, where it looks, what it does and what that costs; None for an arm with
            worlds of its own.
        trajectories: function from a size to the number of episodes per world; None for that of ``study``.
        chosen: function that applies the user's changes to its study, see `goalscope.verdict.plan`; None for no
            change.
        sections: sections of the report that show its run on the page; empty for those of any run.
        core: whether a small budget drops the other arms first.
    """

    name: str
    title: str
    needs: frozenset[str] = frozenset({"grids"})
    why: str = ""
    worlds: Callable[[int], list[dict[str, Any]]] = lambda count: []
    recorded: Callable[[Mapping[str, Tag]], bool] = lambda tags: False
    agent: Mapping[str, Any] = field(default_factory=dict)
    study: Mapping[str, Any] = field(default_factory=dict)
    quick: int
    least: int = 0
    full: int
    varies: str = ""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    looks: Look | None = None
    trajectories: Callable[[int], int] | None = None
    chosen: Callable[[Study], Study] | None = None
    sections: tuple[str, ...] = ()
    core: bool = False

    def __post_init__(self) -> None:
        if not self.why:
            if not self.needs or not self.needs <= set(_NEEDS):
                raise ValueError(
                    f"the arm {self.name!r} must say why it cannot be asked (why=...), since only {', '.join(_NEEDS)} "
                    f"have a sentence, got the needs {', '.join(sorted(self.needs)) or 'none'}"
                )
            object.__setattr__(self, "why", TEXTS(f"needs/{min(self.needs, key=_NEEDS.index)}"))

    @property
    def at(self) -> str:
        """Name of the arm (part of an evaluation) whose run contains the results: the arm itself, or the one at which
        it looks (see `Look`).
        """
        return self.name if self.looks is None else self.looks.at

    def reason_for(self, subject: Subject) -> str:
        """Return the sentence that says why a model cannot be asked this part of an evaluation (arm), and what would
        make it possible.

        Args:
            subject: a model that does not allow the arm, see `open_to`.
        """
        without_prompts = subject.kind not in MODELS and "text" in self.needs - subject.access
        return NO_PROMPTS if without_prompts else self.why

    def open_to(self, subject: Subject) -> bool:
        """Return whether a model allows what the arm (part of an evaluation) needs, such as acting in grids or access
        to its weights.

        For recorded logs the answer is always yes, since they may contain episodes of the arm.
        """
        return subject.logs is not None or self.needs <= subject.access

    def quick_size(self, *, named: bool) -> int:
        """Return the number of worlds per cell (combination of kind, size and density) with the option ``--quick``.

        It is 0 for an arm (part of an evaluation) that ``--quick`` leaves out. If the user named such an arm, it gets a
        tenth of its full size, and at least its smallest size.

        Args:
            named: whether the user named the arm.
        """
        return self.quick or (max(self.least, -(-self.full // 10)) if named and self.looks is None else 0)

    def names(self, subject: Subject) -> list[str]:
        """Return the names under which a model acts in this part of an evaluation (arm): its own, or one for each
        variant.

        A variant, such as another prompt, plays the same worlds.
        """
        return [f"{subject.name} [{variant}]" for variant in self.variants] or [subject.name]

    def make(self, subjects: Sequence[Subject], count: int, seed: int) -> Study:
        """Return the study that the arm (part of an evaluation) runs: its worlds, with the given models as agents.

        Args:
            subjects: the models.
            count: number of worlds per cell (combination of kind, size and density).
            seed: root seed of the worlds.
        """
        agents = [
            subject.entry(**self.agent, **changes, name=name)
            for subject in subjects
            for name, changes in zip(self.names(subject), list(self.variants.values()) or [{}], strict=True)
        ]
        repeated = {} if self.trajectories is None else {"trajectories": self.trajectories(count)}
        worlds = self.worlds(count)
        study = Study.assemble(
            {"name": self.title, "seed": seed, "worlds": worlds, "agents": agents, **self.study, **repeated}
        )
        return study if self.chosen is None else self.chosen(study)


def arm(new: Arm) -> Arm:
    """Register an arm (a part of an evaluation, with worlds and questions of its own) under its name, and return it."""
    return registry.register("arm", new.name, made_of=new.worlds if new.looks is None else new.looks.settings)(new)


def arms() -> list[Arm]:
    """Return all registered arms (parts of an evaluation, such as "grids") in the order in which they run."""
    return [registry.resolve("arm", name) for name in registry.names("arm")]


def _changed(tags: Mapping[str, Tag]) -> bool:
    """Return whether a world is transformed or under fog."""
    return tags.get("transform") not in (None, "identity") or tags.get("fog_radius") is not None


NO_PROMPTS: Final = TEXTS("needs/text of other agents")


def _grids(*sizes: int, densities: Sequence[float], **more: Any) -> Callable[[int], list[dict[str, Any]]]:
    """Return a function from a number of worlds per cell to the entry of these grids in a study."""

    def entries(count: int) -> list[dict[str, Any]]:
        return [{"kind": "grid", "sizes": list(sizes), "densities": list(densities), "count": count, **more}]

    return entries


_TRANSFORMS: Final = ["identity", "reflect", "rotate", "transpose", "swap"]

for _declared in (
    Arm(
        name="grids",
        title="Grids",
        worlds=_grids(7, 9, 11, densities=(0.2, 0.6, 1.0)),
        recorded=lambda tags: tags.get("kind") in (None, "grid", "text") and not _changed(tags),
        agent={"task": "grid"},
        study={"trajectories": 1, "horizon": {"factor": 1.5}},
        quick=6,
        full=26,
        core=True,
    ),
    Arm(
        name="keys",
        title="Keys, doors and two paths",
        worlds=lambda count: [
            {"kind": "key-no-door", "count": count, "control": True},
            {"kind": "two-path", "count": count},
            # With fewer than 38 worlds, an agent that never gets through a door cannot be told from chance.
            {"kind": "key-door", "count": count + min(3 * count // 2, 24)},
        ],
        recorded=lambda tags: tags.get("kind") in ("key-door", "key-no-door", "two-path") and not _changed(tags),
        agent={"task": "key-door"},
        study={"trajectories": 1, "horizon": {"steps": 30}},
        quick=16,
        full=184,
    ),
    Arm(
        name="transforms",
        title="Mirrored and rotated worlds",
        worlds=_grids(7, 9, densities=(0.4, 0.8), goal_side="right", transforms=_TRANSFORMS),
        recorded=lambda tags: tags.get("kind") in (None, "grid", "text") and tags.get("fog_radius") is None,
        varies="transform",
        agent={"task": "grid"},
        study={"trajectories": 2, "horizon": {"factor": 1.5}},  # differences of single grids need two
        quick=0,
        least=8,  # with fewer than 30 grids the answer cannot be yes
        full=110,
    ),
    Arm(
        name="fog",
        title="Fog",
        worlds=_grids(7, 9, densities=(0.2, 0.6), minimum_distance=5, fog_radius=3),
        recorded=lambda tags: tags.get("fog_radius") is not None,
        agent={"task": "fog", "history": "actions"},
        study={"trajectories": 1, "horizon": {"factor": 2.0}},
        quick=8,
        full=30,
    ),
    Arm(
        name="tasks",
        title="Task worlds",
        needs=frozenset({"tasks"}),
        worlds=lambda count: [
            {"kind": "task-map", "presets": ["low-small", "medium-medium", "high-large"], "count": count}
        ],
        recorded=lambda tags: tags.get("kind") in ("task-map", "cooking"),
        # A list of what was told and done, which is far shorter than the conversation with all answers.
        agent={"kind": TASK_CHAT, "history": "actions"},
        study={"trajectories": 1},
        quick=9,
        full=40,
    ),
    Arm(
        name="competence",
        title="Places named in words",
        needs=frozenset({"grids", "text"}),
        worlds=lambda count: [{"kind": "named-place", "sizes": [7, 9], "densities": [0.2, 0.6], "count": count}],
        recorded=lambda tags: tags.get("kind") == "named-place",
        agent={"task": NAMED},
        study={"trajectories": 1, "horizon": {"factor": 1.5}},
        quick=3,
        full=12,
        varies="named",
    ),
    Arm(
        name="wordings",
        title="Other wordings of the prompt",
        needs=frozenset({"grids", "text", "wordings"}),
        worlds=_grids(7, 9, densities=(0.2, 0.6)),
        recorded=lambda tags: tags.get("wording") is not None,
        agent={"task": "grid"},
        study={"trajectories": 1, "horizon": {"factor": 1.5}},
        quick=0,
        least=8,  # with fewer than 30 grids the answer cannot be yes
        full=15,
        varies="wording",
        variants={USUAL: {}, **{name: {"wording": name} for name in WORDINGS}},
    ),
    Arm(
        name=HYPOTHESES,
        title="Hypotheses",
        worlds=_grids(7, 9, densities=(0.2, 0.4, 0.6)),
        agent={"task": "grid"},
        study={"trajectories": 1, "answers": 2, "horizon": {"factor": 1.5}},
        quick=4,
        full=7,
        sections=("attribution",),
        core=True,
    ),
    # One thing in a state is changed, everything else stays, and one move is requested, in an episode's first turns.
    Arm(
        name="depends",
        title="One thing changed",
        worlds=lambda count: [
            {
                "kind": "changed",
                "of": _grids(7, 9, densities=(0.2, 0.6), minimum_distance=3)(count),
                "turns": list(TURNS),
            }
        ],
        recorded=lambda tags: tags.get("kind") == "changed",
        agent={"task": "grid"},
        study={"trajectories": 2, "horizon": {"steps": 1}},
        quick=4,
        full=40,
        sections=("dependence",),
        core=True,
    ),
):
    arm(_declared)


def _probes(*reads: str, **more: Any) -> Callable[[str, int], Inside]:
    """Return a function from a number of random networks to the settings of probes before the reasoning, at the last
    layer of each third.
    """

    def settings(agent: str, seeds: int) -> Inside:
        random = {"kinds": ["initial", "permuted", "default-init"], "seeds": seeds}
        usual = {"sites": ["pre"], "random": random, "steps": 3, "test": 0.3, "by_size": False}
        return Inside.parse({"agent": agent, "reads": list(reads), **usual, **more})

    return settings


def _pairs(change: type[BaseModel], **more: Any) -> Callable[[str, int], BaseModel]:
    """Return a function from a number of pairs of grids, in which agent or goal is moved, to the settings of an
    intervention.
    """

    def settings(agent: str, pairs: int) -> BaseModel:
        grids = {"moved": list(MOVED), "per_size": pairs, "controls": 0}
        return change.model_validate({"agent": agent, "pairs": grids, **more})

    return settings


def _inside(
    name: str,
    title: str,
    settings: Callable[[str, int], BaseModel],
    what: str,
    *,
    counts: str = "random network of each kind",
    turns: float,
    quick: int = 0,
    full: int,
    needs: str = "weights",
    at: str = "grids",
) -> None:
    """Register an arm that looks inside a model, in the run of another arm."""
    looks = Look(at=at, settings=settings, what=what, counts=counts, turns=turns)
    required = frozenset({"grids", needs})
    arm(Arm(name=name, title=f"Inside: {title}", needs=required, quick=quick, full=full, looks=looks))


_PAIR: Final = "pair of grids of each size"

_inside(
    "inside",
    "the map of the grid",
    _probes("cognitive-map"),
    "reads activations of the episodes in grids",
    turns=600,
    quick=1,
    full=5,
)
# At all cells and before the reasoning, in all layers and at the end of each third.
_inside(
    "patching",
    "activations patched between grids",
    _pairs(Patching, sites=["grid", "pre"], layers="thirds", windows=[], components=["residual"], forced=False),
    "changes activations in pairs of grids with agent or goal moved",
    counts=_PAIR,
    turns=600,
    full=16,
)
# The other grid's moves, and two edits that should not change the action.
_inside(
    "reasoning",
    "edits of the written reasoning",
    _pairs(ReasoningEdits, edits=["own", "plan", "paraphrase"], patches=False),
    "edits the reasoning in pairs of grids with agent or goal moved",
    counts=_PAIR,
    turns=60,
    full=16,
    needs="reasoning",
)
_inside(
    "plans",
    "plans",
    _probes(
        "plans", decoders={"layers": [2], "width": 64, "feedforward": 128, "epochs": 12, "rate": 0.003, "batch": 32}
    ),
    "reads activations of the episodes in grids",
    turns=300,
    full=5,
)
_inside(
    "beliefs",
    "beliefs under fog",
    _probes("cognitive-map", "beliefs"),
    "reads activations of the episodes under fog",
    turns=600,
    full=5,
    at="fog",
)


def given_worlds(study: Study) -> dict[str, Any]:
    """Return the settings of an evaluation whose worlds the user gave as a study, to be stored in its plan.

    Returns:
        Name, worlds and horizon of the study as JSON values, with its hypotheses if it lists any.

    Raises:
        ValueError: the worlds are neither environments nor grids.
    """
    if not issubclass(study.view, (EnvironmentView, GridView)):
        raise ValueError(
            f"an evaluation can use grids or environments (docs/environments.md), but the worlds of "
            f"{study.name} show {study.view.shows}: leave --worlds out, task maps are asked anyway"
        )
    dumped = study.dump()
    settings: dict[str, Any] = {name: dumped[name] for name in ("name", "worlds", "horizon") if name in dumped}
    named = () if study.analysis is None else study.analysis.hypotheses
    if issubclass(study.view, EnvironmentView):
        _tell_worlds_alike(study)
        return {**settings, "answers": 2, **({"hypotheses": list(named)} if named else {})}
    return {**settings, "arm": HYPOTHESES, **({"hypotheses": list(named)} if named else {})}


def _tell_worlds_alike(study: Study) -> None:
    """Log how many different worlds remain when several have the same description."""
    worlds = study.worlds()
    different = {world.cluster or world.id for world in worlds}
    if len(different) < len(worlds):
        counts = {"worlds": counted(len(worlds), "world"), "descriptions": counted(len(different), "description")}
        TALLY.tell(TEXTS("plan/worlds alike", name=study.name, **counts))


def given_arms(settings: Mapping[str, Any]) -> list[Arm]:
    """Return the parts (arms) of an evaluation whose worlds the user gave.

    They are the worlds themselves and, where possible, versions of them in which one thing is changed.

    Args:
        settings: the settings of the worlds, from `given_worlds` or `environment_settings`.
    """
    return [given_arm(settings), *([_changed_arm(settings)] if settings.get("changed") else [])]


def _changed_arm(settings: Mapping[str, Any]) -> Arm:
    """Return the arm that asks twice for one move in each given world and in changed versions of this world."""
    return Arm(
        name=CHANGED,
        title=f"One thing changed in worlds of {settings['name']}",
        needs=frozenset({"environments"}),
        worlds=lambda count: [_changed_entry(settings, count)],
        recorded=lambda tags: tags.get("kind") == "changed",
        agent={"task": "text", "history": "actions"},
        study={"horizon": {"steps": 1}},
        quick=1,
        full=8,
        trajectories=lambda count: 2 * _with_starts(settings, count)[1],
        sections=("dependence",),
    )


def _changed_entry(settings: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the study entry for the given worlds with one thing changed.

    It names more first states than are played, from which those are chosen in which a thing matters.
    """
    entries, _ = _with_starts(settings, count)
    changed: dict[str, Any] = {"kind": "changed-environment", "of": entries, "turns": list(TURNS)}
    if most := settings.get("most starts", 0):
        (entry,) = entries
        n_environments = max(1, len(entry.get("seeds", ())))
        changed |= {
            "of": [{**entry, "starts": min(most, _MORE_STATES * entry["starts"])}],
            "states": entry["starts"] * n_environments,
        }
    return changed


def given_arm(settings: Mapping[str, Any]) -> Arm:
    """Return the part (arm) of an evaluation that plays the worlds that the user gave.

    Its size counts episodes per world.

    Args:
        settings: the settings of the worlds, from `given_worlds` or `environment_settings`.
    """
    horizon = {"horizon": settings["horizon"]} if "horizon" in settings else {}
    named = {"analysis": {"hypotheses": settings["hypotheses"]}} if "hypotheses" in settings else {}
    if settings.get("arm") == HYPOTHESES:
        usual: Arm = registry.resolve("arm", HYPOTHESES)
        return replace(
            usual,
            title=f"Worlds of {settings['name']}",
            worlds=lambda count: list(settings["worlds"]),
            study={**usual.study, **horizon, **named},
            quick=1,
            full=2,
            trajectories=lambda count: count,
        )
    own = "twins" in settings
    return Arm(
        name=GIVEN,
        title=f"Worlds of {settings['name']}",
        needs=frozenset({"environments"}),
        worlds=lambda count: _with_starts(settings, count)[0],
        recorded=lambda tags: tags.get("kind") in {entry["kind"] for entry in settings["worlds"]},
        agent={"task": "text", "history": "actions"},
        study={**horizon, **named, "answers": settings.get("answers", 1)},
        quick=1 if own else 4,
        full=8 if own else 20,
        trajectories=lambda count: _with_starts(settings, count)[1],
        sections=("attribution",) if own else (),
    )


def _with_starts(settings: Mapping[str, Any], count: int) -> tuple[list[dict[str, Any]], int]:
    """Return the worlds and the number of trajectories on each, together ``count`` times as many episodes.

    An environment that the user names has further first states at first, and more trajectories once all are used.
    """
    entries, most = [dict(entry) for entry in settings["worlds"]], settings.get("most starts", 0)
    if not most:
        return entries, count
    (entry,) = entries
    starts = min(most, entry["starts"] * count)
    return [{**entry, "starts": starts}], -(-entry["starts"] * count // starts)
