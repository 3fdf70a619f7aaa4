"""Write the locks of ``requirements/``: the exact version of every package, with the hash of each of its files.

``make lock`` runs it. uv resolves ``pyproject.toml`` for every platform and Python version, within ``constraints.txt``;
what the locks name already keeps its version. The libraries of CUDA that PyTorch's builds for Linux ask for have a lock
of their own, since a CPU build does without them; so has that build, which is tried first.
"""

import re
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
FOLDER = HERE / "requirements"
LOCKS: dict[str, tuple[str, ...]] = {
    "run": ("lm", "report", "export"),
    "dev": ("lm", "api", "report", "export", "dev"),
}
"""The extras of the package that each lock installs."""
BUILD = ("hatchling", "editables")
"""What installing the package from its folder, without an environment of its own for that, needs besides."""
TOOLS = ("uv", "cyclonedx-bom")
"""What this file and ``make sbom`` run."""
OPTIONS = (
    *("--quiet", "--universal", "--python-version", "3.11", "--constraint", "constraints.txt"),
    *("--generate-hashes", "--no-header", "--no-annotate"),
)
CUDA = re.compile(r"(nvidia|cuda)-[a-z0-9-]+|triton")
CPU_BUILDS = {"2.13.0": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"}
"""PyTorch's own CPU build by version; the index of Python packages does not have it."""
SERVED = "sys_platform == 'linux' and platform_machine == 'x86_64' and python_version == '3.11'"


def entries(lock: str) -> dict[str, str]:
    """Return the entries of a lock by name: a line with the version, and one for each hash."""
    parts = re.split(r"(?m)^(?=[a-z0-9])", lock)
    return {re.split(r"[\[=]", part, maxsplit=1)[0]: part for part in parts if "==" in part}


def cpu_build(torch: str) -> str:
    """Return the entry of the CPU build that belongs to an entry of PyTorch.

    Raises:
        ValueError: If its hash is not known.
    """
    version = torch.split("==")[1].split()[0]
    if version not in CPU_BUILDS:
        raise ValueError(f"name the hash of the CPU build of torch {version} in {Path(__file__).name}: CPU_BUILDS")
    return f"torch=={version}+cpu ; {SERVED} \\\n    --hash=sha256:{CPU_BUILDS[version]}\n"


def resolved(wanted: tuple[str, ...], name: str, extras: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the entries of one lock as uv resolves it; versions of the lock that is there are kept."""
    with tempfile.TemporaryDirectory() as place:
        lock = Path(place) / "lock"
        kept = [FOLDER / f"{one}.lock" for one in (name, "cuda") if (FOLDER / f"{one}.lock").exists()]
        lock.write_text("".join(path.read_text(encoding="utf-8") for path in kept), encoding="utf-8")
        sources = ["-", *(["pyproject.toml"] if extras else []), *(f"--extra={extra}" for extra in extras)]
        command = ["uv", "--no-config", "pip", "compile", *OPTIONS, *sources, "--output-file", str(lock)]
        subprocess.run(command, cwd=HERE, input="\n".join(wanted), text=True, check=True, stdout=subprocess.DEVNULL)
        return entries(lock.read_text(encoding="utf-8"))


def write(name: str, what: str, found: dict[str, str]) -> None:
    """Write one lock."""
    head = f"# {what} Made by `make lock`; not to be edited.\n"
    (FOLDER / f"{name}.lock").write_text(head + "".join(found.values()), encoding="utf-8")


def main() -> None:
    """Write all locks."""
    FOLDER.mkdir(exist_ok=True)
    cuda: dict[str, str] = {}
    for name, extras in LOCKS.items():
        found = resolved(BUILD, name, extras)
        cuda |= {package: entry for package, entry in found.items() if CUDA.fullmatch(package)}
        rest = {package: entry for package, entry in found.items() if package not in cuda}
        write(name, f"goalscope[{','.join(extras)}], without goalscope.", rest)
    write("torch-cpu", "PyTorch without CUDA, tried before the other locks.", {"torch": cpu_build(rest["torch"])})
    write("cuda", "What builds of PyTorch with CUDA need besides.", cuda)
    write("tools", "Tools of the Makefile.", resolved(TOOLS, "tools"))


if __name__ == "__main__":
    main()
