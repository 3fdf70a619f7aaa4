"""What to say where an optional package is missing: one wording for all."""


def how_to_install(extra: str = "") -> str:
    """Return how to install goalscope again, with an extra where one is named."""
    return f"pip install '.[{extra}]' in the clone" if extra else "pip install . in the clone"


def lacking(needs: str, extra: str, error: ImportError) -> ImportError:
    """Return the error for a package that an extra brings.

    Args:
        needs: what needs what, e.g. "figures need matplotlib".
        extra: the extra that brings it.
        error: what Python said.
    """
    missing = f" ({error.name} is missing)" if error.name and not needs.endswith(error.name) else ""
    return ImportError(f"{needs}{missing}: install the extra {extra}, {how_to_install(extra)}")
