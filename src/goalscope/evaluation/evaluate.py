"""An evaluation: arms are run, measured and judged; a run directory for each arm, one ledger, one page."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from goalscope import registry
from goalscope.evaluation.arms import SEED, Arm, Look, arms, given_arm
from goalscope.evaluation.claims import ArmReport, Claim, ClaimLedger, Evaluation
from goalscope.evaluation.compare import differences
from goalscope.evaluation.evidence import ArmRun, data_by_arm
from goalscope.evaluation.rules import RULES, Rule, decide, level
from goalscope.evaluation.subject import Subject, describe
from goalscope.ids import content_id
from goalscope.measures.behaviour import measured_parts
from goalscope.report.page import write_page
from goalscope.runs import Store, Study, run
from goalscope.runs.merge import excerpt, grow, settle
from goalscope.runs.opening import unmade
from goalscope.runs.probing_config import Inside
from goalscope.runs.provenance import note, noted
from goalscope.runs.tables import DATABASE
from goalscope.untrusted import decode_object, explain, read_octets, read_yaml_text

PLAN: Final = "evaluation.json"
LEDGER: Final = "ledger.json"
PAGE: Final = "report.html"
ARMS: Final = "arms"
"""Names of the files, and of the folder of run directories, of an evaluation."""

LOOKS: Final = "evaluation inside"
"""Name under which a run keeps, by arm, what an evaluation looked at inside, and why not where it was refused."""

NO_ROOM: Final = "no room for it at this size: give a larger --budget"
_RECORD: Final = "record some (docs/import.md says how worlds are tagged), or give the model itself"

Stage = Callable[[str], AbstractContextManager[Callable[..., None]]]
"""Opens the progress of a piece of work under a label; it is told (done, total, seconds left or None)."""


class _Plan(BaseModel):
    """What an evaluation asks, as its directory keeps it: models, seed, and the worlds a cell of each look."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    version: int = 1
    models: tuple[str, ...] = Field(strict=False, min_length=1)
    seed: int
    looks: tuple[dict[str, int], ...] = Field(strict=False)
    worlds: dict[str, Any] | None = None

    @classmethod
    def read(cls, path: Path) -> "_Plan":
        try:
            return cls.model_validate(decode_object(read_octets(path)))
        except ValidationError as error:
            raise ValueError(explain(error, {"": list(cls.model_fields)}, str(path), "plan")) from None

    def write(self, path: Path) -> None:
        write_page(path, json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1, sort_keys=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRun:
    """An evaluation on disk, ready to be run or read.

    Attributes:
        directory: where it lies.
        subjects: who is evaluated.
        seed: root seed of its worlds.
        sizes: arm -> worlds a cell; the arms that are asked.
        look: number of the look that these sizes are.
        worlds: the worlds that are asked in place of all others, see `goalscope.evaluation.arms.given_worlds`; None for
            those of the registered arms.
    """

    directory: Path
    subjects: tuple[Subject, ...]
    seed: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    look: int = 1
    worlds: Mapping[str, Any] | None = None

    @property
    def arms(self) -> list[Arm]:
        """The arms that may be asked."""
        return arms() if self.worlds is None else [given_arm(self.worlds)]

    @property
    def level(self) -> float:
        """Chance of a wrong answer that this look allows."""
        return level(self.look)

    def path(self, name: str) -> Path:
        """Return the run directory of an arm."""
        return self.directory / ARMS / name

    def asked(self, arm: Arm) -> list[Subject]:
        """Return the models that an arm is run with."""
        there = [one for one in self.subjects if one.logs is None and arm.open_to(one)]
        return there if arm.name in self.sizes and arm.at in self.sizes else []

    def place(self, arm: Arm, subject: Subject) -> Path:
        """Return the run directory that holds what an arm finds of a model.

        A run keeps what was read out of one model. That of an arm with worlds keeps it of the first model that can be
        looked into; each other one has an excerpt of its own, named by its number: ``arms/grids-2``.
        """
        looks = [other for other in arms() if other.looks is not None and other.at == arm.at]
        first = next(
            (one for one in self.subjects if one.logs is None and any(each.open_to(one) for each in looks)), None
        )
        if arm.looks is None or subject == first:
            return self.path(arm.at)
        return self.path(f"{arm.at}-{self.subjects.index(subject) + 1}")

    @property
    def logs(self) -> list[Path]:
        """The runs of recorded logs that are evaluated."""
        return list(dict.fromkeys(one.logs for one in self.subjects if one.logs is not None))


def prepare(
    directory: str | Path,
    subjects: Sequence[Subject],
    sizes: Mapping[str, int],
    *,
    seed: int = SEED,
    worlds: Mapping[str, Any] | None = None,
) -> EvaluationRun:
    """Declare an evaluation, or go on with one; what is asked is stored before anything is run.

    Sizes that are not larger than those of the last look go on with that look. Larger ones are a new look, which adds
    worlds to those that are there.

    Args:
        directory: where it is to lie; made where it is missing.
        subjects: who is evaluated.
        sizes: arm -> worlds a cell.
        seed: root seed of the worlds.
        worlds: the worlds that are asked in place of all others, see `goalscope.evaluation.arms.given_worlds`.

    Raises:
        ValueError: another evaluation lies there, or a file that is none.
    """
    if not sizes and any(one.logs is None for one in subjects):
        raise ValueError("an evaluation must ask at least one arm: give a larger budget, or a model that can be asked")
    out, models = Path(directory), tuple(describe(one) for one in subjects)
    path, kept = out / PLAN, None if worlds is None else dict(worlds)
    if path.exists():
        plan = _Plan.read(path)
        if plan.models != models or plan.seed != seed:
            raise ValueError(
                f"{out} holds the evaluation of {'; '.join(plan.models)} with seed {plan.seed}, not of "
                f"{'; '.join(models)} with seed {seed}: choose another directory"
            )
        if plan.worlds != kept:
            raise ValueError(f"{out} holds an evaluation in other worlds: give the same --worlds, or another directory")
        last = plan.looks[-1]
        larger = {name: max(count, last.get(name, 0)) for name, count in {**last, **sizes}.items()}
        looks = plan.looks if larger == last else (*plan.looks, larger)
    else:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise ValueError(f"an evaluation needs a directory of its own, but {out} holds other files: choose another")
        looks = (dict(sizes),)
    _Plan(models=models, seed=seed, looks=looks, worlds=kept).write(path)
    sizes, look = looks[-1], len(looks)
    return EvaluationRun(directory=out, subjects=tuple(subjects), seed=seed, sizes=sizes, look=look, worlds=kept)


def reopen(directory: str | Path) -> tuple[EvaluationRun, Evaluation]:
    """Return an evaluation that was judged, and its ledger, without its models: to read what it found.

    Recorded logs are looked for beside its directory, under the name of theirs.

    Raises:
        FileNotFoundError: no evaluation lies there, or the logs that it judged are elsewhere.
        ValueError: it was not judged since it grew, or a file is none of goalscope's.
    """
    out = Path(directory)
    plan, found = _Plan.read(out / PLAN), Evaluation.read(out / LEDGER)
    if found.models[0].look != len(plan.looks):
        raise ValueError(f"an evaluation must be judged to be read, but {out} grew since: run the same command again")
    subjects = []
    for one in found.models:
        logs = None
        if "logs" in one.access:
            logs = out.resolve().parent / Path(str(read_yaml_text(one.described, str(out))["run"])).name
            if unmade(logs / DATABASE):
                raise FileNotFoundError(
                    f"the logs that were judged must lie beside {out}, but {logs} holds none: move them"
                )
        subjects.append(Subject(name=one.model, kind="", access=frozenset(one.access), logs=logs))
    about: dict[str, Any] = {"seed": plan.seed, "sizes": plan.looks[-1], "look": len(plan.looks), "worlds": plan.worlds}
    return EvaluationRun(directory=out, subjects=tuple(subjects), **about), found


def play(
    evaluation: EvaluationRun, stage: Stage, *, workers: int = 1, arguments: Mapping[str, Any] | None = None
) -> None:
    """Run and measure every arm, measure recorded logs; what is stored is not repeated."""
    for path in evaluation.logs:
        _measure(path, stage, path.name)
    for one in evaluation.arms:
        subjects = evaluation.asked(one)
        if not subjects:
            continue
        if one.looks is not None:
            for subject in subjects:
                _look(evaluation, one, one.looks, subject, stage)
            continue
        study = one.make(subjects, evaluation.sizes[one.name], evaluation.seed)
        place = evaluation.path(one.name)
        stored = _stored(place)
        if stored is not None and stored.id != study.id:
            grow(place, study)
        with stage(f"{one.name}: episodes") as show:
            run(
                study,
                place,
                workers=workers,
                arguments=arguments,
                progress=lambda done, total, steps, left, show=show: show(done, total, left),  # type: ignore[misc]
            )
        _measure(place, stage, one.name)


def _look(evaluation: EvaluationRun, arm: Arm, look: Look, subject: Subject, stage: Stage) -> None:
    """Read or change activations, where that was not done yet in the same way on as many worlds.

    What refuses to be done on this model or these worlds is not asked, and its sentence is the reason.
    """
    place, settings = evaluation.place(arm, subject), look.settings(subject.name, evaluation.sizes[arm.name])
    if place != evaluation.path(look.at):
        _excerpt(evaluation, look.at, subject, place, stage)
    declared = {"agent": subject.name, "settings": settings.model_dump(mode="json")}
    mark = content_id("look", {**declared, "worlds": evaluation.sizes[look.at]})
    with Store(place) as store:
        if _looked(store, arm).get("mark") == mark:
            return
    why = ""
    try:
        if isinstance(settings, Inside):
            from goalscope.probing.pipeline import study_inside

            study_inside(place, settings, stage=lambda label: stage(f"{arm.name}: {label}"))
        else:
            from goalscope.interventions.experiment import study_interventions

            study_interventions(place, [settings], stage=lambda label: stage(f"{arm.name}: {label}"))
    except ValueError as refusal:
        why = " ".join(str(refusal).split())
    with Store(place, "w") as store:
        found = {"mark": mark, "model": subject.name, "refused": why}
        note(store, LOOKS, {arm.name: found})


def _excerpt(evaluation: EvaluationRun, at: str, subject: Subject, place: Path, stage: Stage) -> None:
    """Make, or make anew where the arm grew, the measured run that holds the episodes of one model of an arm."""
    arm: Arm = registry.resolve("arm", at)
    study = arm.make([subject], evaluation.sizes[at], evaluation.seed)
    stored = _stored(place)
    if stored is None or stored.id != study.id:
        excerpt(evaluation.path(at), study, place)
    _measure(place, stage, place.name)


def _stored(place: Path) -> Study | None:
    """Return the study of a run, what was begun beside it put in its place first; None where there is no run."""
    settle(place)
    if unmade(place / DATABASE):
        return None
    with Store(place) as store:
        return store.study()


def _looked(store: Store, arm: Arm) -> Mapping[str, str]:
    """Return what a run keeps about the look of an arm: its mark, its model, and why it was refused, "" where not."""
    found = noted(store, LOOKS).get(arm.name)
    return found if isinstance(found, dict) and all(isinstance(one, str) for one in found.values()) else {}


def _measure(place: Path, stage: Stage, name: str) -> None:
    """Measure a run whose rows do not cover its episodes."""
    with Store(place) as store:
        episodes = store.episode_ids()
        measured = {one for name, ids in store.row_labels("episode_id") if name == "success" for one in ids}
    if len(measured) == len(episodes):
        return
    with Store(place, "w") as store, stage(f"{name}: measuring") as show:
        store.put_rows(measured_parts(store, lambda done, total: show(done, total)), source="behaviour")


Opened = dict[tuple[str, str], ArmRun]
"""(arm, name of a model) -> the measured run that tells of it."""


@contextmanager
def opened(evaluation: EvaluationRun) -> Iterator[Opened]:
    """Open the measured runs of all arms and models, for `judge` and the page."""
    confidence, found, wholes = 1 - evaluation.level, Opened(), dict[Path, ArmRun]()
    with ExitStack() as stack:
        logs = {path: stack.enter_context(Store(path)) for path in evaluation.logs}
        for one in evaluation.arms:
            for subject in evaluation.asked(one):
                at = evaluation.place(one, subject)
                if at != evaluation.path(one.at) and unmade(at / DATABASE):
                    continue  # an evaluation of an earlier version, which looked into the first model alone
                if at not in wholes:
                    wholes[at] = ArmRun.of(stack.enter_context(Store(at)), confidence)
                if one.looks is None or not _looked(wholes[at].store, one).get("refused"):
                    found[one.name, subject.name] = wholes[at]
            parts = {path: ArmRun.of(store, confidence, one.recorded) for path, store in logs.items()}
            for subject in evaluation.subjects:
                part = parts.get(subject.logs) if subject.logs is not None else None
                if part is not None and part.tells_of(subject.name, one.varies):
                    found[one.name, subject.name] = part
        yield found


def judge(evaluation: EvaluationRun, runs: Mapping[tuple[str, str], ArmRun]) -> Evaluation:
    """Return what follows from the arms that were run, by rule."""
    rules: list[Rule] = [registry.resolve("claim", name) for name in registry.names("claim")]
    ledgers = []
    for subject in evaluation.subjects:
        reports, claims, there = [], [], data_by_arm(evaluation.arms, subject, runs)
        for one in evaluation.arms:
            if (one.name, subject.name) not in runs:
                why = _why(evaluation, one, subject)
                reports.append(ArmReport(name=one.name, title=one.title, asked=False, why=why))
                continue
            data = there[one.name]
            episodes = data.rows.select(measure="success")
            told: dict[str, Any] = {"worlds": len(set(episodes.grid_id.tolist())), "episodes": len(episodes)}
            told = told if one.looks is None else {}  # they are those of the arm whose run it looks into
            reports.append(ArmReport(name=one.name, title=one.title, asked=True, **told))
            found = [decide(rule, data) for rule in rules if rule.arm == one.name]
            claims += [_linked(claim, one, data.run) for claim in found]
        ledgers.append(
            ClaimLedger(
                rules=RULES,
                model=subject.name,
                described=describe(subject),
                access=tuple(sorted(subject.access)),
                look=evaluation.look,
                level=evaluation.level,
                arms=tuple(reports),
                claims=tuple(claims),
            )
        )
    names = [one.name for one in evaluation.subjects]
    return Evaluation(models=tuple(ledgers), differences=differences(names, runs, evaluation.level))


def _linked(claim: Claim, arm: Arm, run: ArmRun) -> Claim:
    """Return a claim whose section is that of its own run, where that is an excerpt of the arm's."""
    if arm.looks is None or run.part is not None:
        return claim
    section = claim.section.removeprefix(f"{arm.at}-")
    return claim.model_copy(update={"section": f"{run.store.path.name}-{section}"})


def _why(evaluation: EvaluationRun, arm: Arm, subject: Subject) -> str:
    """Return why an arm was not asked of a model, and what would make it possible."""
    if subject.logs is not None:
        return f"the logs hold no such episodes: {_RECORD}"
    if not arm.open_to(subject):
        return arm.why
    if not evaluation.asked(arm):
        return NO_ROOM
    with Store(evaluation.place(arm, subject)) as store:
        return _looked(store, arm)["refused"]


def write(evaluation: EvaluationRun, found: Evaluation) -> Path:
    """Write the ledger; return its path."""
    return write_page(evaluation.directory / LEDGER, found.to_json() + "\n")
