"""What README and docs show is run as it stands there, chains as chains, long ones made short by flags of their own.

Every command that can be typed as it is, every block of Python and every JSON example stands in a scenario, which runs
it, or in `NOT_RUN` or `ELSEWHERE` with the reason. What stands nowhere turns a test red. Lines to fill in (``goalscope
report RUN``) and names of commands within a sentence are checked by test_documentation.py.
"""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from documented import PAGES, ROOT, blocks, is_form, lines_of, parts_of, problem, words_of
from typer.testing import CliRunner

from goalscope._ground import registry
from goalscope.cli import app
from goalscope.goals.hypotheses import read_hypotheses
from goalscope.runs import Study

BLOCKS = {block.name: block for block in blocks()}

FEW = "--sizes 7 --densities 0,0.6 --count 2 --trajectories 1"
SCRIPTED = f"{FEW} --agents optimal,random"
MAPS = "--set worlds.0.presets=[high-small] --set 'worlds.0.generator={alpha: 1.5}' --count 2"
STEERED = " ".join(
    f"--set analysis.interventions.{at}.{setting}"
    for at, settings in enumerate(
        (
            ("pairs.per_size=1", "pairs.controls=0", "layers=[0]", "doses=[1.0]", "random=1"),
            ("pairs.per_size=4", "things=[goal]", "layers=[0]", "states=80", "random=1"),
        )
    )
    for setting in settings
)
MORE = FEW.replace("count 2", "count 4")
"""Grids for probes, of which some test, and two or more of the others train."""
INSIDE = f"{MORE} --set analysis.inside.probes.epochs=2"


@dataclass(frozen=True)
class Scenario:
    """Lines and blocks that are run in order in one folder; a second command on the same run finds it there.

    Attributes:
        steps: names of blocks, and lines as they are printed, each alone or with what is appended to its first command.
        files: what lies in the folder beforehand: the blocks that are put together, by the file's name.
        before: commands that make what the steps take for granted.
    """

    steps: tuple[str | tuple[str, str], ...]
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    before: tuple[str, ...] = ()


SCENARIOS = {
    "logs": Scenario(
        files={
            "logs.jsonl": ("import.md json 1", "import.md json 2"),
            "logs/one.jsonl": ("import.md json 1",),
            "logs/two.jsonl": ("import.md json 2",),
            "log.jsonl": ("exploration.md json 1",),
            "world.json": ("meg.md json 1",),
            "mine.json": ("meg.md json 1",),
        },
        steps=(
            "goalscope import logs.jsonl --out runs/logs",
            "goalscope measure runs/logs --by size,density",
            "goalscope report runs/logs",
            "goalscope meg runs/logs --invalid action --json",
            "import.md python 1",
            "goalscope score log.jsonl --report runs/log",
            "goalscope meg mine.json",
            "goalscope meg world.json",
            "goalscope meg world.npz --json",
            "goalscope meg world.npz --unknown",
            "goalscope doctor",
        ),
    ),
    "damage": Scenario(
        before=(f"goalscope run baseline {SCRIPTED} --out runs/first",),
        steps=(
            "goalscope verify runs/first",
            "goalscope doctor runs/first",
            "goalscope doctor runs/first --repair",
        ),
    ),
    "in Python": Scenario(
        steps=(
            "statistics.md python 1",
            "worlds.md python 1",
            "meg.md python 1",
            "start.md python 1",
            "start.md python 2",
            "goalscope report runs/mine",
            "goalscope meg runs/mine",
        )
    ),
    "hypotheses": Scenario(
        files={"mine.yaml": ("hypotheses.md yaml 1",)},
        steps=(
            (
                "goalscope separate --hypotheses grids --worlds grid --sizes 7 --densities 0.6 --count 20",
                "--count 4",
            ),
            (
                "goalscope separate --hypotheses 'goal;beside goal;key if not key held, else goal' --worlds "
                "key-no-door --count 20",
                "--count 4",
            ),
            (
                "goalscope design --hypotheses 'grids;beside goal' --worlds grid --choose 8 --out study.yaml",
                "--sizes 7 --count 10",
            ),
            "goalscope run study.yaml --out runs/designed && goalscope measure runs/designed",
            ("goalscope separate --hypotheses mine.yaml --worlds key-no-door --count 20", "--count 4"),
            "hypotheses.md python 1",
        ),
    ),
    "what an agent is after": Scenario(
        before=(f"goalscope run baseline {SCRIPTED} --out runs/first",),
        steps=(
            (
                "goalscope attribute epsilon-greedy:epsilon=0.3 --hypotheses 'grids;beside goal' --worlds grid "
                "--separating '{kind: key-no-door, count: 20}' --out runs/after",
                "--count 10",
            ),
            "goalscope attribute theseus --hypotheses grids --worlds grid --count 5 --dry-run --out runs/theseus-after",
            "goalscope attribute runs/first --name optimal --hypotheses grids --methods meg",
            "goalscope evaluate epsilon-greedy:epsilon=0.3 --quick --arms hypotheses --hypotheses 'grids;mirror of "
            "goal' --out runs/followed",
        ),
    ),
    "what actions depend on": Scenario(
        files={"study.yaml": ("depends.md yaml 1",)},
        before=(f"goalscope run baseline {SCRIPTED} --out runs/first",),
        steps=(
            ("goalscope depends optimal random wrong-goal --out runs/depends", "--count 3"),
            "goalscope depends runs/first --out runs/depends-first",
            (
                "goalscope depends reader:swayed=1 --count 10 --moved goal,names,order,words --out runs/depends-words",
                "--count 2",
            ),
            (
                "goalscope depends optimal key-lured --worlds key-no-door --count 20 --moved goal,key --out "
                "runs/depends-keys",
                "--changes 1",
            ),
            "depends.md python 1",
        ),
    ),
    "what it will do elsewhere": Scenario(
        files={"kinds.yaml": ("predict.md yaml 1",)},
        before=("goalscope run baseline --sizes 7 --count 3 --agents optimal,random --out runs/first",),
        steps=(
            "goalscope predict epsilon-greedy:epsilon=0.2 --worlds grid --kinds kinds.yaml --out runs/foreseen",
            "goalscope predict runs/foreseen --look epsilon-greedy:epsilon=0.2",
            "goalscope predict runs/first --name optimal --out runs/foreseen-run",
            "predict.md python 1",
        ),
    ),
    "a study": Scenario(
        files={"maze.yaml": ("README.md yaml 1",), "study.yaml": ("studies.md yaml 1",)},
        before=("goalscope run maze.yaml --sizes 7 --count 2 --trajectories 2 --out RUN", "goalscope measure RUN"),
        steps=(
            "goalscope measure --help",
            "goalscope estimate maze.yaml",
            "goalscope run maze.yaml --out runs/maze",
            "goalscope measure runs/maze",
            "goalscope show runs/maze",
            "goalscope compare runs/maze",
            "goalscope report runs/maze",
            "goalscope export runs/maze --out tables",
            "README.md python 1",
            "measures.md python 1",
            "measures.md python 2",
            "studies.md python 1",
            "goalscope report RUN --out report.html --ledger ledger.json",
            "report.md python 1",
            "goalscope figure RUN --list",
            "goalscope figure RUN size-and-density-figure-1 --out success.pdf",
            "goalscope figure RUN results-table-1 --out results.tex",
            "goalscope figure RUN --all figures",
            "report.md python 2",
            "report.md python 3",
        ),
    ),
    "baseline": Scenario(
        steps=(
            "goalscope estimate baseline",
            ("goalscope run baseline --out runs/baseline && goalscope report runs/baseline", f"{FEW} --agents Theseus"),
            "goalscope meg runs/baseline --unknown",
            "goalscope capture runs/baseline",
            "goalscope capture runs/baseline --untrained 0",
            "goalscope capture runs/baseline --untrained 0 --random-weights permuted",
            "inside.md python 2",
            "probes.md python 2",
            "probes.md python 3",
            "beliefs-and-plans.md python 1",
            "beliefs-and-plans.md python 2",
            "beliefs-and-plans.md python 3",
            (
                "goalscope probe runs/baseline",
                "--layers 7 --sites pre --reads cognitive-map --random-seeds 1 --set probes.epochs=2",
            ),
        ),
    ),
    "papers": Scenario(
        steps=(
            "goalscope reproduce --list",
            'goalscope reproduce "meg table k" --out runs/cliff',
            (
                'goalscope reproduce "telos table 1 rooms" --scale 0.1 --out runs/rooms',
                "--set worlds.0.count=1 --set worlds.1.count=1",
            ),
            'goalscope estimate explore-exploit --model "Claude Haiku 4.5"',
        )
    ),
    "named examples": Scenario(
        steps=(
            'goalscope reproduce "exploration figure 3" --out runs/cases',
            'goalscope reproduce "exploration figure 4b" --out runs/contrast',
        )
    ),
    "the paper's figures": Scenario(steps=tuple(f"papers.md python {number}" for number in range(1, 5))),
    "smaller studies": Scenario(
        steps=(
            (
                "goalscope run baseline --count 2 --trajectories 2 --agents Theseus,optimal,random --out runs/first",
                SCRIPTED,
            ),
            (
                "goalscope run baseline --sizes 7,9 --densities 0,0.6 --count 3 --trajectories 2 "
                "--agents Theseus,optimal --out runs/small",
                SCRIPTED,
            ),
            (
                "goalscope run baseline --agents Theseus,optimal,random --sizes 7,9,11 --densities 0,0.4,0.8 --count 5 "
                "--trajectories 3 --out runs/theseus && goalscope meg runs/theseus --unknown",
                SCRIPTED,
            ),
        ),
    ),
    "shards": Scenario(
        steps=(
            ("goalscope run baseline --shard 1/2 --out shards/1", SCRIPTED),
            ("goalscope run baseline --shard 2/2 --out shards/2", SCRIPTED),
            "goalscope merge runs/whole shards/1 shards/2",
        ),
    ),
    "model card": Scenario(
        steps=(
            (
                "goalscope run baseline --count 30 --set seed=411 --agents Theseus,optimal,random --out runs/theseus",
                SCRIPTED,
            ),
            "goalscope measure runs/theseus --by size",
        ),
    ),
    "scripted": Scenario(
        before=("goalscope run demo --sizes 7 --count 1 --agents optimal,random --out runs/demo",),
        steps=(
            "goalscope meg runs/demo",
            "goalscope view runs/demo",
            "goalscope view runs/demo --out demo.html",
            (
                "goalscope run scripted --out runs/scripted && goalscope meg runs/scripted --by size,density",
                "--sizes 7 --densities 0.6 --count 2 --trajectories 1 --agents optimal,key-lured",
            ),
            "goalscope meg runs/scripted --hypotheses 'goal,key held,corner top-right,cell 3 4'",
        ),
    ),
    "keys": Scenario(
        steps=(
            (
                "goalscope run key-door --out runs/key-door && goalscope report runs/key-door",
                "--count 1 --set horizon.steps=4 --agents Theseus,key-lured",
            ),
        ),
    ),
    "iso-difficulty": Scenario(
        steps=(
            ("goalscope run iso-difficulty --out runs/iso", f"{FEW} --agents optimal,epsilon-greedy(0.3)"),
            (
                "goalscope run iso-difficulty --count 5 --out runs/iso && goalscope compare runs/iso --transforms",
                f"{FEW} --agents optimal,epsilon-greedy(0.3)",
            ),
            "goalscope measure runs/iso",
            "goalscope compare runs/iso --transforms --json iso.json --csv iso.csv",
            "goalscope report runs/iso",
            ("goalscope estimate iso-difficulty --power", FEW),
        ),
    ),
    "fog": Scenario(
        steps=(
            (
                'goalscope run fog --agents "optimal;forgetful(0.3, 6);random" --out runs/fog',
                "--sizes 7 --densities 0.2 --count 2 --trajectories 1",
            ),
            'goalscope measure runs/fog --measures "exploration error under fog;exploitation error under fog"',
            "goalscope report runs/fog",
            (
                "goalscope run fog --out runs/seen && goalscope meg runs/seen --hypotheses goal",
                "--sizes 7 --densities 0.2 --count 2 --trajectories 1 --agents optimal,random",
            ),
            (
                'goalscope run fog --set worlds.0.fog_radius=2 --set "horizon={factor: 3}" --out runs/near',
                f"{FEW} --agents optimal",
            ),
        ),
    ),
    "task worlds": Scenario(
        steps=(
            (
                "goalscope run explore-exploit --out runs/explore && goalscope report runs/explore",
                f'{MAPS} --agents "greedy;random-walk"',
            ),
            ("goalscope run harness --out runs/harness && goalscope report runs/harness", f'{MAPS} --agents "greedy"'),
            ("goalscope run harness --out RUN", f'{MAPS} --agents "Ariadne;Ariadne memory"'),
            "goalscope measure RUN",
            'goalscope compare RUN --agents "Ariadne;Ariadne memory" --measures "success;exploration error;exploration '
            'error of valid moves;exploitation error;exploitation error of valid moves;invalid actions"',
            ("goalscope run explore-exploit --out runs/errors", f'{MAPS} --agents "greedy;random-walk"'),
            'goalscope measure runs/errors --by demand,graph --measures "success;exploration error;exploitation error"',
            "goalscope report runs/errors",
        ),
    ),
    "any model": Scenario(
        steps=(
            "goalscope doctor --model theseus",
            ("goalscope estimate baseline --model theseus", FEW),
            ("goalscope run baseline --model theseus --out runs/mine", FEW),
        ),
    ),
    "costs": Scenario(
        files={"gpt-oss.yaml": ("models.md yaml 4",)},
        steps=(
            ("goalscope estimate gpt-oss.yaml", FEW),
            (
                'goalscope estimate fog --agents "GPT-OSS-20B;GPT-OSS-20B conversation;GPT-OSS-20B high effort;'
                'GPT-OSS-20B reasoning kept;GPT-OSS-120B high effort"',
                FEW,
            ),
            ('goalscope estimate explore-exploit --agents "GPT-OSS-120B base;GPT-OSS-120B exploration"', MAPS),
        ),
    ),
    "captures in parts": Scenario(
        before=(f"goalscope run baseline --out runs/baseline {FEW} --agents Theseus",),
        steps=(
            "goalscope capture runs/baseline --shard 1/2",
            "goalscope capture runs/baseline --shard 2/2",
            "goalscope capture runs/baseline",
            "goalscope export runs/baseline --out tables --activations parquet,safetensors",
        ),
    ),
    "verdict": Scenario(
        steps=(
            "goalscope evaluate optimal random --quick --out runs/known",
            "goalscope view runs/known",
            "goalscope card runs/known --name optimal",
            "goalscope card runs/known --name optimal --format every-eval-ever --out card.json",
            "goalscope evaluate task-greedy task-random-walk --quick --out runs/tasks",
        )
    ),
    "verdict on Theseus": Scenario(
        steps=(
            "goalscope evaluate theseus --quick --out runs/theseus",
            "goalscope ledger runs/theseus",
            "goalscope evaluate theseus --arms grids --answer likelihood --set least_mass=0.1 --quick "
            "--out runs/likelihood",
            "goalscope evaluate theseus --arms grids,keys --sizes 7 --quick --out runs/small",
            "goalscope evaluate theseus chat:model=theseus,temperature=0 --arms grids --quick --out runs/both",
            "goalscope evaluate environment-optimal random --worlds toy-text --quick --out runs/toys",
            ("goalscope depends theseus --count 4 --dry-run --out runs/depends-theseus", "--count 1"),
            ("goalscope depends theseus --count 4 --out runs/depends-theseus", "--count 1"),
            "goalscope demo --out runs/demo",
        ),
    ),
    "the coin or the place": Scenario(
        steps=(
            ("goalscope run coin-or-place --out runs/coin", "--count 4"),
            "goalscope attribute runs/coin --name 'goes to the corner' --hypotheses 'goal;at coin;corner top-right;"
            "corner top-left'",
        ),
    ),
    "the goal or the place": Scenario(
        files={
            "phases.yaml": ("misgeneralisation.md yaml 1",),
            "fresh.yaml": ("misgeneralisation.md yaml 2",),
            "learner.py": ("misgeneralisation.md python 1",),
            "pair.yaml": ("misgeneralisation.md yaml 3",),
        },
        steps=(
            "goalscope separate --hypotheses 'goal;corner top-right' --worlds phases.yaml --phase trained",
            "goalscope separate --hypotheses 'goal;corner top-right' --worlds phases.yaml --phase shifted",
            "python learner.py",
            "goalscope evaluate learner:Learner:goal=top-right,name=corner learner:Learner:goal=anywhere,name=anywhere "
            "--worlds phases.yaml --hypotheses 'goal;corner top-right;corner top-left;corner bottom-right' --quick "
            "--out runs/verdict",
            "goalscope attribute runs/verdict/arms/hypotheses --hypotheses 'goal;corner top-right;corner top-left;"
            "corner bottom-right' --methods score",
            "goalscope depends learner:Learner:goal=top-right,name=corner learner:Learner:goal=anywhere,name=anywhere "
            "--sizes 7 --densities 0.6 --count 40 --out runs/depends",
            "goalscope attribute learner:Learner:goal=top-right,name=corner --hypotheses 'goal;corner top-right;corner "
            "top-left' --worlds phases.yaml --separating fresh.yaml --out runs/claim",
            "goalscope evaluate "
            "chat:model=organism-goal,task=key-door,temperature=1.0,top_p=1.0,max_tokens=16,name=model-A "
            "chat:model=organism-corner,task=key-door,temperature=1.0,top_p=1.0,max_tokens=16,name=model-B --arms "
            "hypotheses --worlds pair.yaml --hypotheses 'goal;corner top-right;straight to goal;straight to corner "
            "top-right' --out runs/pair",
        ),
    ),
    "Cliff World": Scenario(
        steps=(
            'goalscope reproduce "meg table k" --out runs/cliff',
            'goalscope reproduce "meg table k" --out cliff',
        )
    ),
    "activations": Scenario(
        steps=(
            (
                "goalscope run cognitive-map --out runs/inside && goalscope meg runs/inside --beliefs pre:7",
                INSIDE,
            ),
            ("goalscope run beliefs --out runs/inside", INSIDE),
            ("goalscope run plans --out runs/inside", INSIDE),
            ("goalscope run distance --out runs/inside", INSIDE),
            "goalscope capture runs/inside --sites pre,post",
            "goalscope capture runs/inside --sites pre,post --untrained 0 --random-weights permuted",
        ),
    ),
    "interventions": Scenario(
        steps=(
            (
                "goalscope run patching --out runs/patching",
                f"{FEW} --set 'analysis.interventions.0.pairs={{per_size: 1, controls: 0}}'",
            ),
            (
                "goalscope patch runs/patching",
                "--set pairs.per_size=1 --set pairs.controls=0",
            ),
            # Without walls there are too few different grids of size 7 for the probes of an ablation.
            ("goalscope run steering --out runs/steering", f"{FEW.replace('0,0.6', '0.4,0.6')} {STEERED}"),
            (
                "goalscope run reasoning-edits --out runs/reasoning-edits",
                f"{FEW} --set analysis.interventions.0.pairs.per_size=1",
            ),
        ),
    ),
    "an environment of one's own": Scenario(
        files={"warehouse.py": ("environments.md python 1",), "warehouse.yaml": ("environments.md yaml 1",)},
        steps=(
            "goalscope evaluate environment-epsilon-greedy:epsilon=0.2 --env warehouse:Warehouse --quick --out "
            "runs/warehouse",
            ("goalscope run warehouse.yaml --out runs/study", "--trajectories 2"),
            "goalscope --own-code measure runs/study",
            "goalscope --own-code meg runs/study",
            "goalscope report runs/study",
            "goalscope table warehouse:Warehouse --out warehouse.npz",
            "goalscope table warehouse:Warehouse:row=0,col=2 --out corner.npz",
        ),
    ),
    "goals of one's own in an environment": Scenario(
        files={
            "warehouse.py": ("environments.md python 1",),
            "aisles.py": ("environments.md python 5",),
            "aisles.yaml": ("environments.md yaml 2",),
        },
        steps=(
            'goalscope evaluate "hypothesis:hypothesis=event aisles:east_aisle,lapse=0.2" --env warehouse:Warehouse '
            "--hypotheses aisles.yaml --quick --out runs/aisle",
        ),
    ),
    "environments of others": Scenario(
        files={"warehouse.py": ("environments.md python 1",)},
        steps=(
            "environments.md python 2",
            "goalscope evaluate random --env FrozenLake-v1:is_slippery=false --quick --out runs/lake",
            "goalscope evaluate random --env MiniGrid-DoorKey-6x6-v0 --quick --out runs/doors",
            "goalscope evaluate random --env warehouse:Warehouse:slip=0.5 --quick --out runs/slippery",
        ),
    ),
    "complete table": Scenario(
        steps=(
            (
                "goalscope run cognitive-map --out runs/inside --full",
                f"{INSIDE} --set analysis.inside.full.curve=[2,4]",
            ),
        ),
    ),
}
LONG = {
    *("any model", "captures in parts", "verdict on Theseus", "Cliff World", "activations"),
    *("interventions", "complete table", "task worlds", "baseline", "the paper's figures", "scripted"),
    *("keys", "iso-difficulty", "fog", "papers", "the goal or the place", "verdict", "in Python", "hypotheses"),
    *(
        "what an agent is after",
        "what it will do elsewhere",
        "a study",
        "what actions depend on",
        "environments of others",
    ),
    *("an environment of one's own", "goals of one's own in an environment"),
}
"""Scenarios of the long tests; the gate runs the commands in other ways: tests/studies, tests/probing, and of the class
of environments.md tests/evaluation/test_own_environment.py and tests/environments/test_docs.py."""

_GPT = "needs the weights of GPT-OSS-20B: a download, and a GPU"
_SERVER = "needs a server of GPT-OSS-20B"
_INSTALLS = "installs packages"
_POLICIES = "needs a policy that was trained; tests/environments/test_policies.py runs it"
_ENVIRONMENTS = "needs an extra; tests/environments/test_environment_adapters.py runs it"
_MAZES = "tests/inspect_logs/test_known_worlds.py runs it"
_SCOUT = "needs extras; tests/inspect_logs/test_scout.py runs every line of the page"
_INSPECT = "needs an extra; tests/inspect_logs/test_with_inspect.py runs it"
_VERIFIERS = "needs an extra; tests/verifiers_worlds/test_verifiers_worlds.py runs it"
_REAL = "needs a real model; tests/models/test_real_models.py has both"
_TEMPLATES = "needs a model with several chat templates; tests/models/test_tokenizer_contract.py has such models"
_FOUR = "needs four real models; tests/scripts/test_open_models.py runs the script with planted answers"
NOT_RUN = {
    "python benchmarks/open_models.py --models DIR --out runs/open-models --worlds 24": _FOUR,
    "goalscope verify runs/open-models/MODEL-direct": _FOUR,
    "goalscope evaluate openai:NAME@URL --out runs/mine": "needs a server of one's own",
    "goalscope evaluate ./my-model --out runs/mine": "needs a folder of weights of one's own",
    "goalscope evaluate theseus --quick --out demo-run": "is `make demo`; the same with another folder is run",
    "goalscope evaluate chat:model=./my-model,chat_template=rag --out rag": _TEMPLATES,
    "goalscope run study.yaml --set agents.0.chat_template=rag --out runs/rag": _TEMPLATES,
    "goalscope doctor --model ./my-model --chat-template rag": _TEMPLATES,
    "goalscope doctor --clear-cache": "tests/models/test_gguf_cache.py runs it, in a cache of its own",
    "goalscope evaluate SMOLLM2 --arms grids --answer likelihood --out runs/smollm2": _REAL,
    "goalscope evaluate qwen2.5-coder-0.5b-instruct.gguf --budget 30m --out runs/qwen": _REAL,
    "goalscope evaluate gemma3-270m.gguf --arms grids --answer likelihood --set least_mass=0.02 --quick "
    "--out runs/gemma": _REAL,
    "goalscope patch RUN --kind patching --pairs 4 --sites grid,changed": "goalscope patch runs/patching is run",
    "probes.md python 1": "tests/probing/test_labelled.py runs it",
    "exploration.md json 2": "tests/tasks/test_graphs.py scores it",
    "goalscope organisms make --seed 1 --at organisms": "takes ten minutes; tests/organisms makes few",
    **dict.fromkeys(
        (
            "goalscope organisms make --kinds language --seed 1 --at models",
            "goalscope organisms make --kinds adapter --seed 1 --at models",
        ),
        "takes minutes; tests/organisms makes small ones",
    ),
    **dict.fromkeys(
        (
            "goalscope organisms list --at organisms",
            "goalscope organisms check --at organisms",
            "goalscope organisms judge score 'first arrival' likelihood counterfactual --at organisms --out judged",
            "goalscope organisms seal --at organisms --out challenge --key key.json",
            "goalscope organisms claim score counterfactual --at challenge --name ours",
            "goalscope organisms open --at challenge --key key.json",
            "goalscope organisms score --at challenge",
            "goalscope organisms gate --at organisms --out gate",
            "goalscope organisms gate --at models --out gate-models",
            "goalscope organisms inside --at models --out inside",
            "goalscope organisms study --out learners",
        ),
        "needs organisms; tests/organisms runs it on few",
    ),
    "goalscope --install-completion": "writes to the settings of the user's shell",
    "make demo": _INSTALLS,
    "make test": "is what runs this test",
    "pip install --require-hashes -r requirements/run.lock -r requirements/cuda.lock && pip install --no-deps .": (
        _INSTALLS
    ),
    "pip install '.[lm]'": _INSTALLS,
    "pip install '.[lm]' accelerate kernels": _INSTALLS,
    "python -m venv engine && engine/bin/pip install vllm": _INSTALLS,
    "export GOALSCOPE_VLLM=$PWD/engine/bin/python": "belongs to the line above it",
    "goalscope capture runs/gpt --model openai/gpt-oss-20b --layers 7,15,23 --sites pre,post,grid,action": _GPT,
    "goalscope import gpt-oss-20b --out runs/gpt && goalscope meg runs/gpt": "needs the authors' recorded trajectories",
    "goalscope reproduce --all --scale small --out runs/all --markdown benchmarks/papers.md": "takes most of an hour; "
    "tests/reproduction/test_all_items.py runs fewer items so",
    "python benchmarks/trivial_findings.py --results runs/all --markdown docs/papers.md": "needs the results of --all; "
    "tests/reproduction/test_claims.py runs it",
    'goalscope reproduce "telos table 2" --model openai/gpt-oss-20b --out runs/table-2': _GPT,
    'goalscope reproduce "telos figure 12" --logs recorded --out runs/recorded': "needs the recorded trajectories; "
    "tests/reproduction/test_papers_recorded.py runs it",
    "goalscope run cognitive-map --model GPT-OSS-20B --out runs/gpt": _SERVER,
    "goalscope run baseline --agents GPT-OSS-20B --set agents.0.encoding=compact --out runs/compact": _SERVER,
    "goalscope run gpt-oss.yaml --out runs/gpt-oss": _GPT,
    "goalscope measure runs/gpt-oss --by size,density": _GPT,
    "vllm serve openai/gpt-oss-20b --revision 6cee5e81ee83917806bbde320786a8fb61efebee --tokenizer-revision "
    "6cee5e81ee83917806bbde320786a8fb61efebee --host 127.0.0.1 --port 8000 --max-model-len 16384 --generation-config "
    "vllm --seed 0": _SERVER,
    'goalscope run fog --agents "GPT-OSS-20B;GPT-OSS-20B conversation" --workers 16 --out runs/fog-20b': _SERVER,
    "goalscope probe RUN --reads cognitive-map,plans --layers 7,15,23": "layers of GPT-OSS-20B",
    'goalscope evaluate "environment-wrong-goal:target=gem a" --worlds gems.yaml --out runs/gems': "needs its package; "
    "tests/plugin/test_plugin.py runs it",
    "goalscope evaluate environment-optimal random --worlds minigrid --out runs/levels": "toy-text is run",
    "goalscope run toy-text --out runs/toy-text": _ENVIRONMENTS,
    "goalscope run minigrid --out runs/minigrid": _ENVIRONMENTS,
    "goalscope run textworld --out runs/textworld": _ENVIRONMENTS,
    "goalscope run room.yaml --out runs/room": _POLICIES,
    "goalscope evaluate policy:file=room.policy --worlds room.yaml --out runs/verdict": _POLICIES,
    "goalscope run training.yaml --out runs/training && goalscope meg runs/training": _POLICIES,
    'goalscope compare runs/training --over checkpoint --measures "success;MEG towards the goal" --csv curve.csv': (
        _POLICIES
    ),
    'goalscope compare runs/training --over checkpoint --measures "MEG towards the goal" --svg curve.svg': _POLICIES,
    "goalscope compare runs/a runs/b runs/c --at 0,1000,4000": _POLICIES,
    'python -c "from stable_baselines3 import PPO; from goalscope.environments import save_policy; '
    "save_policy(PPO.load('room.zip'), 'room.policy')\"": _POLICIES,
    "goalscope meg mine.npz --hypotheses 'goal,charger'": "tests/environments/test_table_files.py measures such a file",
    "pip install '.[lm,inspect]'": _INSTALLS,
    "pip install '.[lm,scout,cards]'": _INSTALLS,
    **dict.fromkeys(
        (
            "scout scan goalscope/monitor -T logs --scans scans",
            'scout scan goalscope/monitor -T logs -S "expected=corner top-left" -S "hypotheses=goal,corner top-right" '
            "--scans other",
            "scout scan goalscope/monitor -T first.eval -S reader=walking:episode --scans mazes",
            "GOALSCOPE_MONITOR=goal inspect eval goalscope/grids -T sizes=9 -T count=2 --model goalscope/theseus "
            "--temperature 0",
            "monitor.md python 1",
            "goalscope view first.eval second.eval --reader walking:episode --out both.html",
        ),
        _SCOUT,
    ),
    "inspect eval goalscope/grids -T sizes=7,9 -T count=3 --model goalscope/theseus --temperature 0": _INSPECT,
    "goalscope import logs --out runs/inspect": _INSPECT,
    "goalscope import treasure.eval --reader reading:episode --out runs/treasure": _INSPECT,
    "goalscope import maze.eval --reader walking:episode --out runs/maze": _MAZES,
    "goalscope evaluate runs/maze --out runs/maze-verdict": _MAZES,
    "goalscope export runs/baseline --format inspect --out logs": _INSPECT,
    "inspect view --log-dir logs": "starts a server",
    "inspect eval-set goalscope/grids -T sizes=7 -T count=2 --model goalscope/theseus,goalscope/ariadne --temperature "
    "0 --log-dir set": _INSPECT,
    "goalscope import set --out runs/set": _INSPECT,
    "integrations.md python 1": "needs an extra; tests/inspect_logs/test_meg_in_inspect.py runs it",
    "integrations.md python 2": _INSPECT,
    "integrations.md python 3": "needs an extra; tests/inspect_logs/test_known_worlds.py runs it",
    **dict.fromkeys(("integrations.md python 4", "integrations.md python 5"), _VERIFIERS),
    "integrations.md python 6": "needs an extra; tests/openenv_worlds/test_openenv_worlds.py runs it",
    "inside.md python 1": "its second line reads a run of GPT-OSS-20B",
}
ELSEWHERE = {
    "meg.md": "tests/meg/test_meg_docs.py",
    "worlds.md": "tests/meg/test_meg_docs.py",
    "corrections.md": "tests/meg/test_meg_docs.py",
    "environments.md": "tests/environments/test_docs.py",
    "meg-runs.md": "tests/meg/test_meg_docs.py",
    "exploration.md": "tests/tasks/test_exploration_docs.py",
    "plugins.md": "tests/plugin/test_plugin.py",
}
"""Pages whose Python is run by another test, which also compares what it prints, or its source, with the page."""


def printed(step: str | tuple[str, str]) -> str:
    """Return a line as it is printed."""
    return step if isinstance(step, str) else step[0]


def to_be_run() -> set[str]:
    """Return all that a reader can copy: lines of blocks, whole lines within sentences, blocks of Python and JSON."""
    lines = {
        line
        for page in PAGES
        for line, fenced in lines_of(page.read_text(encoding="utf-8"))
        if fenced or not any(is_form(part) or problem(part) for part in parts_of(line))
    }
    named = {name for name, block in BLOCKS.items() if block.language in ("python", "json")}
    return lines | {name for name in named if not (name.split()[0] in ELSEWHERE and "python" in name)}


def run_here() -> set[str]:
    """Return what the scenarios run: their lines, the commands of their chains, their blocks and files."""
    steps = [printed(step) for scenario in SCENARIOS.values() for step in scenario.steps]
    files = [name for scenario in SCENARIOS.values() for names in scenario.files.values() for name in names]
    return {*steps, *(part for step in steps for part in parts_of(step)), *files}


def test_all_that_can_be_copied_from_a_page_is_run_or_listed_with_a_reason() -> None:
    assert len(to_be_run()) > 90
    assert sorted(to_be_run() - run_here() - set(NOT_RUN)) == []
    assert sorted(run_here() & set(NOT_RUN)) == []


def test_the_tables_hold_nothing_that_no_page_shows() -> None:
    shown = {line for page in PAGES for line, _ in lines_of(page.read_text(encoding="utf-8"))} | set(BLOCKS)
    steps = {printed(step) for scenario in SCENARIOS.values() for step in scenario.steps}
    assert sorted((steps | set(NOT_RUN)) - shown) == []
    for page, test in ELSEWHERE.items():
        assert page in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if name in LONG else []) for name in SCENARIOS]
)
def test_what_the_pages_show_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = SCENARIOS[name]
    monkeypatch.chdir(tmp_path)
    for kind in registry.KINDS:  # what a page registers is forgotten afterwards
        registry.names(kind)
    monkeypatch.setattr(registry, "_entries", {kind: dict(entries) for kind, entries in registry._entries.items()})
    for file, parts in scenario.files.items():
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        text = "".join(BLOCKS[part].text for part in parts)
        if file in ("maze.yaml", "study.yaml"):
            # The blocks of Python that run these studies take no flags: the studies themselves are made smaller.
            text = re.sub(r"(count|trajectories): \d+", r"\1: 2", text)
        Path(file).write_text(text, encoding="utf-8")
    if "world.json" in scenario.files:
        found = json.loads(Path("world.json").read_text(encoding="utf-8"))
        arrays: dict[str, Any] = {key: np.array(value) for key, value in found.items()}
        np.savez("world.npz", **arrays)
    names: dict[str, dict[str, object]] = {}
    for step in (*scenario.before, *scenario.steps):
        line, more = (step, "") if isinstance(step, str) else step
        if line in BLOCKS:
            run_block(line, names.setdefault(BLOCKS[line].page, {}))
            continue
        if line.startswith("python "):
            subprocess.run([sys.executable, *shlex.split(line)[1:]], check=True, capture_output=True)
        for number, part in enumerate(parts_of(line)):
            run_line(part, shlex.split(more) if number == 0 else [])


def run_line(command: str, more: list[str]) -> None:
    """Run a command; it must end well and say something."""
    result = CliRunner().invoke(app, [*words_of(command), *more], env={"COLUMNS": "200"})
    assert result.exit_code == 0, f"{command} {shlex.join(more)}\n{result.output}"
    assert result.output.strip(), command


def run_block(name: str, names: dict[str, object]) -> None:
    """Run a block of Python with the names that earlier ones of its page have made."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(compile(BLOCKS[name].text, name, "exec"), names)
        except SystemExit as end:
            assert not end.code, f"{name} ends with {end.code}"


STUDIES = [name for name, block in BLOCKS.items() if block.language == "yaml" and block.page not in ELSEWHERE]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_that_a_page_shows_is_one_also_the_pieces(name: str) -> None:
    found: Any = yaml.safe_load(BLOCKS[name].text)
    if "hypotheses" in found:
        assert read_hypotheses(found)
        return
    if "kinds" in found:  # kinds of unseen worlds, whose entries are those of a study
        found = {"worlds": [entry for kind in found["kinds"] for entry in kind["worlds"]]}
    if isinstance(found, list):  # entries of agents
        found = {"agents": found}
    if "server" in found:  # keys of an agent
        found = {"agents": [{"kind": "chat", "model": "a-model", **found}]}
    grids = {"kind": "grid", "sizes": [7], "densities": [0.0], "count": 1}
    assert Study.parse({"worlds": [grids], "agents": [{"kind": "optimal"}], **found}).size().worlds > 0
