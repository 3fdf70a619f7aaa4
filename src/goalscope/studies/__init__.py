"""Studies that come with the package, as YAML files."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goalscope.runs import Study

SUFFIX = ".yaml"


def names() -> list[str]:
    """Return the names of the shipped studies, sorted."""
    file_names = (entry.name for entry in files(__name__).iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in file_names if name.endswith(SUFFIX))


def text(name: str) -> str:
    """Return the YAML text of a shipped study.

    Raises:
        KeyError: there is no study of this name.
    """
    if name not in names():
        raise KeyError(f"the name of a shipped study must be one of {', '.join(names())}, got {name!r}")
    return files(__name__).joinpath(name + SUFFIX).read_text(encoding="utf-8")


def load(name: str | Path, change: "Callable[[Study], Study] | None" = None) -> "Study":
    """Return a study from a file, or the shipped study of that name.

    Args:
        name: a path, or one of `names`.
        change: returns the study that is wanted instead of the one that was read.

    Raises:
        FileNotFoundError: there is neither.
        ValueError: it is no study, or declares tests that no study can have.
    """
    from goalscope.checks import did_you_mean, note_namesake
    from goalscope.measures.invariance import check_declared
    from goalscope.runs import Study
    from goalscope.yaml_text import read_yaml_text

    path, shipped = Path(name), names()
    if isinstance(name, str) and name in shipped:  # a path of that name is a path
        note_namesake(name, "study")
        study = Study.parse(read_yaml_text(text(name), name))
    elif path.exists():
        study = Study.load(path)
    else:
        close = "" if path.suffix else did_you_mean(str(name), shipped)
        raise FileNotFoundError(
            f"a study must be a file or the name of a shipped study ({', '.join(shipped)}), got {str(name)!r}{close}"
        )
    study = study if change is None else change(study)
    if study.analysis is not None and study.analysis.invariance is not None:
        check_declared(study.analysis.invariance.margin)
    return study
