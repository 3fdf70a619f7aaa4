"""Studies by name or path: studies registered by packages, including goalscope, and files."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from goalscope._ground import registry
from goalscope._ground.checks import did_you_mean, note_namesake
from goalscope._ground.folder import Folder, NamedFile, package_files, package_text
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.goals import goal_measure
from goalscope.goals.hypotheses.written import check_names, restore_hypotheses
from goalscope.goals.reading import IN_GRIDS
from goalscope.measures.comparison import check_declared
from goalscope.runs import Study

SUFFIX: Final = ".yaml"


def register_studies(package: str) -> None:
    """Register the YAML files of a package as studies, each under the name of its file.

    Args:
        package: name of the package that contains the files.
    """
    for file in package_files(package):
        if file.endswith(SUFFIX):
            name = file.removesuffix(SUFFIX)
            read = partial(package_text, package, file)
            registry.register("study", name, made_of=SimpleNamespace(__module__=package, __qualname__=name))(read)


def names() -> list[str]:
    """Return the names of all studies that goalscope and other packages provide, sorted."""
    return sorted(registry.names("study"))


def text(name: str) -> str:
    """Return the YAML text of a study that goalscope or another package provides, by its name.

    Raises:
        ValueError: there is no study of this name.
    """
    read: Callable[[], str] = registry.resolve("study", name)
    return read()


def load(name: str | Path, change: Callable[[Study], Study] | None = None) -> Study:
    """Load and check a study, from a YAML file or by the name of a study that goalscope or another package provides.

    Args:
        name: a path, or one of `names`.
        change: function that changes the study after it was read.

    Raises:
        FileNotFoundError: there is neither a file nor a registered study.
        ValueError: it is not a valid study, or declares tests that are impossible.
    """
    path, registered = Path(name), names()
    if isinstance(name, str) and name in registered:  # a path of that name is a path
        note_namesake(name, "study")
        study = Study.parse(read_yaml_text(text(name), name))
    elif NamedFile(path).is_there() or Folder(path).is_there():
        study = Study.load(path)
    else:
        close = "" if path.suffix else did_you_mean(str(name), registered)
        proposal = f"{close} Or give" if close else ": give"
        raise FileNotFoundError(
            f"there is no study {str(name)!r}, neither a file at this path nor a shipped study{proposal} a YAML "
            f"file, or one of {', '.join(registered)}"
        )
    study = study if change is None else change(study)
    if study.analysis is not None and study.analysis.hypotheses:
        check_names(restore_hypotheses(list(study.analysis.hypotheses)), study.worlds)
    if study.analysis is not None and study.analysis.invariance is not None:
        own = [entry if isinstance(entry, str) else entry["name"] for entry in study.analysis.hypotheses]
        check_declared(study.analysis.invariance.margin, [goal_measure(name) for name in (*IN_GRIDS, *own)])
    return study
