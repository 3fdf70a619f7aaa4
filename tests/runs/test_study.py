from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from goalscope.agents import agent_id
from goalscope.runs import Study
from goalscope.worlds import control, layout, transform
from goalscope.worlds.planning import shortest_length

GRID: dict[str, Any] = {"kind": "grid", "sizes": [7, 9], "densities": [0.0, 0.6], "count": 3}
STUDY: dict[str, Any] = {"worlds": [GRID], "agents": [{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.3}]}


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "study.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_yaml_file_and_its_plain_values_are_the_same_study(tmp_path: Path) -> None:
    text = """
    name: two sizes
    seed: 3
    worlds:
      - {kind: grid, sizes: [7, 9], densities: [0, .6], count: 3, transforms: [identity, rotate]}
      - kind: text
        grids:
          - |
            #####
            #A_G#
            #####
    agents:
      - kind: optimal
      - {kind: epsilon-greedy, epsilon: 0.3, name: sloppy}
    trajectories: 2
    horizon: {factor: 2}
    failure: {policy: retry, retries: 2, then: end}
    """
    study = Study.load(written(tmp_path, text))
    again = Study.parse(study.dump())
    assert again == study and again.id == study.id
    assert study.dump()["horizon"] == {"factor": 2.0}
    assert [agent.name for agent in study.agents()] == ["optimal", "sloppy"]
    assert [world.id for world in again.worlds()] == [world.id for world in study.worlds()]
    assert study.worlds()[-1].tags == {"kind": "text", "index": 0, "transform": "identity"}


def test_name_and_durability_change_no_id_and_everything_else_does() -> None:
    base = Study.parse(STUDY)
    assert Study.parse({**STUDY, "name": "other", "durability": "power"}).id == base.id
    changed: list[dict[str, Any]] = [
        {"seed": 1},
        {"trajectories": 11},
        {"horizon": {"steps": 5}},
        {"history": "actions"},
        {"failure": {"policy": "end"}},
        {"worlds": [{**GRID, "count": 4}]},
        {"agents": STUDY["agents"][:1]},
    ]
    ids = [Study.parse({**STUDY, **change}).id for change in changed]
    assert len({base.id, *ids}) == len(changed) + 1


def test_specs_are_every_agent_on_every_world_and_size_says_so_before() -> None:
    study = Study.parse({**STUDY, "trajectories": 2})
    specs = list(study.specs())
    assert len({spec.id for spec, _, _ in specs}) == len(specs) == study.size().episodes == 4 * 3 * 2 * 2
    assert study.size().steps == sum(spec.horizon for spec, _, _ in specs)
    for spec, world, agent in specs:
        assert spec.world_id == world.id and spec.agent_id == agent_id(agent)
        assert spec.horizon == -(-3 * shortest_length(world.grid) // 2)
        assert spec.rules == ""


def test_an_agent_may_have_a_failure_policy_of_its_own_and_no_other_episode_changes() -> None:
    plain = Study.parse({**STUDY, "agents": [{"kind": "optimal"}, {"kind": "random", "name": "dice"}]})
    strict: list[dict[str, Any]] = [
        {"kind": "optimal"},
        {"kind": "random", "name": "dice", "failure": {"policy": "end"}},
    ]
    study = Study.parse({**STUDY, "agents": strict})
    assert study.id != plain.id and Study.parse(study.dump()).id == study.id
    for (before, _, agent), (after, _, _) in zip(plain.specs(), study.specs(), strict=True):
        assert (before == after) == (agent.name == "optimal")
        assert ("end" in after.rules) == (agent.name == "dice")
    with pytest.raises(ValueError, match="a name"):
        Study.parse({**STUDY, "agents": [{"kind": "random", "failure": {"policy": "end"}}]})


def test_rules_that_change_an_episode_change_its_id() -> None:
    plain, changed = Study.parse(STUDY), Study.parse({**STUDY, "failure": {"policy": "end"}})
    assert not {spec.id for spec, _, _ in plain.specs()} & {spec.id for spec, _, _ in changed.specs()}


def test_a_horizon_takes_its_factor_as_it_is_written() -> None:
    corridor = "\n".join(["#" * 13, "#A" + "_" * 9 + "G#", "#" * 13])
    worlds = [{"kind": "text", "grids": [corridor]}]
    for factor, steps in ((1.1, 11), (1.5, 15), (1.01, 11), (0.01, 1)):
        study = Study.parse({**STUDY, "worlds": worlds, "horizon": {"factor": factor}})
        assert next(study.specs())[0].horizon == steps


@pytest.mark.parametrize("transforms", [["identity"], ["identity", "reflect", "rotate", "transpose", "swap"]])
def test_small_empty_rooms_do_not_repeat_and_keep_their_place(transforms: list[str]) -> None:
    def worlds(count: int) -> list[str]:
        entry = {"kind": "grid", "sizes": [7], "densities": [0.0], "count": count, "transforms": transforms}
        return [world.id for world in Study.parse({**STUDY, "worlds": [entry]}).worlds()]

    many = worlds(24)
    assert len(set(many)) == len(many) == 24 * len(transforms)
    assert many[: 10 * len(transforms)] == worlds(10)


def test_transforms_share_a_cluster_and_are_the_transformed_grids() -> None:
    names = ["identity", "rotate", "swap"]
    worlds = Study.parse({**STUDY, "worlds": [{**GRID, "transforms": names, "fog_radius": 3}]}).worlds()
    plain = Study.parse({**STUDY, "worlds": [{**GRID, "transforms": ["identity"]}]}).worlds()
    clusters = Counter(world.cluster_id for world in worlds)
    assert set(clusters.values()) == {3}
    for index in range(0, len(worlds), 3):
        base = worlds[index]
        for world, name in zip(worlds[index : index + 3], names, strict=True):
            assert world.tags["transform"] == name and world.fog_radius == 3
            assert world.grid == transform(base.grid, name)
            assert {**world.tags, "transform": ""} == {**base.tags, "transform": ""}
    # With and without fog the same grid is one cluster.
    assert {world.id for world in plain} & set(clusters)


def test_layouts_and_their_controls_are_paired() -> None:
    entries = [{"kind": "key-door", "count": 3, "control": True}, {"kind": "key-no-door", "count": 3}]
    worlds = Study.parse({**STUDY, "worlds": entries, "seed": 5}).worlds()
    door, bare, vestigial = worlds[0:6:2], worlds[1:6:2], worlds[6:]
    for index in range(3):
        assert door[index].grid == layout("key-door", seed=5, index=index)
        assert bare[index].grid == control(door[index].grid)
        assert vestigial[index].grid == layout("key-no-door", seed=5, index=index)
        assert door[index].cluster == bare[index].cluster == vestigial[index].cluster
        assert [world.tags["control"] for world in (door[index], bare[index])] == [False, True]
        assert door[index].tags["kind"] == bare[index].tags["kind"] == "key-door"


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({**STUDY, "wrlds": []}, ["wrlds: unknown key; did you mean worlds?"]),
    ({"agents": STUDY["agents"]}, ["worlds: must be given"]),
    ({**STUDY, "worlds": []}, ["worlds: must have at least one entry"]),
    ({**STUDY, "agents": []}, ["agents: must have at least one entry"]),
    ({**STUDY, "worlds": [{**GRID, "density": [0.2]}]}, ["worlds[0].density: unknown key; did you mean densities?"]),
    ({**STUDY, "worlds": [{**GRID, "sizes": [8]}]}, ["worlds[0].sizes[0]: size must be an odd", "got 8: use 7 or 9"]),
    ({**STUDY, "worlds": [{**GRID, "densities": [1.2]}]}, ["worlds[0].densities[0]: density must", "got 1.2"]),
    ({**STUDY, "worlds": [{**GRID, "densities": ["x"]}]}, ["worlds[0].densities[0]: must be a valid number, got 'x'"]),
    ({**STUDY, "worlds": [{**GRID, "sizes": []}]}, ["worlds[0].sizes: must have at least one entry"]),
    ({**STUDY, "worlds": [{**GRID, "sizes": [7, 7]}]}, ["worlds[0].sizes: values must all differ, got 7 twice"]),
    ({**STUDY, "worlds": [{**GRID, "count": True}]}, ["worlds[0].count: must be a valid integer, got True"]),
    ({**STUDY, "worlds": [{**GRID, "count": 0}]}, ["worlds[0].count: must be greater than or equal to 1, got 0"]),
    ({**STUDY, "worlds": [GRID, GRID]}, ["entries of worlds must all differ"]),
    ({**STUDY, "worlds": [{"sizes": [7]}]}, ["worlds[0].kind: must be given"]),
    ({**STUDY, "worlds": [{"kind": "gird"}]}, ["worlds[0].kind: must be one of grid", "did you mean grid?"]),
    ({**STUDY, "worlds": [{**GRID, "transforms": ["rotat"]}]}, ["transforms[0]: must be", "did you mean rotate?"]),
    ({**STUDY, "worlds": [{**GRID, "minimum_distance": 25}]}, ["minimum_distance must be at most 24 for size 7"]),
    ({**STUDY, "worlds": [{"kind": "text", "grids": ["#A#"]}]}, ["worlds[0].grids: grid 0 must be a world", "goal"]),
    (
        {**STUDY, "worlds": [{"kind": "key-door", "count": 1, "transforms": ["swap"]}]},
        ["worlds[0]: transforms of key-door"],
    ),
    ({**STUDY, "agents": [{"kind": "optimall"}]}, ["agents[0]: ", "'optimall'"]),
    ({**STUDY, "agents": [{"kind": "epsilon-greedy", "epsilon": 2}]}, ["agents[0]: epsilon", "got 2"]),
    ({**STUDY, "agents": [{"kind": "optimal", "epsilon": 0.2}]}, ["agents[0]: ", "epsilon"]),
    (
        {**STUDY, "agents": [{"kind": "optimal"}, {"kind": "optimal", "name": "b"}]},
        ["agents[1] behaves exactly like agents[0]"],
    ),
    (
        {**STUDY, "agents": [{"kind": "optimal"}, {"kind": "random", "name": "optimal"}]},
        ["names of agents must all differ, got 'optimal' twice"],
    ),
    ({**STUDY, "horizon": {"factr": 2}}, ["horizon.factr: unknown key; did you mean factor?"]),
    ({**STUDY, "horizon": {"factor": 2, "steps": 3}}, ["horizon: ", "exactly one"]),
    ({**STUDY, "failure": {"policy": "retry"}}, ["failure: policy retry needs retries"]),
    ({**STUDY, "failure": {"policy": "end", "retries": 2}}, ["failure: retries and then apply only to policy retry"]),
    ({**STUDY, "trajectories": 1.5}, ["trajectories: must be a valid integer, got 1.5"]),
    ({**STUDY, "seed": 2**63}, ["seed: must be less than or equal to"]),
    ({**STUDY, "agents": {"kind": "optimal"}}, ["agents: must be a list, got {'kind': 'optimal'}"]),
    ({**STUDY, "agents": ["optimal"]}, ["agents[0]: must be a mapping of keys to values, got 'optimal'"]),
    ({**STUDY, "horizon": 5}, ["horizon: must be a mapping of keys to values, got 5"]),
    ({**STUDY, "durability": "proces"}, ["durability: must be 'process' or 'power'", "did you mean process?"]),
]


@pytest.mark.parametrize(("mapping", "parts"), BAD)
def test_a_wrong_study_is_refused_by_key(mapping: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ValueError, match="valid study") as caught:
        Study.parse(mapping)
    for part in parts:
        assert part in str(caught.value)


def test_worlds_that_cannot_be_had_are_refused() -> None:
    entry = {"kind": "grid", "sizes": [5], "densities": [0.0], "count": 80}
    with pytest.raises(ValueError, match=r"worlds\[0\].* 80 .*72"):
        Study.parse({**STUDY, "worlds": [entry]}).worlds()
    twice = {"kind": "text", "grids": ["A_G", "A_G\n___"], "transforms": ["identity", "reflect"]}
    assert len(Study.parse({**STUDY, "worlds": [twice]}).worlds()) == 4
    with pytest.raises(ValueError, match=r"grid 1 of worlds\[0\]"):
        Study.parse({**STUDY, "worlds": [{**twice, "grids": ["A_G", "G_A"]}]}).worlds()
    walled = {"kind": "text", "grids": ["A#G"]}
    with pytest.raises(ValueError, match="no way"):
        Study.parse({**STUDY, "worlds": [walled]}).size()


FILES: list[tuple[str | bytes, str]] = [
    (b"\xff\xfe\x00", "must be UTF-8"),
    (b"name: a\x00b", "a zero byte"),
    ("", "must be a study, i.e. a mapping with the keys name, seed, worlds"),
    ("- 1", "must be a study"),
    ("seed: 1\nseed: 2", "a key must be given once: 'seed' stands in line 1, column 1 and again in line 2, column 1"),
    ("a: &x [1]\nb: *x", r"without references, got \*x in line 2"),
    ("? [1]\n: 2", "a key must be a plain word"),
    ("worlds: [", "is not valid YAML: .* line 1"),
    ("a: !!python/object/apply:os.system [ls]", "must be written without a tag, got .*os.system"),
    ("[" * 1200, "nested too deep"),
    ("1: 2", "must be a study"),
]


@pytest.mark.parametrize(("text", "message"), FILES)
def test_a_file_that_is_no_study_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        Study.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_or_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.yaml"):
        Study.load(tmp_path / "none.yaml")
    with pytest.raises(IsADirectoryError, match="directory"):
        Study.load(tmp_path)


def test_a_difference_is_named_by_key() -> None:
    one = Study.parse(STUDY)
    other = Study.parse({**STUDY, "trajectories": 20, "name": "x", "worlds": [{**GRID, "sizes": [7, 11]}]})
    assert one.difference(other).splitlines() == [
        "  worlds[0].sizes[1]: 9 stored, 11 given",
        "  trajectories: 10 stored, 20 given",
    ]


def test_a_stored_study_is_read_where_its_model_is_not(tmp_path: Path) -> None:
    mapping = {
        "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 1}],
        "agents": [{"kind": "chat", "model": str(tmp_path / "gone")}],
    }
    with pytest.raises(ValueError, match=r"agents\[0\].*gone"):
        Study.parse(mapping)
    restored = Study.restore(mapping)
    assert restored.dump()["agents"][0]["model"].endswith("gone")
    with pytest.raises(ValueError, match="unknown key"):
        Study.restore({**mapping, "sed": 1})


HALVES = [
    'name: "a\\ud800"\nworlds: [{kind: grid, sizes: [5], densities: [0.5], count: 1}]\nagents: [{kind: optimal}]\n',
    'worlds: [{kind: grid, sizes: [5], densities: [0.5], count: 1}]\nagents: [{kind: optimal, name: "\\udfff"}]\n',
    '"wor\\ud800lds": []\n',
]


@pytest.mark.parametrize("text", HALVES)
def test_half_of_a_surrogate_pair_in_a_study_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(ValueError, match="surrogate") as caught:
        Study.load(tmp_path / "study.yaml")
    assert "\n" not in str(caught.value) and str(caught.value).isascii()


def test_numbers_of_4000_digits_in_a_study_are_refused(tmp_path: Path) -> None:
    for key in ("seed", "trajectories"):
        text = HALVES[0].replace("a\\ud800", "a") + f"{key}: {10**3999}\n"
        (tmp_path / "study.yaml").write_text(text)
        with pytest.raises(ValueError, match=f"fit into 64 bits.*key '{key}'"):
            Study.load(tmp_path / "study.yaml")
