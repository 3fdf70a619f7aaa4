"""What the user can choose in an evaluation: arms, grid sizes, and how language models are asked. Part of the plan.

Parameters of language models are merged into those of each model (`Subject.changed`), so they become part of its
description and id. Sizes and study settings are applied to the study of each arm that accepts them (`Choices.changed`).
"""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pydantic import Field

from goalscope._ground.checks import near_miss
from goalscope._ground.own import consent
from goalscope._ground.parts import attempt
from goalscope._ground.sealed import StrictRecord
from goalscope._ground.yaml_text import key_path, set_key
from goalscope.agents.agent import CHAT
from goalscope.goals.hypotheses import load_hypotheses, write_hypotheses
from goalscope.goals.hypotheses.written import check_names, restore_hypotheses
from goalscope.runs.study import Study
from goalscope.verdict.arms import GIVEN, Arm
from goalscope.verdict.subject import MODELS, Subject, told_apart

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
    """The user's choices.

    Attributes:
        arms: names of the arms to run; empty for all.
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
    ) -> "Choices":
        """Read the choices that a user made in a command.

        Args:
            arms: names of the arms to run; empty for all.
            sizes: side lengths of the grids; if there are none, each arm uses its own.
            models: parameters of every language model, KEY=VALUE each.
            settings: further parameters, KEY=VALUE each. If KEY begins with a key of a study, the setting applies to
                the arms' studies, otherwise to all language models.
            hypotheses: as `goalscope.goals.hypotheses.load_hypotheses` takes them; empty for the default ones.

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
            hypotheses=tuple(write_hypotheses(load_hypotheses(hypotheses))) if hypotheses else (),
        )

    @property
    def words(self) -> list[str]:
        """The choices as options of the command line, for messages."""
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
        """Return the subjects with the chosen parameters, with names that tell them apart.

        Raises:
            ValueError: a subject is not a language model, a model lacks one of the parameters, or sizes, settings or
                hypotheses are given although all subjects are recorded logs.
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
        """Raise a ValueError if a chosen arm does not exist, or needs the episodes of an arm that was not chosen.

        Args:
            arms: all arms.
            subjects: the models to be asked; an arm that none of them allows is not proposed together with another one.
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
        """Return whether an arm is chosen."""
        return not self.arms or arm.name in self.arms

    def changed(self, arm: Arm) -> Arm:
        """Return an arm with the chosen sizes and study settings that it accepts."""
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
            arms: the arms that run.
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
    """Describe on one line how two plans differ; "" if they do not.

    Each plan is given as lists of words by title. Only the first title with a difference is reported, since the others
    follow from it.
    """
    for title, before in stored.items():
        if before != (now := requested[title]):
            words = [f"{title}{text} stored, not given" for text in before if text not in now]
            words += [f"{title}{text} given, not stored" for text in now if text not in before]
            return "; ".join(words) or f"{title}in another order"
    return ""
