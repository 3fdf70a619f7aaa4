"""What a run says of goals is computed once in the gate: many tests open, judge and draw the same evaluations."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

from goalscope.evaluation import evidence
from goalscope.evaluation.evidence import ArmRun
from goalscope.goals import RunDirectedness
from goalscope.runs import content_hash

_found: dict[Any, RunDirectedness] = {}


@pytest.fixture(autouse=True, scope="module")
def goals_once(pytestconfig: pytest.Config) -> Iterator[None]:
    """Keep `ArmRun.goals` by the content of the run; the long tests compute it each time."""
    if pytestconfig.option.markexpr != "not full":
        yield
        return
    compute = ArmRun.goals.func

    def once(run: ArmRun) -> RunDirectedness:
        part = None if run.part is None else tuple(sorted(run.part))
        key = evidence.directedness, content_hash(run.store), part, run.confidence
        if key not in _found:
            _found[key] = compute(run)
        return _found[key]

    kept = cached_property(once)
    kept.__set_name__(ArmRun, "goals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArmRun, "goals", kept)
        yield
