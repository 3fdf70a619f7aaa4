"""The page holds what the run holds, as data that no reader of HTML takes for anything else."""

import hashlib
import http.client
import json
import re
import shutil
import subprocess
import threading
from base64 import b64encode
from html import escape
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from goalscope.inside.interventions.patching import FOLLOWS
from goalscope.measures import StepTable
from goalscope.report.ledger import Run
from goalscope.runs import Store
from goalscope.stats.rows import Row, Rows
from goalscope.verdict.viewer import serving, write_view
from goalscope.verdict.viewer.collect import patched
from goalscope.worlds.world import Drawing
from measured_runs import HOSTILE, Talker, measured, small_study
from viewer_parts import parts_of, unpacked

ROOT = Path(__file__).parents[2]
ASSET = ROOT / "src" / "goalscope" / "verdict" / "viewer" / "viewer.html"


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("viewed") / "run", small_study())


def test_the_table_agrees_with_the_table_of_steps(run_directory: Path, tmp_path: Path) -> None:
    written = write_view([run_directory], tmp_path / "page.html")
    parts = parts_of(written.page)
    columns = parts["index"]["table"]["columns"]
    with Store(run_directory) as store:
        table = StepTable.from_episodes(store.episodes())
    rows = {identity: at for at, identity in enumerate(table.episode_id)}
    order = [rows[identity] for identity in columns["id"]]
    assert sorted(order) == list(range(written.episodes)) == list(range(len(table.length)))
    assert columns["steps"] == table.length[order].tolist()
    assert columns["wrong"] == table.per_episode(table.valid & ~table.is_optimal)[order].tolist()
    assert columns["shortest"] == table.optimal_length[order].tolist()
    assert [parts["index"]["table"]["agents"][code] for code in columns["agent"]] == table.agent[order].tolist()
    episodes = {one["id"]: one for name, part in parts.items() if name != "index" for one in part["episodes"]}
    for at, identity in enumerate(table.episode_id):
        steps = table.episode == at
        assert [step["a"] for step in episodes[identity]["steps"]] == table.action[steps].tolist()
        assert [tuple(step["draw"][1:]) for step in episodes[identity]["steps"]] == [
            (row, col) for row, col, _ in table.state[steps].tolist()
        ]


def test_a_policy_that_is_known_stands_beside_the_optimal_one(run_directory: Path, tmp_path: Path) -> None:
    parts = parts_of(write_view([run_directory], tmp_path / "page.html").page)
    table = parts["index"]["table"]
    agents = dict(
        zip(table["columns"]["id"], (table["agents"][code] for code in table["columns"]["agent"]), strict=True)
    )
    for shard in (part for name, part in parts.items() if name != "index"):
        for episode in shard["episodes"]:
            for step in episode["steps"]:
                chance = [1 / len(step["best"]) if action in step["best"] else 0 for action in range(4)]
                share = {"optimal": 0, "random": 1}.get(agents[episode["id"]], 0.5)
                expected = [(1 - share) * best + share / 4 for best in chance]
                assert step["policy"] == pytest.approx(expected, abs=1e-4)


def test_shards_beside_the_page_hold_the_same_and_old_ones_go(run_directory: Path, tmp_path: Path) -> None:
    whole = parts_of(write_view([run_directory], tmp_path / "whole.html").page)
    (tmp_path / "apart.data").mkdir()
    (tmp_path / "apart.data" / "99.js").write_text("old")
    written = write_view([run_directory], tmp_path / "apart.html", most=0)
    files = sorted((tmp_path / "apart.data").iterdir())
    assert [file.name for file in files] == [f"{number}.js" for number in range(written.shards)]
    text = files[0].read_text()
    found = re.fullmatch(r'goalscopeShard\(0,"([A-Za-z0-9+/=]+)"\)\n', text)
    assert found is not None and unpacked(found.group(1)) == whole["shard-0"]
    assert (
        "'strict-dynamic'" in written.page.read_text()
        and "'strict-dynamic'" not in (tmp_path / "whole.html").read_text()
    )


def test_hostile_texts_are_no_part_of_the_html(tmp_path: Path) -> None:
    run_directory = measured(tmp_path / "run", small_study(), [Talker()])
    page = write_view([run_directory], tmp_path / "page.html").page
    text = page.read_text(encoding="utf-8")
    assert HOSTILE not in text and escape(HOSTILE) not in text and "evil.example" not in text
    assert HOSTILE in parts_of(page)["shard-0"]["lines"]


def test_the_asset_allows_its_own_script_and_style_alone_and_carries_the_hash_of_its_source() -> None:
    text = ASSET.read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    for kind, name in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    viewer, digest_of_source = ROOT / "viewer", hashlib.sha256()
    names = ["package.json", "package-lock.json", "tsconfig.json", "build.mjs"]
    for name in [*names, *sorted(f"src/{file.name}" for file in (viewer / "src").iterdir())]:
        digest_of_source.update(name.encode() + b"\0" + (viewer / name).read_bytes() + b"\0")
    assert f'<meta name="source" content="{digest_of_source.hexdigest()}">' in text


@pytest.mark.full
def test_building_the_asset_again_gives_the_same_bytes(tmp_path: Path) -> None:
    if not (ROOT / "viewer" / "node_modules").is_dir():
        pytest.skip("the viewer's packages are not installed: npm ci --prefix viewer")
    built = tmp_path / "viewer.html"
    subprocess.run(["node", str(ROOT / "viewer" / "build.mjs"), str(built)], check=True, timeout=120)
    subprocess.run(["npx", "tsc", "--noEmit"], cwd=ROOT / "viewer", check=True, timeout=300, capture_output=True)
    assert built.read_bytes() == ASSET.read_bytes()


def test_what_is_served_is_the_page_and_its_shards_alone(run_directory: Path, tmp_path: Path) -> None:
    page = write_view([run_directory], tmp_path / "page.html", most=0).page
    (tmp_path / "secret.txt").write_text("secret")
    with serving(page) as (address, wait):
        threading.Thread(target=wait, daemon=True).start()
        host = address.removeprefix("http://").rstrip("/")

        def status(path: str, name: str = host) -> int:
            connection = http.client.HTTPConnection(host, timeout=10)
            connection.request("GET", path, headers={"Host": name})
            return connection.getresponse().status

        assert [status(path) for path in ("/", "/page.data/0.js")] == [200, 200]
        for path in ("/secret.txt", "/page.data/../secret.txt", "/page.data/99.js", "/../page.html"):
            assert status(path) == 404
        assert status("/", "evil.example") == 404


def test_the_command_writes_a_page_and_asks_for_a_name_where_there_are_several(run_directory: Path) -> None:
    assert "view.html" in call("view", run_directory)
    assert (run_directory / "view.html").is_file()
    assert "--out" in call("view", run_directory, run_directory, status=2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": ("##", "#")},
        {"rows": ("##",), "agent": (1, 0)},
        {"rows": ("##",), "labels": ((0, 2, "x"),)},
        {"nodes": {"a": ""}, "edges": (("a", "b"),)},
    ],
)
def test_a_drawing_that_does_not_fit_together_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"drawing|cells"):
        Drawing(**wrong)


def test_patches_of_a_grid_are_means_over_its_runs_and_stand_in_its_world(tmp_path: Path) -> None:
    directory = measured(tmp_path / "run", small_study())
    with Store(directory, "w") as store:
        cluster = next(iter(store.worlds())).cluster_id
        base: dict[str, Any] = {"intervention": "patching", "reading": "free", "component": "residual", "site": "grid"}
        base |= {"moved": "goal", "layers": "all", "layer": None, "pairs": "counterfactual", "structural": None}
        rows = [
            Row(measure=FOLLOWS, unit="share", value=value, cluster=cluster, tags={**base, "patch": patch, **more})
            for patch, value, more in (
                ("source", 1.0, {}),
                ("source", 0.0, {}),
                ("isotropic", 0.0, {}),
                ("source", 1.0, {"layer": 3}),
                ("source", 1.0, {"pairs": "control"}),
                ("source", 1.0, {"structural": "last layer"}),
                ("source", float("nan"), {}),
            )
        ]
        store.put_rows(Rows.from_rows(rows), source="patching")
    assert patched(Run(directory).rows()) == {
        cluster: [
            ["goal", "grid", "all", {"source": [0.5, 2], "isotropic": [0.0, 1]}],
            ["goal", "grid", "layer 3", {"source": [1.0, 1]}],
        ]
    }
    worlds = parts_of(write_view([directory], tmp_path / "page.html").page)["shard-0"]["worlds"].values()
    assert [len(world["patched"]) for world in worlds if "patched" in world] == [2]


def test_episodes_of_two_runs_with_the_same_ids_are_told_apart(run_directory: Path, tmp_path: Path) -> None:
    copied = tmp_path / "second"
    shutil.copytree(run_directory, copied)
    written = write_view([run_directory, copied], tmp_path / "page.html")
    parts = parts_of(written.page)
    columns = parts["index"]["table"]["columns"]
    half = written.episodes // 2
    assert len(set(columns["id"])) == written.episodes == 2 * half
    assert columns["id"][half:] == [identity.replace("-", "-2-", 1) for identity in columns["id"][:half]]
    assert columns["world"][:half] == columns["world"][half:] and columns["run"] == [0] * half + [1] * half
    shown = [one["id"] for name, part in parts.items() if name != "index" for one in part["episodes"]]
    assert shown == columns["id"]


def test_logs_stand_side_by_side_without_a_run_of_their_own(tmp_path: Path) -> None:
    world = {"type": "world", "id": "room", "grid": "#####\n#A__#\n#___#\n#__G#\n#####"}
    steps = {"RIGHT": (0, 1), "DOWN": (1, 0), "UP": (0, 0)}
    for number, moves in enumerate((["RIGHT", "RIGHT", "DOWN", "DOWN"], ["UP", "RIGHT"])):
        lines: list[Any] = [world, {"type": "episode", "episode": "e", "world": "room", "agent": "a", "horizon": 9}]
        row, col = 1, 1
        for step, move in enumerate(moves):
            lines.append({"episode": "e", "step": step, "position": [row, col], "action": move})
            row, col = row + steps[move][0], col + steps[move][1]
        place = tmp_path / str(number)
        place.mkdir()
        (place / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    call("view", tmp_path / "0" / "log.jsonl", tmp_path / "1" / "log.jsonl")
    table = parts_of(tmp_path / "0" / "view.html")["index"]["table"]
    assert table["runs"] == ["log", "log-2"] and table["columns"]["steps"] == [4, 2]
    assert len(set(table["columns"]["world"])) == 1 and len(set(table["columns"]["id"])) == 2
    (tmp_path / "empty.jsonl").write_text("{}\n")
    assert "empty.jsonl" in call("view", tmp_path / "empty.jsonl", status=2)
    assert not (tmp_path / "view.html").exists()
