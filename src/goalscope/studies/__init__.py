"""Studies that come with the package, as YAML files."""

from importlib.resources import files

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
