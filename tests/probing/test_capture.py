"""Capture: the vectors are those of a plain forward over the recorded ids, however the work was cut into pieces."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from architectures import tiny
from replays import GRIDS, TEMPLATE, local, record, recorded_steps, words
from safetensors.numpy import load_file

from contents import hash_of
from families import long_after
from goalscope.agents.models import LocalModel
from goalscope.inside.activations import (
    Activations,
    CaptureSettings,
    capture,
    captures,
    load_activations,
    stream_activations,
)
from goalscope.inside.activations.hooks import Recording
from goalscope.runs import Study, run
from tampered import tampered

SMALL = CaptureSettings(window=7, batch_tokens=300, shard_bytes=20_000)


def plain(model: LocalModel, activations: Activations, directory: Path) -> Any:
    """The same vectors, one full forward over prompt and output a step: the literal reading of the specification."""
    steps = recorded_steps(directory)
    found = np.empty_like(activations.vectors)
    known = _forwards.setdefault(model, {})  # of one model, as several sites and layers are asked for
    for row, (episode, step, places) in enumerate(
        zip(activations.episode_id, activations.step, activations.positions, strict=True)
    ):
        one = steps[str(episode), int(step)]
        ids = [*(one.prompt_tokens or ()), *(one.output_tokens or ())]
        assert activations.tokens[row].tolist() == [ids[place] for place in places]
        if tuple(ids) not in known:
            with torch.inference_mode():
                known[tuple(ids)] = model.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        found[row] = known[tuple(ids)][activations.layer + 1][0, places.tolist()].numpy()
    return found


_forwards: WeakKeyDictionary[LocalModel, dict[tuple[int, ...], Any]] = WeakKeyDictionary()


def close(ours: Any, theirs: Any) -> None:
    assert ours.shape == theirs.shape
    assert float(np.abs(ours - theirs).max()) <= 1e-5 * float(np.abs(theirs).max())


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((directory / "activations").rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("kind", "style", "sites"),
    long_after(
        2,
        [
            ("gpt_oss", "harmony", ("pre", "post", "grid", "action")),
            ("llama", "harmony", ("pre", "post", "action")),
            ("qwen3", "think", ("pre", "post", "action")),
            ("gpt2", "none", ("pre", "action")),
        ],
        names=3,
    ),
)
def test_vectors_are_those_of_a_plain_forward(tmp_path: Path, kind: str, style: str, sites: tuple[str, ...]) -> None:
    model = local(kind, style)
    directory = record(tmp_path / "run", model, style=style)
    done = capture(directory, model, sites=sites, layers=[1, 0], settings=SMALL)
    assert done.complete and done.captured == done.steps == 24 and done.left_out == {}
    assert done.layers == (0, 1) and set(done.sites) == set(sites)
    assert done.self_check == {"0": 0.0, "1": 0.0}
    assert len(digests(directory)) > 3
    for site in sites:
        for layer in (0, 1):
            for shape in ((3, 5), (5, 6), (4, 5)) if site == "grid" else (None,):
                found = load_activations(directory, site=site, layer=layer, shape=shape)
                assert found.vectors.dtype == np.float32 and not found.vectors.flags.writeable
                assert len(found) == (8 if shape else 24)
                close(found.vectors, plain(model, found, directory))


def test_the_last_layer_comes_before_the_final_norm(tmp_path: Path) -> None:
    model = local("gpt_oss")
    directory = record(tmp_path / "run", model, grids=GRIDS[:1])
    capture(directory, model, sites=["pre"], layers=[2])
    found = load_activations(directory, site="pre", layer=2)
    with torch.inference_mode():
        normed = model.model.model.norm(torch.from_numpy(found.vectors.copy())).numpy()
    close(normed, plain(model, found, directory))


def test_equal_shapes_are_bit_equal(tmp_path: Path) -> None:
    """One sequence a batch and no shared beginning: a plain forward over the same ids gives the same bits."""
    model = local("gpt_oss")
    directory = record(tmp_path / "run", model, trajectories=1)
    settings = CaptureSettings(batch_tokens=1, share_prefix=False)
    capture(directory, model, sites=["pre", "post"], layers=[0, 1], settings=settings)
    steps = recorded_steps(directory)
    for layer in (0, 1):
        found = load_activations(directory, site="post", layer=layer)
        for row in range(len(found)):
            one = steps[str(found.episode_id[row]), int(found.step[row])]
            ids = [*(one.prompt_tokens or ()), *(one.output_tokens or ())][: int(found.positions[row].max()) + 1]
            with torch.inference_mode():
                states = model.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
            assert np.array_equal(states[layer + 1][0, found.positions[row].tolist()].numpy(), found.vectors[row])


def test_neither_batches_nor_windows_nor_the_shared_beginning_change_a_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = local("gpt_oss")
    directory = record(tmp_path / "run", model, grids=GRIDS[:2], text="y" * 70 + TEMPLATE)
    lengths: list[int] = []
    compute = Recording.prefix

    def counted(self: Recording, ids: Any) -> Any:
        lengths.append(len(ids))
        return compute(self, ids)

    monkeypatch.setattr(Recording, "prefix", counted)
    reference = None
    for settings, prefixes in (
        (CaptureSettings(share_prefix=False), 0),
        (CaptureSettings(batch_tokens=1), 1),
        (CaptureSettings(window=3, shard_bytes=1), 5),  # the sixth window holds a single step
        (CaptureSettings(batch_tokens=10_000), 1),
    ):
        lengths.clear()
        done = capture(directory, model, sites=["post", "grid"], layers=[1, 2], settings=settings)
        assert len(lengths) == prefixes and all(length > 100 for length in lengths)
        found = load_activations(directory, site="post", layer=2, capture=done.id)
        reference = found if reference is None else reference
        assert found.episode_id.tolist() == reference.episode_id.tolist()
        assert found.step.tolist() == reference.step.tolist()
        close(found.vectors, reference.vectors)
        cells = load_activations(directory, site="grid", layer=1, capture=done.id, shape=(3, 5))
        close(cells.vectors, plain(model, cells, directory))
    assert len({one.id for one in captures(directory)}) == 4


def test_half_precision_is_kept_exactly(tmp_path: Path) -> None:
    weights = tiny("llama").to(torch.bfloat16)
    model = LocalModel.from_parts(weights, words(), name="half")
    directory = record(tmp_path / "run", model, grids=GRIDS[:1], trajectories=1)
    done = capture(directory, model, sites=["pre"], layers=[1], settings=CaptureSettings(batch_tokens=1))
    found = load_activations(directory, site="pre", layer=1)
    steps = recorded_steps(directory)
    assert done.dtype == "bfloat16"
    for row in range(len(found)):
        ids = steps[str(found.episode_id[row]), int(found.step[row])].prompt_tokens
        with torch.inference_mode():
            states = weights(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        assert np.array_equal(states[2][0, -3:].float().numpy(), found.vectors[row])


def test_pieces_put_together_are_the_whole(tmp_path: Path) -> None:
    model = local()
    directory = record(tmp_path / "run", model)
    capture(directory, model, sites=["pre", "grid"], layers=[1], settings=SMALL)
    whole = load_activations(directory, site="pre", layer=1)
    pieces = list(stream_activations(directory, site="pre", layer=1))
    assert len(pieces) > 3 and sum(map(len, pieces)) == len(whole)
    told = {(str(e), int(s)): row for row, (e, s) in enumerate(zip(whole.episode_id, whole.step, strict=True))}
    for piece in pieces:
        for row in range(len(piece)):
            there = told[str(piece.episode_id[row]), int(piece.step[row])]
            assert np.array_equal(piece.vectors[row], whole.vectors[there])
    shapes = {
        (tuple(piece.shape[0].tolist()), piece.vectors.shape[1])
        for piece in stream_activations(directory, site="grid", layer=1)
    }
    assert shapes == {((3, 5), 15), ((5, 6), 30), ((4, 5), 20)}
    with pytest.raises(ValueError, match=r"15, 20, 30\).*shape="):
        load_activations(directory, site="grid", layer=1)
    with pytest.raises(ValueError, match=r"grid .*9 x 9"):
        load_activations(directory, site="grid", layer=1, shape=(9, 9))
    kept = whole.where(whole.step == 1)
    assert len(kept) == 6
    assert (kept.site, kept.layer, kept.model) == (whole.site, whole.layer, whole.model) == ("pre", 1, whole.model)


def test_a_second_capture_computes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = local()
    directory = record(tmp_path / "run", model)
    done = capture(directory, model, sites=["post", "pre"], layers=[0, 1], settings=SMALL)
    before = digests(directory)
    monkeypatch.setattr(type(model.model.base_model), "forward", None)
    assert capture(directory, model, sites=["pre", "post", "pre"], layers=[1, 0, 1], settings=SMALL) == done
    assert digests(directory) == before


def test_what_is_missing_is_written_again_with_the_same_bytes(tmp_path: Path) -> None:
    model = local()
    directory = record(tmp_path / "run", model)
    done = capture(directory, model, layers=[1], settings=SMALL)
    before, content = digests(directory), hash_of(directory)
    names = sorted(before)
    (directory / names[1]).unlink()
    (directory / names[2]).write_bytes((directory / names[2]).read_bytes()[:-10])
    with tampered(directory / "run.db") as database:
        database.execute("DELETE FROM artifacts WHERE path = ?", (names[3],))
    (directory / done.path / ".00009.safetensors.partial").write_bytes(b"half")
    with pytest.raises(ValueError, match=r"must have .* bytes, got"):
        (directory / names[1]).write_bytes(b"")
        load_activations(directory, site="pre", layer=1)
    with pytest.warns(UserWarning, match="computed again"):
        again = capture(directory, model, layers=[1], settings=SMALL)
    assert again == done and digests(directory) == before and hash_of(directory) == content


def test_a_damaged_shard_is_refused(tmp_path: Path) -> None:
    model = local()
    directory = record(tmp_path / "run", model)
    capture(directory, model, sites=["pre"], layers=[1])
    (name,) = digests(directory)
    path, sound = directory / name, (directory / name).read_bytes()

    def refused(data: bytes | None, message: str, kind: type[Exception] = ValueError) -> None:
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        with pytest.raises(kind, match=message):
            load_activations(directory, site="pre", layer=1)
        path.write_bytes(sound)

    refused(sound[:-1], "must have .* bytes, got .*delete the file and run the same capture again")
    refused(b"\xff" * len(sound), "not an intact safetensors file")
    refused(b"\x08" + b"\0" * (len(sound) - 1), "not an intact safetensors file")
    refused(sound[:-4] + b"\0\0\x80\x3f", "does not match its digest")
    refused(sound.replace(b"capture-", b"capturx-", 1), "header does not match its digest")
    refused(None, "there is no such file", FileNotFoundError)
    assert len(load_activations(directory, site="pre", layer=1)) == 24
    with tampered(directory / "run.db") as database:
        database.execute("UPDATE artifacts SET path = '../x.safetensors' WHERE kind = 'activations'")
    with pytest.raises(ValueError, match="run directory"):
        load_activations(directory, site="pre", layer=1)


def test_activations_that_are_not_finite_stop_the_capture(tmp_path: Path) -> None:
    model = local()
    directory = record(tmp_path / "run", model, grids=GRIDS[:1], trajectories=1)
    (episode, _), *_ = recorded_steps(directory)
    with torch.no_grad():
        model.model.model.embed_tokens.weight[model.encode("x")[0]] = torch.inf  # written at the steps 1, 2 and 3 alone
    with pytest.raises(ValueError, match=rf"{episode} step [123], site (action|pre), layer 0"):
        capture(directory, model, sites=["action", "pre"], layers=[0, 1])
    assert not captures(directory)[0].complete
    with pytest.raises(ValueError, match="complete"):
        load_activations(directory, site="pre", layer=1)


def test_runs_without_token_ids_are_refused_with_the_setting(tmp_path: Path) -> None:
    study = Study.parse(
        {
            "worlds": [{"kind": "grid", "sizes": [5], "densities": [0.0], "count": 1}],
            "agents": [{"kind": "optimal"}],
            "trajectories": 1,
        }
    )
    run(study, tmp_path / "scripted")
    with pytest.raises(ValueError, match="optimal"):
        capture(tmp_path / "scripted", local())
    model = local()
    directory = record(tmp_path / "chat", model, change=lambda step: replace(step, output_tokens=None))
    with tampered(directory / "run.db") as database:
        database.execute(
            "UPDATE agents SET description = ?", ('{"kind":"chat","model":{"kind":"http","mode":"chat","files":{}}}',)
        )
    assert capture(directory, model, sites=["pre"]).captured == 24
    with pytest.raises(ValueError, match=r"mode: completions"):
        capture(directory, model, sites=["pre", "post"])
    with pytest.raises(FileNotFoundError):
        capture(tmp_path / "nothing", model)


def test_steps_made_again_from_text_are_marked(tmp_path: Path) -> None:
    model = local()

    def mark(step: Any) -> Any:
        return replace(step, extra={"reconstructed": True}) if step.index == 2 else step

    directory = record(tmp_path / "run", model, change=mark)
    done = capture(directory, model, sites=["pre"], layers=[0])
    found = load_activations(directory, site="pre", layer=0)
    assert done.reconstructed == 6
    assert np.array_equal(found.reconstructed, found.step == 2)


def test_steps_without_a_site_are_counted_and_left_out(tmp_path: Path) -> None:
    model = local()

    def shorten(step: Any) -> Any:
        return replace(step, output_tokens=step.output_tokens[:5]) if step.index % 2 else step

    directory = record(tmp_path / "run", model, change=shorten)
    done = capture(directory, model, layers=[0], settings=SMALL)
    assert done.left_out == {"post: no final answer": 12} and done.captured == 24
    assert len(load_activations(directory, site="pre", layer=0)) == 24
    assert load_activations(directory, site="post", layer=0).step.tolist() == [0, 2] * 6
    other = record(tmp_path / "other", model, change=lambda step: replace(step, output_tokens=(5, 6)))
    with pytest.raises(ValueError, match=r"site post .*\(24"):
        capture(other, model, sites=["post"])


def test_untrained_and_other_models(tmp_path: Path) -> None:
    model, control = local(), local(seed=5)
    directory = record(tmp_path / "run", model)
    capture(directory, model, layers=[1])
    with pytest.raises(ValueError, match=r"llama-5 \(weights"):
        capture(directory, control, layers=[1])
    capture(directory, control, layers=[1], other_weights=True)
    with pytest.raises(ValueError, match="layer 1"):
        load_activations(directory, site="pre", layer=1)
    ours = load_activations(directory, site="pre", layer=1, model="llama-0")
    theirs = load_activations(directory, site="pre", layer=1, model="llama-5")
    assert ours.episode_id.tolist() == theirs.episode_id.tolist() and np.array_equal(ours.tokens, theirs.tokens)
    assert not np.allclose(ours.vectors, theirs.vectors)
    assert ours.model != theirs.model
    close(theirs.vectors, plain(control, theirs, directory))
    with pytest.raises(ValueError, match=r"tokenizer"):
        capture(directory, local(style="think"), layers=[1])


def test_questions_about_what_was_not_captured(tmp_path: Path) -> None:
    model = local()
    directory = record(tmp_path / "run", model, trajectories=1)
    capture(directory, model, sites=["pre"], layers=[1])
    with pytest.raises(ValueError, match=r"goalscope capture .* --sites post --layers 1$"):
        load_activations(directory, site="post", layer=1)
    with pytest.raises(ValueError, match="--untrained 3"):
        load_activations(directory, site="pre", layer=1, untrained=3)
    for wrong, message in (
        ({"sites": ["middle"]}, "site must be one of pre, post, grid, action, got 'middle'"),
        ({"sites": []}, "sites .* at least one"),
        ({"layers": [9]}, r"in 0\.\.2"),
        ({"agent": "nobody"}, r"agent .*\(llama-0\), got 'nobody'"),
        ({"scope": "last"}, "must be all, first, or N:SEED"),
        ({"untrained": 1}, "untrained"),
    ):
        with pytest.raises(ValueError, match=message):
            capture(directory, model, **wrong)
    with pytest.raises(ValueError, match="llama-0"):
        capture(directory)
    with pytest.raises(ValueError, match=r"window .*>= 1"):
        CaptureSettings(window=0)
    # Episodes that came later make an old capture a matter of asking for it.
    record(directory, model, trajectories=2)
    with pytest.raises(ValueError, match="were added"):
        load_activations(directory, site="pre", layer=1)
    (old,) = captures(directory)
    assert len(load_activations(directory, site="pre", layer=1, capture=old.id)) == 12
    new = capture(directory, model, sites=["pre"], layers=[1])
    assert new.id != old.id and len(load_activations(directory, site="pre", layer=1)) == 24
    first = capture(directory, model, sites=["pre"], layers=[0], scope="first")
    assert first.steps == 6 and set(load_activations(directory, site="pre", layer=0).step.tolist()) == {0}


def test_equal_sequences_are_computed_once(tmp_path: Path) -> None:
    model = local()
    directory = record(tmp_path / "run", model, grids=GRIDS[:1], trajectories=3)
    rows: list[int] = []
    hook = model.model.model.embed_tokens.register_forward_hook(lambda _, given, __: rows.append(len(given[0])))
    settings = CaptureSettings(share_prefix=False)
    capture(directory, model, sites=["pre"], layers=[0], settings=settings)
    hook.remove()
    prompts = {step.prompt_tokens for step in recorded_steps(directory).values()}
    assert len(prompts) < 12 and sum(rows) == len(prompts) + 2  # two more for the self-check
    found = load_activations(directory, site="pre", layer=0)
    close(found.vectors, plain(model, found, directory))


def test_shards_hold_what_the_documentation_says(tmp_path: Path) -> None:
    model = local()
    directory = record(tmp_path / "run", model)
    done = capture(directory, model, layers=[0, 1])
    (name,) = digests(directory)
    tensors = load_file(str(directory / name))
    assert set(tensors) == {
        *("episode", "step", "shape", "reconstructed"),
        *(f"{site}.{what}" for site in ("pre", "post") for what in ("rows", "positions", "tokens", "0", "1")),
    }
    assert tensors["pre.0"].shape == (24, 3, done.width)
    assert (directory / name).stat().st_mode & 0o044
