"""Refuse names that are pronouns or participles: ``python -m tools.vague_names [--list] [FOLDER...]``.

A binding is a variable, a parameter, a function, a class, an alias or the target of a loop. The words stand in
`vague_names.txt`. A room of the package may have at most `ALLOWED` of them per 1,000 bindings, since some names, such
as a parameter that is public, or the field of a file, keep their word. With ``--list`` every vague binding is printed.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ALLOWED: Final = 8.0
"""Vague bindings per 1,000 that a room may have."""

FEWEST: Final = 200
"""Bindings below which a room is too small for a share."""

ROOT: Final = Path(__file__).parents[1]
WORDS: Final = frozenset(
    line for line in (Path(__file__).parent / "vague_names.txt").read_text().split("\n") if line and line[0] != "#"
)


def bindings(text: str) -> Iterator[tuple[str, int]]:
    """Yield each name that a module binds, with its line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


def vague_bindings(folder: Path) -> tuple[int, list[str]]:
    """Return the number of bindings in a folder, and its vague ones as ``PATH:LINE NAME``."""
    total, vague = 0, list[str]()
    for path in sorted(folder.rglob("*.py")):
        for name, line in bindings(path.read_text(encoding="utf-8")):
            total += 1
            if name.strip("_") in WORDS:
                vague.append(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line} {name}")
    return total, vague


def main(arguments: list[str]) -> int:
    """Print the rooms with too many vague names, and return 1 where there are any."""
    names = [argument for argument in arguments if argument != "--list"]
    package = ROOT / "src" / "goalscope"
    folders = [Path(name).resolve() for name in names] or [
        folder for folder in sorted(package.iterdir()) if folder.is_dir() and folder.name != "__pycache__"
    ]
    failed = False
    for folder in folders:
        total, vague = vague_bindings(folder)
        share = 1000 * len(vague) / max(total, 1)
        too_many = total >= FEWEST and share > ALLOWED
        failed |= too_many
        if "--list" in arguments:
            sys.stdout.write("".join(f"{line}\n" for line in vague))
        if too_many or "--list" in arguments:
            sys.stdout.write(
                f"{folder.name}: {len(vague)} of {total} names are pronouns or participles, {share:.1f} per 1,000 "
                f"(at most {ALLOWED:g}): python -m tools.vague_names --list {folder}\n"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
