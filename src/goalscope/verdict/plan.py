"""The plan of an evaluation, which is stored and can be run again: what the user chose (arms, grid sizes, how language
models are asked), the models and sizes, and the folders of its runs.
"""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field

from goalscope._ground.checks import near_miss
from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.own import attempt, consent, note_found
from goalscope._ground.sealed import SealedRecord, StrictRecord, read_sealed, seal
from goalscope._ground.yaml_text import key_path, set_key
from goalscope.agents.agent import CHAT
from goalscope.goals.hypotheses import load_hypotheses, write_hypotheses
from goalscope.goals.hypotheses.written import check_names, restore_hypotheses
from goalscope.report.page import write_page
from goalscope.runs.episode_columns import count_episodes
from goalscope.runs.opening import check_files, check_no_other_files, unmade
from goalscope.runs.shards import grow
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.runs.tables import DATABASE
from goalscope.verdict.arms import GIVEN, SEED, Arm, arms, given_arms
from goalscope.verdict.failures import Failures
from goalscope.verdict.preflight.power import told_beforehand
from goalscope.verdict.rules import level
from goalscope.verdict.subject import MODELS, SEEN, Subject, described, planned_entry, subject_of_entry, told_apart
from goalscope.worlds.world import World

# What the user can choose. Parameters of language models are merged into those of each model (`Subject.changed`), so
# they become part of its description and id. Sizes and study settings are applied to the study of each arm that accepts
# them (`Choices.changed`).

LEFT_OUT: Final = "left out by --arms"
"""Reason given for an arm that the user did not choose."""

_OF_STUDIES: Final = ("worlds", "trajectories", "horizon", "failure", "durability")
_ELSEWHERE: Final = {
    **dict.fromkeys(
        ("kind", "model", "name"), "give it to one model, as in chat:model=NAME,name=TEXT or in a YAML file"
    ),
    **dict.fromkeys(("agents", "further_agents"), "max_tokens=64 alone is a parameter of every language model"),
    "seed": "--seed is the option",
    "analysis": "choose the analyses of activations with --arms, and hypotheses with --hypotheses",
}


class Choices(StrictRecord):
    """What the user chose about an evaluation, beyond its models, seed and worlds.

    Attributes:
        arms: names of the arms (parts of an evaluation) to run; empty for all.
        sizes: side lengths of the grids in every arm that has side lengths; empty for the arm's own.
        models: parameters of every language model, KEY=VALUE each.
        studies: settings of the arms' studies, KEY=VALUE each.
        hypotheses: hypotheses in written form; empty for the default ones.
    """

    arms: tuple[str, ...] = Field(default=(), strict=False)
    sizes: tuple[int, ...] = Field(default=(), strict=False)
    models: tuple[str, ...] = Field(default=(), strict=False)
    studies: tuple[str, ...] = Field(default=(), strict=False)
    hypotheses: tuple[str | dict[str, str], ...] = Field(default=(), strict=False)

    @classmethod
    def of(
        cls,
        arms: Sequence[str],
        sizes: Sequence[int],
        models: Sequence[str],
        settings: Sequence[str],
        hypotheses: str = "",
        worlds: Sequence[World] = (),
    ) -> "Choices":
        """Create the choices from the arguments of a command.

        Args:
            arms: names of the arms (parts of an evaluation) to run; empty for all.
            sizes: side lengths of the grids; if there are none, each arm uses its own.
            models: parameters of every language model, KEY=VALUE each.
            settings: further parameters, KEY=VALUE each. If KEY begins with a key of a study, the setting applies to
                the arms' studies, otherwise to all language models.
            hypotheses: as `goalscope.goals.hypotheses.load_hypotheses` takes them; empty for the default ones.
            worlds: the worlds that replace the usual ones, if any; the bank "things" then has those of their things.

        Raises:
            ValueError: a key is set by another option, or given twice.
        """
        consent([setting.partition("=")[2] for setting in settings])
        of_models, of_studies = list(models), list[str]()
        for setting in settings:
            first, *rest = key_path(setting.partition("=")[0]) or [""]
            if first in _ELSEWHERE:
                raise ValueError(f"--set must leave {first} alone, got {setting!r}: {_ELSEWHERE[first]}")
            if first == "worlds" and rest[-1:] == ["count"]:
                raise ValueError(f"--set must leave the number of worlds to --budget and --quick, got {setting!r}")
            (of_studies if first in _OF_STUDIES else of_models).append(setting)
        keys = [setting.partition("=")[0] for setting in (*of_models, *of_studies)]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"{key} must be given once, got it twice: leave one out")
        return cls(
            arms=tuple(sorted(set(arms))),
            sizes=tuple(sizes),
            models=tuple(of_models),
            studies=tuple(of_studies),
            hypotheses=tuple(write_hypotheses(load_hypotheses(hypotheses, worlds))) if hypotheses else (),
        )

    @property
    def words(self) -> list[str]:
        """The choices as options of the command line, such as "--sizes 7,9", for messages."""
        lists = {"--arms": self.arms, "--sizes": self.sizes}
        return [
            *(f"{option} {','.join(map(str, values))}" for option, values in lists.items() if values),
            *([self._hypotheses_words] if self.hypotheses else ()),
            *(f"--set {setting}" for setting in (*self.models, *self.studies)),
        ]

    @property
    def _hypotheses_words(self) -> str:
        texts = (
            hypothesis if isinstance(hypothesis, str) else f"{hypothesis['name']} = {hypothesis['is']}"
            for hypothesis in self.hypotheses
        )
        return f"--hypotheses {shlex.quote(';'.join(texts))}"

    def subjects(self, subjects: Sequence[Subject]) -> list[Subject]:
        """Return the models with the chosen parameters, and with distinct names.

        Args:
            subjects: the models as the user gave them.

        Raises:
            ValueError: parameters were chosen and one is not a language model, a model lacks one of the parameters, or
                sizes, settings or hypotheses are given although all are recorded logs.
        """
        if (self.sizes or self.studies or self.hypotheses) and all(subject.logs is not None for subject in subjects):
            raise ValueError(f"recorded runs are judged as they are, got {', '.join(self.words)}: leave that out")
        for subject in subjects if self.models else ():
            if subject.kind not in MODELS or subject.logs is not None:
                description = "a recorded run" if subject.logs is not None else f"an agent of kind {subject.kind}"
                raise ValueError(
                    f"{', '.join(self.models)} applies only to language models, but {subject.name} is {description}: "
                    f"leave it out, or set it only for the language models, as in chat:model=NAME,{self.models[0]}"
                )
        return told_apart([subject.changed(self.models) for subject in subjects] if self.models else subjects)

    def check_arms(self, arms: Sequence[Arm], subjects: Sequence[Subject] = ()) -> None:
        """Check that each chosen arm (part of an evaluation) exists, and that the arms whose episodes it reads are
        chosen too.

        Args:
            arms: all arms.
            subjects: the models to be asked; an arm that none of them allows is not proposed together with another one.

        Raises:
            ValueError: a chosen arm does not exist, or needs the episodes of an arm that was not chosen.
        """
        arms_by_name = {arm.name: arm for arm in arms}
        for name in self.arms:
            if name not in arms_by_name:
                near = near_miss(name, list(arms_by_name))
                raise ValueError(f"--arms must be some of {', '.join(arms_by_name)}, got {name!r}{near}")
            if (at := arms_by_name[name].at) not in self.arms:
                if subjects and not any(arms_by_name[name].open_to(subject) for subject in subjects):
                    names = ", ".join(subject.name for subject in subjects)
                    raise ValueError(f"--arms {name} cannot be asked of {names}: {arms_by_name[name].why}")
                suggestion = f"--arms {at},{','.join(self.arms)}"
                raise ValueError(
                    f"--arms {name} reads the episodes of {at}, which must be asked, too: give {suggestion}"
                )

    def has(self, arm: Arm) -> bool:
        """Return whether an arm (part of an evaluation) is to be run: it was chosen, or no arms were chosen."""
        return not self.arms or arm.name in self.arms

    def changed(self, arm: Arm) -> Arm:
        """Return an arm (part of an evaluation) with the chosen sizes, hypotheses and study settings that it
        accepts.
        """
        if arm.looks is not None or not (self.sizes or self.studies or self.hypotheses):
            return arm
        return replace(arm, chosen=lambda study: self._applied(arm, study)[0], full=self._full(arm))

    def _full(self, arm: Arm) -> int:
        """Return the worlds per cell at which an arm's claims are decided: as many worlds in total as with its own
        sizes.
        """
        worlds = (
            attempt("arm", arm.name, lambda: arm.worlds(1), lambda why: list[dict[str, Any]]()) if self.sizes else []
        )
        lengths = [len(entry["sizes"]) for outer in worlds for entry in outer.get("of", [outer]) if "sizes" in entry]
        if not lengths:
            return arm.full
        study = Study.assemble({"worlds": worlds, "agents": [{"kind": "random"}], **arm.study})
        if self._applied(arm, study)[1].keys() & {words for words, _ in self._changes(arm) if "--sizes" in words}:
            return arm.full
        return math.ceil(arm.full * lengths[0] / len(self.sizes))

    def not_taken(self, arms: Sequence[Arm], subjects: Sequence[Subject], seed: int) -> list[str]:
        """Return a sentence for each choice that some arms do not accept, with the reason for the first of these arms.

        Args:
            arms: the arms (parts of the evaluation) that run.
            subjects: the models that are asked.
            seed: root seed of the worlds.

        Raises:
            ValueError: no arm accepts a choice.
        """
        refused, accepted = dict[str, dict[str, str]](), set[str]()
        for arm in arms if self.words else ():
            open_subjects = [subject for subject in subjects if arm.open_to(subject)]
            if arm.looks is not None or not open_subjects:
                continue
            reasons = self._applied(arm, replace(arm, chosen=None).make(open_subjects[:1], max(arm.quick, 1), seed))[1]
            accepted |= {words for words, _ in self._changes(arm) if words not in reasons}
            lacking = {
                key for subject_asked in open_subjects for key in subject_asked.not_taken(arm.agent.get("kind", CHAT))
            }
            unsupported = [setting for setting in self.models if setting.partition("=")[0] in lacking]
            accepted |= set(unsupported)
            for words, why in {
                **reasons,
                **dict.fromkeys(unsupported, "prompts of task worlds have no such parameter"),
            }.items():
                refused.setdefault(words, {})[arm.title] = why
        for words, reasons_by_arm in refused.items():
            if words not in accepted:
                raise ValueError(
                    f"{words} does not fit any arm of this evaluation: {next(iter(reasons_by_arm.values()))}"
                )
        return [
            f"{words} is not applied to {', '.join(reasons_by_arm)}: {next(iter(reasons_by_arm.values()))}"
            for words, reasons_by_arm in refused.items()
        ]

    def _applied(self, arm: Arm, study: Study) -> tuple[Study, dict[str, str]]:
        """Apply the choices that the study of an arm accepts.

        Also return why the study does not accept the other choices.
        """
        refused = {}
        for words, change in self._changes(arm):
            mapping = study.dump()
            try:
                change(mapping)
                study = Study.assemble(mapping)
            except ValueError as error:
                refused[words] = " ".join(str(error).split())
        return study, refused

    def _changes(self, arm: Arm) -> Iterator[tuple[str, Callable[[dict[str, Any]], None]]]:
        """Yield the choices that change studies, in words and as functions; settings of one key are one choice."""
        if self.sizes:
            yield f"--sizes {','.join(map(str, self.sizes))}", self._resize
        if self.hypotheses:
            yield self._hypotheses_words, partial(self._named, arm=arm)
        by_key: dict[str, list[str]] = {}
        for setting in self.studies:
            by_key.setdefault(key_path(setting.partition("=")[0])[0], []).append(setting)
        for key, settings in by_key.items():
            counts = key == "trajectories" and arm.trajectories is not None
            yield " ".join(f"--set {setting}" for setting in settings), partial(_set, settings=settings, counts=counts)

    def _resize(self, mapping: dict[str, Any]) -> None:
        entries = [entry for outer in mapping["worlds"] for entry in outer.get("of", [outer]) if "sizes" in entry]
        if not entries:
            kinds = ", ".join(dict.fromkeys(str(entry["kind"]) for entry in mapping["worlds"]))
            raise ValueError(f"worlds of kind {kinds} have no sizes")
        for entry in entries:
            entry["sizes"] = list(self.sizes)
        # Whether there are such worlds at all: a goal may have to be far from the start.
        single = [{**entry, "count": 1} if "count" in entry else entry for entry in mapping["worlds"]]
        Study.assemble({**mapping, "worlds": single, "agents": [{"kind": "random"}]}).size()

    def _named(self, mapping: dict[str, Any], *, arm: Arm) -> None:
        if arm.name == GIVEN:
            mapping["answers"] = 2
        if mapping.get("answers", 1) < 2:
            raise ValueError("each of its steps has one answer, which cannot tell hypotheses from noise")
        check_names(restore_hypotheses(list(self.hypotheses)), Study.assemble(mapping).worlds)
        mapping["analysis"] = {**mapping.get("analysis", {}), "hypotheses": list(self.hypotheses)}


def _set(mapping: dict[str, Any], *, settings: Sequence[str], counts: bool) -> None:
    if counts:
        raise ValueError("the size of an evaluation is its number of trajectories")
    for setting in settings:
        set_key(mapping, setting)


def differences(stored: Mapping[str, Sequence[str]], requested: Mapping[str, Sequence[str]]) -> str:
    """Describe on one line the first difference between a stored and a requested plan; "" if they are equal.

    Only the first title with a difference is reported, since the others follow from it.

    Args:
        stored, requested: each plan as a mapping from a title, such as "model ", to the words that describe it.
    """
    for title, before in stored.items():
        if before != (now := requested[title]):
            words = [f"{title}{text} stored, not given" for text in before if text not in now]
            words += [f"{title}{text} given, not stored" for text in now if text not in before]
            return "; ".join(words) or f"{title}in another order"
    return ""


# The plan, and the evaluation on disk.

PLAN: Final = "evaluation.json"
LEDGER: Final = "ledger.json"
PAGE: Final = "report.html"
ARMS: Final = "arms"
"""Names of an evaluation's files, and of its folder of run directories."""


class Plan(SealedRecord):
    """The plan of an evaluation: which models are asked what. It can be printed, saved and run again.

    Attributes:
        version: version of the file format; other versions are refused.
        models: the models in the order of their runs, each as a study lists an agent, with its name.
        seed: root seed of the worlds.
        looks: one mapping per look at the data (a later look adds worlds): name of an arm, which is a part of the
            evaluation -> number of worlds per cell; empty until sizes are chosen.
        worlds: the worlds that replace all others, see `goalscope.verdict.arms.given_worlds`; None for those of the
            registered arms.
        choices: the user's choice of arms, sizes and settings; settings of models are stored in ``models``.
        beforehand: sentences on which hypotheses the planned worlds are enough to name, and which not.
    """

    what: ClassVar[str] = "plan"
    advice: ClassVar[str] = "restore it from a copy, or choose another directory, or evaluate again into one"
    version: Literal[4] = 4
    models: tuple[dict[str, Any], ...] = Field(strict=False, min_length=1)
    seed: int = SEED
    looks: tuple[dict[str, int], ...] = Field(default=(), strict=False)
    worlds: dict[str, Any] | None = None
    choices: Choices = Choices()
    beforehand: tuple[str, ...] = Field(default=(), strict=False)

    @classmethod
    def read(cls, path: str | Path, *, edited: bool = False) -> Self:
        """Read a plan from its JSON file.

        Args:
            path: the file.
            edited: also accept a plan without a digest, which a user wrote or changed.

        Raises:
            ValueError: it is not a plan, has another version, or was changed after it was written.
        """
        plan = read_sealed(cls, Path(path), edited=edited)
        note_found(plan.model_dump(mode="json"), path)
        return plan

    @property
    def sizes(self) -> dict[str, int]:
        """Name of an arm (part of the evaluation) -> number of worlds per cell, at the last look at the data.

        A cell is a combination of kind, size and density. Empty until sizes are chosen.
        """
        return self.looks[-1] if self.looks else {}

    @property
    def look(self) -> int:
        """Number of the last look at the data, from 1; each look has more worlds than the one before it.

        It is 1 also before sizes are chosen.
        """
        return max(1, len(self.looks))

    @property
    def id(self) -> str:
        """Content id (hash) of the plan."""
        return content_id("plan", self.model_dump(mode="json"))

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return [str(model.get("name")) for model in self.models]

    def subjects(self) -> list[Subject]:
        """Return the models as subjects of an evaluation, ready to be asked.

        Raises:
            ValueError: a model stands for recorded logs, whose location a plan does not store.
        """
        return [subject_of_entry(model) for model in self.models]

    def to_json(self) -> str:
        """Return the plan as JSON with a digest of its content."""
        return seal(self)

    def sized(self, sizes: Mapping[str, int] | None) -> Self:
        """Return the plan with chosen sizes. Larger sizes than before are a new look, which adds worlds to the existing
        ones.

        Args:
            sizes: name of an arm (part of the evaluation) -> number of worlds per cell. Arms are never made smaller,
                and new arms join the last look. None returns the plan as it is.
        """
        if sizes is None:
            return self
        last = self.sizes
        larger = {name: max(count, last.get(name, 0)) for name, count in {**last, **sizes}.items()}
        looks = self.looks if any(larger[name] > last[name] for name in last) else self.looks[:-1]
        return self.model_copy(update={"looks": (*looks, larger)})

    def going_on(self, requested: Self, place: Path) -> Self:
        """Return this stored plan with the further models and arms (parts of the evaluation) that the user requests
        now.

        Args:
            requested: the plan of the present command.
            place: the directory of the stored plan, for errors.

        Raises:
            ValueError: the requested plan lacks a model or an arm of this one, or has another seed, worlds or settings.
        """
        if self.worlds != requested.worlds:  # agents with planted goals come with an environment, so before the models
            stored_words, requested_words = _worlds_in_words(self.worlds), _worlds_in_words(requested.worlds)
            if stored_words == requested_words:
                requested_words = "other worlds of that name"
            raise ValueError(
                f"{place} holds an evaluation in {stored_words}, but this command asks for {requested_words}: "
                f"{_advice_on_worlds(self.worlds)} to continue it, or choose another directory with --out"
            )
        for_models = [described(model) for model in self.models], [described(model) for model in requested.models]
        choices = self.choices
        if choices.arms and set(choices.arms) <= set(requested.choices.arms or choices.arms):
            choices = choices.model_copy(update={"arms": requested.choices.arms})
        adds = set(for_models[0]) <= set(for_models[1])
        stored = {"": choices.words, "seed ": [str(self.seed)], "model ": for_models[1 if adds else 0]}
        if differ := differences(
            stored, {"": requested.choices.words, "seed ": [str(requested.seed)], "model ": for_models[1]}
        ):
            raise ValueError(
                f"{place} holds another evaluation ({differ}): give the same models and options, and more models or "
                "arms where some are to be added, or choose another directory"
            )
        new = [model for model, text in zip(requested.models, for_models[1], strict=True) if text not in for_models[0]]
        if len({*self.names, *(model["name"] for model in new)}) < len(self.models) + len(new):
            raise ValueError(f"models must have different names, {place} has {', '.join(self.names)}: give a name")
        return self.model_copy(update={"models": (*self.models, *new), "choices": requested.choices})


@dataclass(frozen=True, kw_only=True)
class EvaluationRun:
    """An evaluation on disk, ready to be run or read: one directory with its plan and the runs that the plan lists.

    Each model has its own run in each arm (part of the evaluation), so that a model or an arm can be added without
    touching the others.

    Attributes:
        directory: the directory of the evaluation.
        plan: which models are asked what.
        subjects: its models, in the order of the plan.
        failures: which models are not asked which arms, and what failed.
    """

    directory: Path
    plan: Plan
    subjects: tuple[Subject, ...]
    failures: Failures
    _open: dict[Path, Store] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def arms(self) -> list[Arm]:
        """All arms (parts of the evaluation), chosen or not, with the user's settings (sizes, --set) applied."""
        available = arms() if self.plan.worlds is None else given_arms(self.plan.worlds)
        return [self.plan.choices.changed(arm) for arm in available]

    @property
    def level(self) -> float:
        """Maximum probability of a wrong answer per claim at this look at the data; the first look has .04, the second
        .008.
        """
        return level(self.plan.look)

    def path(self, arm: str, subject: Subject) -> Path:
        """Return the directory of the run of one model in one arm (part of the evaluation).

        It is ``arms/grids`` for the first model in the arm "grids", then ``arms/grids-2``, and so on.
        """
        name = folder_of(arm, self.plan.names.index(subject.name))
        return Folder(self.directory).below(ARMS, name).checked()

    def subjects_for(self, arm: Arm) -> list[Subject]:
        """Return the models that play an arm (part of the evaluation); empty if the plan leaves the arm out."""
        subjects = [subject for subject in self.subjects if subject.logs is None and arm.open_to(subject)]
        return subjects if arm.name in self.plan.sizes and arm.at in self.plan.sizes else []

    @property
    def logs(self) -> list[Path]:
        """The directories of recorded logs that are judged instead of models that can be asked."""
        return list(dict.fromkeys(subject.logs for subject in self.subjects if subject.logs is not None))

    def settled(self, subjects: Sequence[Subject]) -> "EvaluationRun":
        """Return the evaluation with other settings for some models, which followed from their first answers.

        Args:
            subjects: the models with their settings; those of the evaluation that are missing stay as they are.
        """
        by_name = {subject.name: subject for subject in subjects}
        named = tuple(by_name.get(subject.name, subject) for subject in self.subjects)
        if named == self.subjects:
            return self
        models = tuple(
            model if subject.logs is not None else planned_entry(subject)
            for model, subject in zip(self.plan.models, named, strict=True)
        )
        return replace(self, subjects=named, plan=self.plan.model_copy(update={"models": models}))

    def sized(self, sizes: Mapping[str, int] | None) -> "EvaluationRun":
        """Choose the sizes of the arms (parts of the evaluation), write the plan, and return the evaluation.

        Args:
            sizes: name of an arm -> number of worlds per cell; None to keep the sizes of the last look, see
                `Plan.sized`.

        Raises:
            ValueError: there are models that can be asked, but no arm.
        """
        if sizes is not None and not sizes and any(subject.logs is None for subject in self.subjects):
            raise ValueError(
                "an evaluation must ask at least one arm: give a larger budget, or a model that can be asked"
            )
        return self.announced(sizes).written()

    def announced(self, sizes: Mapping[str, int] | None) -> "EvaluationRun":
        """Return the evaluation with given sizes, and with sentences on which hypotheses its worlds are enough to name.

        The sentences are `Plan.beforehand`. Nothing is written.

        Args:
            sizes: name of an arm (part of the evaluation) -> number of worlds per cell (combination of kind, size and
                density); None for those of the last look at the data.
        """
        sentences, sized = list[str](), replace(self, plan=self.plan.sized(sizes))
        for arm in sized.arms:
            open_to = sized.subjects_for(arm) if arm.study.get("answers", 1) > 1 else []
            subjects = [subject for subject in open_to if (arm.name, subject.name) not in self.failures.unasked]
            with self.failures.kept_apart(arm.title, [arm.name], [subject.name for subject in subjects]):
                if subjects:
                    study = arm.make(subjects[:1], sized.plan.sizes[arm.name], sized.plan.seed)
                    sentences += (f"{arm.title}: {line}" for line in told_beforehand(study, level=sized.level))
        return replace(sized, plan=sized.plan.model_copy(update={"beforehand": tuple(sentences)}))

    def written(self) -> "EvaluationRun":
        """Write the plan to its directory, and return the evaluation. This is done before any model is asked."""
        write_page(self.directory / PLAN, self.plan.to_json() + "\n")
        return self

    def store(self, arm: Arm, subject: Subject, study: Study) -> Store:
        """Return the store of one model's run in an arm (part of the evaluation), open for writing until `close`.

        Args:
            arm, subject: the arm and the model.
            study: the study of the arm at its planned size, which the stored study is extended to.
        """
        path = self.path(arm.name, subject)
        if path not in self._open:
            self._open[path] = Store(path, "w", durability=study.durability)
        grow(self._open[path], study)
        return self._open[path]

    def close(self, arm: Arm | None = None, subject: Subject | None = None) -> None:
        """Close the store of one model's run in an arm (part of the evaluation), if it is open.

        Without arguments, all open stores are closed.
        """
        paths = list(self._open) if arm is None or subject is None else [self.path(arm.name, subject)]
        for path in paths:
            if path in self._open:
                self._open.pop(path).close()

    def stored_episodes(self) -> int:
        """Return how many episodes are stored in all runs of the evaluation that the plan lists."""
        total = 0
        for arm in self.arms:
            for subject in self.subjects_for(arm) if arm.looks is None else ():
                path = self.path(arm.name, subject)
                if path in self._open:
                    total += count_episodes(self._open[path])
                elif not unmade(path / DATABASE):
                    with Store(path) as store:
                        total += count_episodes(store)
        return total


def folder_of(arm: str, number: int) -> str:
    """Return the name of the folder with the run of one model in one arm (part of an evaluation), such as "grids-2".

    Args:
        arm: name of the arm.
        number: index of the model in the plan, from 0.
    """
    return f"{arm}-{number + 1}" if number else arm


def _worlds_in_words(worlds: Mapping[str, Any] | None) -> str:
    """Describe the worlds of a plan, with the option that chose them."""
    if worlds is None:
        return "the usual worlds (neither --env nor --worlds)"
    return f"{worlds.get('name', 'a study')} ({_option_for(worlds)})"


def _advice_on_worlds(worlds: Mapping[str, Any] | None) -> str:
    """Say how to ask for the worlds of a stored plan."""
    return "leave out --env and --worlds" if worlds is None else f"repeat its {_option_for(worlds)}"


def _option_for(worlds: Mapping[str, Any]) -> str:
    """Return the option that chose the worlds of a plan: agents with planted goals come with --env alone."""
    return "--env" if "twins" in worlds else "--worlds"


def check_directory(out: Path) -> None:
    """Check that the files of an evaluation and the databases of its runs are ordinary files, before anything is read.

    Files that do not exist are accepted.

    Raises:
        StrangeFileError: one of them is a link or not an ordinary file.
    """
    for name in (PLAN, LEDGER, PAGE):
        Folder(out).file(name)
    for folder in Folder(out).folders(ARMS):
        check_files(folder.path / DATABASE)


def _continued(stored: Plan, requested: Plan, out: Path) -> Plan:
    """Return the stored plan extended by a given one, or the given one if the first start led to nothing.

    A start led to nothing if no model gave an answer, for example because the server could not be reached, or if it
    ended before sizes were chosen, for example because the budget was too small. What it stored does not block the
    corrected command. First turns that the same models answered are kept, because the runs of the arms can grow.
    """
    try:
        return stored.going_on(requested, out)
    except ValueError:
        if any("run" in model for model in stored.models):  # recorded logs, which are judged without an answer
            raise
        if not stored.looks and {*map(described, stored.models)} <= {*map(described, requested.models)}:
            return requested
        for folder in Folder(out).folders(ARMS):
            if not unmade(folder.path / DATABASE):
                with Store(folder.path) as store:
                    if store.holds_answers():
                        raise
        return requested


def _as_stored(subject: Subject, plan: Plan) -> Subject:
    """Return a model with the settings that it got after its first answers in a stored plan, unless the user gave
    others.
    """
    entry = planned_entry(subject)
    if subject.logs is not None or described(entry) in map(described, plan.models):
        return subject
    for model in plan.models:
        differing = {key for key in {*entry, *model} - {"name"} if entry.get(key) != model.get(key)}
        if differing <= set(SEEN) - subject.stated and differing <= set(model):
            changed = subject.changed([f"{key}={model[key]}" for key in sorted(differing)])
            return replace(changed, name=subject.name)
    return subject


def planned(
    directory: str | Path,
    subjects: Sequence[Subject],
    *,
    seed: int = SEED,
    worlds: Mapping[str, Any] | None = None,
    choices: Choices | None = None,
) -> EvaluationRun:
    """Describe a new evaluation, or read the one that a directory holds. Nothing is written yet.

    Args:
        directory: the directory of the evaluation.
        subjects: the models to evaluate: those of the existing evaluation, and further ones.
        seed: root seed of the worlds.
        worlds: the worlds that replace all others, see `goalscope.verdict.arms.given_worlds`.
        choices: the user's choice of arms, sizes and settings; settings of models are also part of the subjects.

    Raises:
        ValueError: the directory contains another evaluation, other files, or a link in the place of one of its files.
    """
    out = Path(directory)
    check_directory(out)  # before anything is asked
    own_worlds = None if worlds is None else dict(worlds)
    stored_plan = Plan.read(out / PLAN) if Folder(out).has_file(PLAN) else None
    subjects = subjects if stored_plan is None else [_as_stored(subject, stored_plan) for subject in subjects]
    models = tuple(planned_entry(subject) for subject in subjects)
    plan = Plan(models=models, seed=seed, worlds=own_worlds, choices=choices or Choices())
    if stored_plan is not None:
        plan = _continued(stored_plan, plan, out)
    else:  # a process may have died writing the plan
        check_no_other_files(out, (f".{PLAN}.partial",), "an evaluation")
    by_text = {described(model): subject for model, subject in zip(models, subjects, strict=True)}
    if len(by_text) < len(subjects):
        raise ValueError(f"models must differ in more than their names, got {', '.join(plan.names)}: leave one out")
    named = [replace(by_text[described(model)], name=str(model["name"])) for model in plan.models]
    return EvaluationRun(directory=out, plan=plan, subjects=tuple(named), failures=Failures(out))


def prepare(
    directory: str | Path, subjects: Sequence[Subject], sizes: Mapping[str, int] | None, **more: Any
) -> EvaluationRun:
    """Declare an evaluation with given sizes, or continue one, and write its plan.

    Args:
        directory: the directory of the evaluation.
        subjects: the models to evaluate.
        sizes: name of an arm (part of the evaluation) -> number of worlds per cell, see `Plan.sized`.
        more: further arguments of `planned`.
    """
    return planned(directory, subjects, **more).sized(sizes)
