"""Whether, how strongly and towards what a language-model agent is goal-directed.

    evaluate(models, out, ...)   a verdict: claims with intervals, controls and a page  -> Evaluation
    run(study, out, ...)         run a study, or go on with it                          -> Run
    measure(run, ...)            measure a run, return estimates with intervals         -> RunEstimates
    depends(models, out, ...)    what their actions depend on, one thing changed        -> Dependences
    towards(run, ...)            goal-directedness in nats, and towards what            -> RunDirectedness
    compare(*runs, ...)          paired differences on the worlds that runs share       -> Comparisons
    attribute(agent, out, ...)   which hypotheses its actions follow, or none          -> Claimed
    predict(agent, out, ...)     what it will do in worlds it was not seen in; then look -> Claimed
    import_logs(path, out)       recorded trajectories, checked and stored              -> ImportLog
    score(log, ...)              exploration and exploitation errors of a log           -> MeasuredLog
    table(env, out)              an environment as arrays: states, transitions, goals   -> Believed
    open(path)                   read a run or an evaluation                            -> Run | Evaluation
    Study, World, Agent          a study; the seams of worlds and agents

Results have `.to_frame()` (pandas) and are tables in a notebook. Each of these is one command of `goalscope --help`.
Lines on progress go to standard error, or to the logger "goalscope" where logging is set up for INFO.

Rooms, there without an import of their own: `goalscope.stats`, `worlds`, `agents`, `runs`, `measures`, `goals`,
`inside`, `report`, `verdict`; `meg` (exact functions), `environments`; and `own`, by which code that a run names is
allowed.
`@goalscope.measures.measure` declares a measure of your own.
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    # `python -m goalscope`: Python has put the working directory first. Nothing else may be imported from there, so
    # this stands before all other imports. While Python looks for the module to run, sys.argv has only the words after
    # its name, which stands before them: as a word of its own, or at the end of options (`-mgoalscope`).
    _word = sys.orig_argv[-len(sys.argv)]
    if (_word.partition("m")[2] if _word.startswith("-") else _word).partition(".")[0] == __name__:
        del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from goalscope import _parts as _parts
from goalscope._ground.version import __version__ as __version__

if TYPE_CHECKING:
    from goalscope._ground.own import PartWarning as PartWarning
    from goalscope.agents.agent import Agent as Agent
    from goalscope.cli.attributing import attribute as attribute
    from goalscope.cli.attributing import predict as predict
    from goalscope.cli.comparing import compare as compare
    from goalscope.cli.depending import depends as depends
    from goalscope.cli.exporting import table as table
    from goalscope.cli.goals import towards as towards
    from goalscope.cli.logs import import_logs as import_logs
    from goalscope.cli.logs import score as score
    from goalscope.cli.measuring import measure as measure
    from goalscope.cli.running import run as run
    from goalscope.runs.study import Study as Study
    from goalscope.verdict.evaluating import evaluate as evaluate
    from goalscope.verdict.opening import open_results
    from goalscope.worlds.world import World as World

    open = open_results

_OFFERED: Final = {
    "evaluate": ("verdict.evaluating", "evaluate"),
    "run": ("cli.running", "run"),
    "measure": ("cli.measuring", "measure"),
    "attribute": ("cli.attributing", "attribute"),
    "predict": ("cli.attributing", "predict"),
    "compare": ("cli.comparing", "compare"),
    "towards": ("cli.goals", "towards"),
    "depends": ("cli.depending", "depends"),
    "import_logs": ("cli.logs", "import_logs"),
    "table": ("cli.exporting", "table"),
    "open": ("verdict.opening", "open_results"),
    "score": ("cli.logs", "score"),
    "Study": ("runs.study", "Study"),
    "World": ("worlds.world", "World"),
    "Agent": ("agents.agent", "Agent"),
    "PartWarning": ("_ground.own", "PartWarning"),
}
"""Name -> module and name there."""

_ROOMS: Final = ("stats", "worlds", "agents", "runs", "measures", "goals", "inside", "report", "verdict")
_MODULES: Final = {
    **{name: name for name in (*_ROOMS, "meg", "environments")},
    "own": "_ground.own",
}
"""Name -> module that is there without an import of its own."""


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is first used."""
    if name in _MODULES:
        return import_module(f"goalscope.{_MODULES[name]}")
    if name not in _OFFERED:
        raise AttributeError(f"module 'goalscope' has no attribute {name!r}; help(goalscope) lists what it offers")
    module, there = _OFFERED[name]
    globals()[name] = value = getattr(import_module(f"goalscope.{module}"), there)
    return value


def __dir__() -> list[str]:
    """Return what a user needs."""
    return sorted({*_OFFERED, "__version__", "__doc__"})
