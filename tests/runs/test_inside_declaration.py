"""What a study declares about reading activations: it decides no episode, and what is wrong is named by its key."""

from typing import Any

import pytest

from goalscope.cli.overrides import load_study
from goalscope.runs import Study
from goalscope.runs.study_parts import READS, Inside, RandomNetworks
from goalscope.verdict.preflight import study_files as studies

PLAIN: dict[str, Any] = {
    "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.6], "count": 2}],
    "agents": [{"kind": "optimal"}],
}


def test_a_declaration_changes_no_id_and_survives_the_round_trip() -> None:
    plain = Study.parse(PLAIN)
    declared = Study.parse({**PLAIN, "analysis": {"inside": {"reads": ["plans"], "layers": [3, 1]}}})
    assert declared.id == plain.id
    assert plain.difference(declared) == ""
    assert Study.parse(declared.dump()) == declared
    assert declared.analysis is not None and declared.analysis.inside is not None
    assert declared.analysis.inside.layers == (3, 1)
    assert declared.analysis.inside.reads == ("plans",)
    # Stored studies that know nothing of it stay what they were.
    other = Study.parse({**PLAIN, "analysis": {"pairs": [["a", "b"]]}})
    assert "inside" not in other.dump()["analysis"]


def test_the_complete_table_changes_what_it_names_and_nothing_else() -> None:
    declared = Inside.parse({"sites": ["pre"], "full": {"layers": "all", "curve": [2, 4], "probes": {"hidden": 1024}}})
    full = declared.complete()
    assert (full.table, full.layers, full.probes.hidden) == ("complete", "all", 1024)
    assert (full.sites, full.reads, full.decoders) == (declared.sites, declared.reads, declared.decoders)
    assert (declared.table, declared.curve, full.curve) == ("middle", (), (2, 4))


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ({"layers": "third"}, "analysis.inside.layers: must be thirds (the last block of each third), all"),
        ({"layers": [1, 1]}, "different numbers of blocks >= 0"),
        ({"layers": [-1]}, "different numbers of blocks >= 0"),
        ({"layers": []}, "different numbers of blocks >= 0"),
        ({"layers": [True]}, "different numbers of blocks >= 0"),
        ({"layer": "all"}, "analysis.inside.layer: unknown key; did you mean layers?"),
        ({"sites": ["grid"]}, "analysis.inside.sites[0]: must be 'pre', 'post' or 'action', got 'grid'"),
        ({"sites": ["pre", "pre"]}, "analysis.inside.sites: values must all differ, got 'pre' twice"),
        ({"reads": []}, "analysis.inside.reads: must have at least one entry"),
        ({"reads": ["cognitiv-map"]}, "did you mean cognitive-map?"),
        ({"curve": [50, 50]}, "analysis.inside.curve: must be ascending"),
        ({"curve": [0, 50]}, "analysis.inside.curve[0]: must be greater than or equal to 1, got 0"),
        ({"test": 1.0}, "analysis.inside.test: must be less than 1"),
        ({"untrained": 0}, "analysis.inside.untrained: unknown key"),
        ({"random": {"kinds": ["untrained"]}}, "analysis.inside.random.kinds[0]: must be 'default-init', 'initial'"),
        ({"random": {"seedz": 3}}, "analysis.inside.random.seedz: unknown key"),
        ({"probes": {"hiden": 3}}, "analysis.inside.probes.hiden: unknown key; did you mean hidden?"),
        ({"probes": {"rate": float("nan")}}, "analysis.inside.probes.rate"),
        ({"decoders": {"width": 9}}, "analysis.inside.decoders.width: must be a multiple of 8"),
        ({"decoders": {"layers": [0]}}, "decoders.layers[0]: must be greater than or equal to 1, got 0"),
        ({"full": {"layres": "all"}}, "analysis.inside.full.layres: unknown key; did you mean layers?"),
        ({"full": {"layers": "each"}}, "analysis.inside.full.layers: must be thirds"),
    ],
)
def test_a_wrong_declaration_is_refused_by_key(inside: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="valid study") as error:
        Study.parse({**PLAIN, "analysis": {"inside": inside}})
    assert said in str(error.value)


def test_what_is_asked_for_on_the_command_line_is_refused_by_key_too() -> None:
    with pytest.raises(ValueError, match=r"probes\.hiden: .*hidden"):
        Inside.parse({"probes": {"hiden": 3}})


def test_probes_read_grids_alone() -> None:
    tasks = {
        "worlds": [{"kind": "cooking"}],
        "agents": [{"kind": "task-random-walk"}],
        "analysis": {"inside": {}},
    }
    with pytest.raises(ValueError, match=r"analysis\.inside.*task map"):
        Study.parse(tasks)


def test_the_shipped_studies_of_activations_share_their_episodes() -> None:
    """One directory serves all four: the episodes and the activations are those of the first that is run."""
    named = [name for name in READS if name != "logit-lens"]  # it is read beside the others, on request
    shipped = [load_study(name) for name in named]
    assert set(named) <= set(studies.names())
    assert len({study.id for study in shipped}) == 1
    for name, study in zip(named, shipped, strict=True):
        assert study.analysis is not None and study.analysis.inside is not None
        inside = study.analysis.inside
        assert inside.reads == (name,)
        assert inside.agent == "Theseus" == study.agents_[0].build().name
        assert inside.sites is None and inside.wanted_sites == ("pre", "post")
        assert inside.layers == "thirds" and inside.random == RandomNetworks() and inside.steps is not None
        assert inside.complete().table == "complete"
        # Probes that two of them need are fitted once.
        assert inside.probes == Inside.parse(shipped[0].dump()["analysis"]["inside"]).probes
