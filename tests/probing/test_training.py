"""Probes and decoders train with as many threads as help, on a device that is there, and the same bytes come out."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from planted import key, noise, rooms
from planted_plans import QUICK, nothing, random_plans, worlds

from families import long_after
from goalscope.inside.probing import Features, FitSettings, Probe, ProbeKey, Problem, fit, fitting
from goalscope.inside.probing.fitting import Advance, Work, train_stacks
from goalscope.inside.probing.probe import Callbacks

LARGE = 50_000_000


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def work(*weights: int) -> list[Work[int]]:
    return [Work(stack=at, weights=count, units=len(weights) - at) for at, count in enumerate(weights)]


def test_small_stacks_train_side_by_side_with_one_thread_each() -> None:
    meet = threading.Barrier(2, timeout=60)  # nobody gets past it alone
    seen: list[tuple[int, int, bool]] = []

    def train(stack: int, advance: Advance) -> int:
        if stack != 1:
            meet.wait()
        seen.append((stack, torch.get_num_threads(), threading.current_thread() is threading.main_thread()))
        advance(3 - stack)
        return 10 * stack

    told: list[tuple[int, int]] = []
    found = list(train_stacks(work(1, LARGE, 1), train, device="cpu", progress=lambda *news: told.append(news)))
    assert found == [(1, 10), (0, 0), (2, 20)]
    assert seen[0] == (1, 2, True) and sorted(seen[1:]) == [(0, 1, False), (2, 1, False)]
    assert told[0] == (2, 6) and told[-1] == (6, 6)
    assert torch.get_num_threads() == 2


def test_one_thread_trains_one_after_another() -> None:
    torch.set_num_threads(1)
    seen = []

    def train(stack: int, advance: Advance) -> int:
        seen.append((stack, threading.current_thread() is threading.main_thread()))
        return stack

    assert list(train_stacks(work(1, 1), train, device="cpu", progress=lambda *_: None)) == [(0, 0), (1, 1)]
    assert seen == [(0, True), (1, True)]


@pytest.mark.parametrize("fails_in", ["the stack", "the caller"])
def test_a_failure_ends_the_others_and_the_callers_setting_comes_back(fails_in: str) -> None:
    begun, passes = threading.Event(), [0] * 4

    def train(stack: int, advance: Advance) -> int:
        if stack == 0:
            assert begun.wait(60)
            if fails_in == "the stack":
                raise ValueError("does not converge")
            return stack
        begun.set()
        for _ in range(60_000):  # a fit that would go on for a minute
            advance(1)
            passes[stack] += 1
            threading.Event().wait(1e-3)
        return stack

    def fits() -> None:
        for _ in train_stacks(work(1, 1, 1, 1), train, device="cpu", progress=lambda *_: None):
            raise ValueError("does not converge")

    with pytest.raises(ValueError, match="converge"):
        fits()
    assert passes[1] and max(passes) < 60_000
    assert torch.get_num_threads() == 2


def test_company_in_other_threads_changes_no_byte(tmp_path: Path) -> None:
    cells = worlds(8, 3)
    plans, given = random_plans(cells), nothing(cells)
    features = Features.of(given)

    def files(name: str) -> list[bytes]:
        looked: list[int] = []
        callbacks: Callbacks = Callbacks(progress=lambda done, total: looked.append(torch.get_num_threads()))
        problems = [
            Problem(key=key(head, head), features=features, target=cells.labels)
            for head in ("mlp", "percell", "additive")
        ]
        made: list[Any] = list(fit(problems, FitSettings(epochs=3, hidden=8), callbacks))
        decoders = [
            Problem(
                key=key(str(layers), "decoder", "plan"),
                features=features,
                target=plans.tokens,
                settings={"layers": layers},
            )
            for layers in (1, 2)
        ]
        made += fit(decoders, QUICK, callbacks)
        assert looked and set(looked) == {1}
        found = []
        for at, one in enumerate(made):
            one.save(tmp_path / f"{name}-{at}")
            found.append((tmp_path / f"{name}-{at}").read_bytes())
        return found

    together = files("together")
    torch.set_num_threads(1)
    assert files("alone") == together


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device='cpu'"):
        list(train_stacks(work(1), lambda stack, advance: stack, device="cuda", progress=lambda *_: None))


class _EndedError(Exception):
    """The fit ended here."""


@pytest.mark.parametrize("penalties", long_after(1, [(), (1e-4, 30.0)]))
@pytest.mark.parametrize("head", ["mlp", "additive"])
def test_a_fit_that_ends_after_any_stack_goes_on_to_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, head: str, penalties: tuple[float, ...]
) -> None:
    """Widths are odd: then the last bits of a probe depend on its place in a stack."""
    monkeypatch.setattr(fitting, "PER_STACK", 3)
    settings = FitSettings(epochs=3, batch=6, hidden=5, rate=0.02, seed=4, penalties=penalties)
    cells = rooms(grids=8, steps=2)
    problems = [
        Problem(key=key(str(at), head), features=Features.of(noise(cells, seed=at)), target=cells.labels)
        for at in range(8)
    ]
    whole = [probe.id for probe in fit(problems, settings)]
    for count in range(1, 8):
        stored: dict[ProbeKey, Probe] = {}

        def keep(probes: Mapping[ProbeKey, Probe], stored: dict[ProbeKey, Probe] = stored, most: int = count) -> None:
            stored.update(probes)
            if len(stored) >= most:
                raise _EndedError

        with pytest.raises(_EndedError):
            fit(problems, settings, Callbacks(keep=keep))
        assert count <= len(stored) < count + 3
        assert [probe.id for probe in fit(problems, settings, Callbacks(find=stored.get))] == whole
