"""Error messages for missing optional packages."""

import re
from importlib import metadata
from shlex import join

_REQUIREMENT = re.compile(r"\s*([^;]+?)\s*(?:;.*\bextra\s*==\s*['\"]([^'\"]+)['\"].*|;.*)?")


def how_to_install(extra: str = "") -> str:
    """Return the pip command that installs the packages of an extra (an optional group of dependencies, such as
    ``lm``).

    Without an extra, the command installs the packages that goalscope always needs. Packages and version ranges are
    those that the installed goalscope declares, so that the command needs no clone of the repository.
    """
    try:
        declared = metadata.requires("goalscope") or []
    except metadata.PackageNotFoundError:  # the source on the path, never installed
        declared = []
    requirements = [match.groups("") for requirement in declared if (match := _REQUIREMENT.fullmatch(requirement))]
    packages = [package.replace(" ", "") for package, of_extra in requirements if of_extra == extra]
    if not packages:
        return f"pip install '.[{extra}]' in the clone" if extra else "pip install . in the clone"
    return join(["pip", "install", *packages])


def lacking(needs: str, extra: str, error: ImportError) -> ImportError:
    """Return the ImportError to raise if an optional package is missing; its message says how to install the package.

    Args:
        needs: the dependency in words, such as "figures need matplotlib".
        extra: the extra (optional group of dependencies) of goalscope that contains the package.
        error: the original error of the import.
    """
    missing = f" ({error.name} is missing)" if error.name and not needs.endswith(error.name) else ""
    return ImportError(f"{needs}{missing}: install the extra {extra}, {how_to_install(extra)}")
