"""Real servers beside the model in this process: what each can do, whether actions agree, whether a killed run goes on.

Usage: python benchmarks/servers.py [--only NAME ...] [--environments DIR] [--install] [--prompts 300] [--out DIR]

Each server has an environment of its own below DIR (build/servers), made with --install: transformers serve, the server
of llama.cpp (compiled: 20 minutes and more on two cores), vLLM for processors. Servers without one are passed over.
Theseus or SmolLM2-135M-Instruct is served on loopback and asked at temperature 0; all but the GGUF file is float32.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from serving import KINDS, ROOT, Kind, install, started

from goalscope.agents import ChatAgent
from goalscope.agents.agent import Observation
from goalscope.agents.models import HttpModel, LocalModel, Reply, Request, Sampling
from goalscope.agents.models.abilities import ServerReport
from goalscope.agents.parse import turn
from goalscope.cli.examining import examine_server
from goalscope.runs import Store, Study
from goalscope.stats.intervals import exact_binomial


def agent_settings(kind: Kind, name: str, local: Path, address: str) -> dict[str, Any]:
    """Return the agent of a study behind a server."""
    server = {"base_url": address, "timeout": 120, "retries": 2, **kind.settings}
    if kind.settings.get("mode") == "completions":
        server["tokenizer"] = str(local)
    return {
        "kind": "chat",
        "model": name,
        "name": "served",
        "template": "schema" if kind.model == "theseus" else "example",
        "temperature": 0.0,
        "max_tokens": 96 if kind.model == "theseus" else 32,
        "reasoning_effort": None,
        "server": server,
    }


def study(agent: dict[str, Any], grids: int, trajectories: int = 1, steps: int = 1) -> Study:
    """Return a study on small grids."""
    worlds = {"kind": "grid", "sizes": [7, 9, 11], "densities": [0.2, 0.6], "count": -(-grids // 6)}
    return Study.parse(
        {"seed": 23, "worlds": [worlds], "agents": [agent], "trajectories": trajectories, "horizon": {"steps": steps}}
    )


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Actions of a server beside those of the model here.

    Attributes:
        prompts: number of prompts.
        equal: those with the same action, or with none on both sides.
        texts: those with the same answer, character for character.
        table: how often each pair of actions (here, served) came, "-" for none.
        margins: of each prompt that differs, how far ahead the chosen token was here where the outputs part, in nats;
            where no ids are known, the least lead of any token of the answer here.
    """

    prompts: int
    equal: int
    texts: int
    table: Counter[tuple[str, str]]
    margins: tuple[float, ...]


def agreement(kind: Kind, name: str, local: Path, address: str, prompts: int) -> Agreement:
    """Ask the server and the model here about the first states of grids, at temperature 0."""
    settings = agent_settings(kind, name, local, address)
    asked = study(settings, prompts)
    (served,) = asked.agents()
    assert isinstance(served, ChatAgent)
    sampling = Sampling(**{**served.sampling.describe(), "top_logprobs": 2})
    views = [world.begin_episode(asked.seed, "").view for world in asked.worlds()][:prompts]
    requests = tuple(served.request(Observation(view=view, episode_id=f"{at}")) for at, view in enumerate(views))
    ours = answers_here(local, "auto" if kind.model == "theseus" else "none", requests, sampling)
    theirs = served.model.complete(requests, served.sampling)
    table: Counter[tuple[str, str]] = Counter()
    margins: list[float] = []
    texts = 0
    for view, mine, other in zip(views, ours, theirs, strict=True):
        acts = [turn(one, view.actions).action for one in (mine, other)]
        pair = tuple("-" if act is None else view.actions[act] for act in acts)
        table[pair[0], pair[1]] += 1
        texts += mine.answer.strip() == other.answer.strip()
        if acts[0] != acts[1]:
            margins.append(_margin(mine, other))
    equal = sum(count for (first, second), count in table.items() if first == second)
    return Agreement(prompts=len(views), equal=equal, texts=texts, table=table, margins=tuple(margins))


@cache
def answers_here(local: Path, reasoning: str, requests: tuple[Request, ...], sampling: Sampling) -> list[Reply]:
    """Return what the model in this process says, once for all servers of the same model.

    Args:
        local: folder of the model.
        reasoning: "none" where its tokenizer and template mark none: "auto" would warn of that.
        requests, sampling: what is asked.
    """
    return LocalModel(local, device="cpu", reasoning=reasoning).complete(requests, sampling)


def _margin(mine: Reply, other: Reply) -> float:
    leads = [entry["top"][0][1] - entry["top"][1][1] for entry in mine.logprobs or ()]
    if mine.output_tokens and other.output_tokens:
        pairs = zip(mine.output_tokens, other.output_tokens, strict=False)
        at = next((at for at, (first, second) in enumerate(pairs) if first != second), len(leads) - 1)
        return float(leads[min(at, len(leads) - 1)])
    return float(min(leads, default=float("nan")))


class Counting(ThreadingHTTPServer):
    """A relay before a server that counts the calls that pass, by the names that goalscope gives them."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        self.target = target.removesuffix("/v1")
        self.calls: list[str] = []
        super().__init__(("127.0.0.1", 0), _Relay)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is what this is for."""

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Relay(BaseHTTPRequestHandler):
    server: Counting

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._pass(None)

    def do_POST(self) -> None:
        self.server.calls.append(self.headers.get("X-Client-Request-Id", ""))
        self._pass(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass(self, body: bytes | None) -> None:
        request = urllib.request.Request(self.server.target + self.path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as found:
                status, content = found.status, found.read()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """A run that was killed and went on: answers stored at the kill, those asked again, calls in all."""

    stored: int
    again: int
    calls: int


def killed_and_resumed(kind: Kind, name: str, local: Path, address: str, folder: Path) -> Resumed:
    """Run a study through a server, kill goalscope with SIGKILL, go on, and see which calls were made twice."""
    with Counting(address) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        agent = agent_settings(kind, name, local, relay.address)
        asked, path, out = study(agent, 12, steps=3), folder / "study.yaml", folder / "run"
        path.write_text(yaml.safe_dump(asked.dump()), encoding="utf-8")
        command = [sys.executable, "-m", "goalscope", "run", str(path), "--out", str(out)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while _answered(relay) < 8:
            if process.poll() is not None:
                raise RuntimeError(f"the run ended: {process.communicate()[1].decode()[-800:]}")
            time.sleep(0.02)
        process.kill()
        process.communicate()
        before, since = _stored(out), len(relay.calls)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the run did not go on: {done.stderr[-800:]}")
        again = before & set(relay.calls[since:])
        relay.shutdown()
        return Resumed(stored=len(before), again=len(again), calls=len(_stored(out)))


def _answered(relay: Counting) -> int:
    return sum(not call.startswith(("check", "look")) for call in relay.calls)


def _stored(out: Path) -> set[str]:
    with Store(out) as store:
        rows = store.query("SELECT episode_id, step, attempt FROM calls WHERE state = 'done'")
    return {f"{episode}-{step}-{attempt}" for episode, step, attempt in rows}


def try_kind(kind: Kind, environments: Path, out: Path, prompts: int) -> tuple[ServerReport, Agreement, Resumed]:
    """Serve a model; return what its server does, how it agrees with the model here, how a killed run went on."""
    out.mkdir(parents=True, exist_ok=True)
    with started(kind, environments, out / "server.log") as (address, name, local):
        settings = agent_settings(kind, name, local, address)
        report = examine_server(HttpModel(name, server=settings["server"]), settings["template"])
        found = agreement(kind, name, local, address, prompts)
        return report, found, killed_and_resumed(kind, name, local, address, out)


def lines(name: str, kind: Kind, report: ServerReport, found: Agreement, resumed: Resumed) -> Iterator[str]:
    """Yield what is printed of one server."""
    told = ", ".join(f"{key} {text}" for key, text in report.told.server.items())
    yield f"{name} ({told})"
    yield from (f"  {one.name}: {one.state}; {one.detail}" for one in report.abilities)
    low, high = exact_binomial(found.equal, found.prompts)
    share = f"{found.equal} of {found.prompts}, {found.equal / found.prompts:.4f} [{low:.4f}, {high:.4f}]"
    weights = "same weights, float32" if kind.same else "quantised weights: another agent"
    yield f"  same action at temperature 0 ({weights}): {share}; same answer {found.texts}"
    for (first, second), count in sorted(found.table.items()):
        yield f"    here {first}, served {second}: {count}"
    if found.margins:
        margins = ", ".join(f"{margin:.2g}" for margin in sorted(found.margins))
        yield f"    margins of those that differ, nats: {margins}"
    again = f"{resumed.stored} answers stored, {resumed.again} of them asked again"
    yield f"  killed and resumed: {again}, {resumed.calls} in the end"


def main(arguments: Sequence[str] | None = None) -> None:
    """Try every server that has an environment and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="NAME")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "servers")
    parser.add_argument("--install", action="store_true", help="make the environments that are missing")
    parser.add_argument("--prompts", type=int, default=300)
    parser.add_argument("--out", type=Path, help="where logs and runs stay")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        for name in given.only:
            kind = KINDS[name]
            problem = install(kind, given.environments) if given.install else ""
            if problem or not (given.environments / kind.environment / "bin").exists():
                print(f"{name}: passed over, {problem or 'no environment: --install makes it'}")
                continue
            out = (given.out or Path(temporary)) / name.replace(" ", "-").replace(",", "")
            print(*lines(name, kind, *try_kind(kind, given.environments, out, given.prompts)), sep="\n", flush=True)


if __name__ == "__main__":
    main()
