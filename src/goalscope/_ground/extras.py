"""Error messages for missing optional packages."""

import re
from importlib import metadata
from shlex import join

_REQUIREMENT = re.compile(r"\s*([^;]+?)\s*(?:;.*\bextra\s*==\s*['\"]([^'\"]+)['\"].*|;.*)?")


def how_to_install(extra: str = "") -> str:
    """Return the command that installs the packages of an extra, or those that goalscope always needs.

    The packages and version ranges are those that the installed goalscope declares, so that the command works however
    goalscope was installed, without a clone or a particular package index.
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
    """Return the error for a missing package that an extra installs.

    Args:
        needs: the dependency in words, e.g. "figures need matplotlib".
        extra: the extra that contains it.
        error: the error of the import.
    """
    missing = f" ({error.name} is missing)" if error.name and not needs.endswith(error.name) else ""
    return ImportError(f"{needs}{missing}: install the extra {extra}, {how_to_install(extra)}")
