"""Error messages for missing optional packages."""


def how_to_install(extra: str = "") -> str:
    """Return the command that installs goalscope, with an extra if named."""
    return f"pip install '.[{extra}]' in the clone" if extra else "pip install . in the clone"


def lacking(needs: str, extra: str, error: ImportError) -> ImportError:
    """Return the error for a package that an extra brings.

    Args:
        needs: the dependency in words, e.g. "figures need matplotlib".
        extra: the extra that contains it.
        error: the error of the import.
    """
    missing = f" ({error.name} is missing)" if error.name and not needs.endswith(error.name) else ""
    return ImportError(f"{needs}{missing}: install the extra {extra}, {how_to_install(extra)}")
