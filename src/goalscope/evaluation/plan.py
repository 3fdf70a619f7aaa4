"""The plan of an evaluation: models, seed, worlds of each look; a run directory for each arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from goalscope.evaluation.arms import SEED, Arm, arms, given_arm
from goalscope.evaluation.choices import Choices, differences
from goalscope.evaluation.claims import seal, sealed
from goalscope.evaluation.failures import Failures
from goalscope.evaluation.rules import level
from goalscope.evaluation.subject import Subject, describe
from goalscope.plain_files import check_file, path_in
from goalscope.report.page import write_page
from goalscope.runs.opening import check_files
from goalscope.runs.tables import DATABASE

PLAN: Final = "evaluation.json"
LEDGER: Final = "ledger.json"
PAGE: Final = "report.html"
ARMS: Final = "arms"
"""Names of the files of an evaluation, and of its folder of run directories."""


class Plan(BaseModel):
    """The stored plan of an evaluation: models, seed, and the worlds a cell of each look, none before it has sizes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    version: Literal[3] = 3
    models: tuple[str, ...] = Field(strict=False, min_length=1)
    seed: int
    looks: tuple[dict[str, int], ...] = Field(strict=False)
    worlds: dict[str, Any] | None = None
    choices: Choices = Choices()

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read the file.

        Raises:
            ValueError: it is no plan, or was changed since it was written.
        """
        return sealed(cls, path, "plan", "restore it from a copy, or choose another directory")

    @property
    def sizes(self) -> dict[str, int]:
        """Arm -> worlds a cell of the last look."""
        return self.looks[-1] if self.looks else {}

    @property
    def look(self) -> int:
        """Number of the look; where nothing could be asked the first one is not spent."""
        return max(1, len(self.looks))

    def write(self, path: Path) -> None:
        """Write the file."""
        write_page(path, seal(self) + "\n")


@dataclass(frozen=True, kw_only=True)
class EvaluationRun:
    """An evaluation on disk, ready to be run or read.

    Attributes:
        directory: its directory.
        subjects: the evaluated models.
        seed: root seed of its worlds.
        sizes: arm -> worlds a cell; the arms that are run.
        look: number of the look with these sizes.
        worlds: the worlds that replace all others, see `goalscope.evaluation.arms.given_worlds`; None for those of the
            registered arms.
        choices: what the user chose of arms, sizes and settings.
        failures: what is not asked of which model, and what failed.
    """

    directory: Path
    subjects: tuple[Subject, ...]
    seed: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    look: int = 1
    worlds: Mapping[str, Any] | None = None
    choices: Choices = field(default_factory=Choices)
    failures: Failures

    @cached_property
    def arms(self) -> list[Arm]:
        """The arms that may be run, as they were chosen; those that were not among them."""
        known = arms() if self.worlds is None else [given_arm(self.worlds)]
        return [self.choices.changed(arm) for arm in known]

    def arm(self, name: str) -> Arm:
        """Return the arm of a name."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def level(self) -> float:
        """Probability of a wrong answer that this look allows."""
        return level(self.look)

    def path(self, name: str) -> Path:
        """Return the run directory of an arm."""
        return path_in(self.directory, ARMS, name)

    def subjects_for(self, arm: Arm) -> list[Subject]:
        """Return the models that an arm is run with."""
        subjects = [subject for subject in self.subjects if subject.logs is None and arm.open_to(subject)]
        return subjects if arm.name in self.sizes and arm.at in self.sizes else []

    def run_path(self, arm: Arm, subject: Subject) -> Path:
        """Return the run directory that holds the results of an arm for a model.

        A run stores readings of one model's activations. The run of an arm with worlds stores those of the first model
        that an inside arm is open to; each other model has an excerpt, named by its number: ``arms/grids-2``.
        """
        inside_arms = [each for each in arms() if each.looks is not None and each.at == arm.at]
        open_models = (
            model
            for model in self.subjects
            if model.logs is None and any(inside_arm.open_to(model) for inside_arm in inside_arms)
        )
        first = next(open_models, None)
        if arm.looks is None or subject == first:
            return self.path(arm.at)
        return self.path(f"{arm.at}-{self.subjects.index(subject) + 1}")

    @property
    def logs(self) -> list[Path]:
        """The runs of recorded logs that are evaluated."""
        return list(dict.fromkeys(subject.logs for subject in self.subjects if subject.logs is not None))


def check_directory(out: Path) -> None:
    """Look at the files of an evaluation and at the databases of its runs before anything is read.

    Raises:
        StrangeFileError: a link lies there, or another thing than a file.
    """
    for name in (PLAN, LEDGER, PAGE):
        check_file(out / name)
    runs = path_in(out, ARMS)
    for folder in sorted(runs.iterdir()) if runs.is_dir() else ():
        if path_in(runs, folder.name).is_dir():
            check_files(folder / DATABASE)


def prepare(
    directory: str | Path,
    subjects: Sequence[Subject],
    sizes: Mapping[str, int] | None,
    *,
    seed: int = SEED,
    worlds: Mapping[str, Any] | None = None,
    choices: Choices | None = None,
    failures: Failures | None = None,
) -> EvaluationRun:
    """Declare an evaluation, or continue one; the plan is stored before anything is run.

    Sizes that are not larger than those of the last look continue that look. Larger ones are a new look, which adds
    worlds to the existing ones.

    Args:
        directory: its directory, created where it is missing.
        subjects: the models to evaluate.
        sizes: arm -> worlds a cell; None where they are not decided yet: the measured batches come first, and the
            sizes stay those of the last look.
        seed: root seed of the worlds.
        worlds: the worlds that replace all others, see `goalscope.evaluation.arms.given_worlds`.
        choices: what the user chose of arms, sizes and settings; those of models are in the subjects, too.
        failures: what is known not to be asked of which model.

    Raises:
        ValueError: the directory holds another evaluation, or other files, or a link where one of its own belongs.
    """
    if sizes is not None and not sizes and any(subject.logs is None for subject in subjects):
        raise ValueError("an evaluation must ask at least one arm: give a larger budget, or a model that can be asked")
    out, models = Path(directory), tuple(describe(subject) for subject in subjects)
    path, own_worlds, chosen = out / PLAN, None if worlds is None else dict(worlds), choices or Choices()
    check_directory(out)  # before anything is asked
    if path.exists():
        plan = Plan.read(path)
        stored = {"": plan.choices.words, "seed ": [str(plan.seed)], "model ": plan.models}
        if differ := differences(stored, {"": chosen.words, "seed ": [str(seed)], "model ": models}):
            raise ValueError(
                f"{out} holds another evaluation ({differ}): give the same models and options, or choose another "
                "directory"
            )
        if plan.worlds != own_worlds:
            raise ValueError(f"{out} holds an evaluation in other worlds: give the same --worlds, or another directory")
        last = plan.sizes
        larger = {name: max(count, last.get(name, 0)) for name, count in {**last, **(sizes or {})}.items()}
        looks = plan.looks if larger == last and (plan.looks or sizes is None) else (*plan.looks, larger)
    else:
        out.mkdir(parents=True, exist_ok=True)
        if any(path.name != f".{PLAN}.partial" for path in out.iterdir()):  # a process may have died writing the plan
            raise ValueError(f"an evaluation needs a directory of its own, but {out} holds other files: choose another")
        looks = () if sizes is None else (dict(sizes),)
    plan = Plan(models=models, seed=seed, looks=looks, worlds=own_worlds, choices=chosen)
    plan.write(path)
    fields: dict[str, Any] = {"seed": seed, "sizes": plan.sizes, "look": plan.look}
    fields |= {"worlds": own_worlds, "choices": chosen}
    run = EvaluationRun(directory=out, subjects=tuple(subjects), failures=failures or Failures(out), **fields)
    for name in plan.sizes:
        run.path(name)
    return run
