"""Decoded maps beside true grids, if they are better than what the same probe decodes from random networks.

Source: behavioural and representational evaluation, section 5.1, Figure 6.
"""

from collections.abc import Iterator, Mapping

from goalscope._ground.words import listed
from goalscope.inside.probing import beliefs as names
from goalscope.inside.probing.beliefs import RULE, SOURCE, ShownMap
from goalscope.inside.probing.curves import TRAINED_ON
from goalscope.inside.probing.scores import AREA, KEY, summarise
from goalscope.report.blocks import number
from goalscope.report.ledger import Key, RunData
from goalscope.report.pictures import framed, map_picture, picture
from goalscope.report.sections.probing import RANDOM_NETWORKS, Contrast, ProbeRows, ReadPoint, contrasted, probe_name
from goalscope.report.specs import Declared, Figure, section
from goalscope.report.texts import TEXTS
from goalscope.report.verdicts import MADE, NETWORKS, claim_in_words, verdict
from goalscope.runs.record import Episode
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import Action

_UNKNOWN = TEXTS("decoded maps/unknown")
_MAP_LEGEND = TEXTS("decoded maps/legend")


@section("decoded maps", source="behavioural and representational evaluation, Fig. 6", worlds="grids")
def decoded_maps(run: RunData) -> Iterator[Declared]:
    """The stored maps of a run, each with the state to which it belongs.

    Raises:
        ValueError: the stored maps are invalid.
    """
    stored = run.store.info().get(SOURCE)
    if stored is None:
        return
    try:
        stored_maps = [ShownMap.model_validate(shown_map) for shown_map in stored["maps"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{run.store.path} must hold sound maps of beliefs, but: {error}") from error
    episode_ids = run.store.episode_ids() & {shown_map.episode_id for shown_map in stored_maps}
    episodes = {episode.id: episode for episode in run.store.episodes(sorted(episode_ids))}
    steps = {identity: range(len(episode.steps)) for identity, episode in episodes.items()}
    maps = [shown_map for shown_map in stored_maps if shown_map.step in steps.get(shown_map.episode_id, ())]
    if maps:
        missing = len(stored_maps) - len(maps)
        above, sentence = _standing(run, maps[0].tags)
        if not above:
            yield Declared(anchor="decoded-maps", title="Decoded maps", paragraphs=(sentence,))
            return
        yield Declared(
            anchor="decoded-maps",
            title="Decoded maps beside the true grid",
            paragraphs=(
                sentence,
                RULE,
                *([TEXTS("decoded maps/gone", count=missing)] if missing else []),
            ),
            figures=[figure for shown_map in maps for figure in _pair(shown_map, episodes[shown_map.episode_id])],
            layout="maps",
            legend=_MAP_LEGEND,
        )


def _standing(run: RunData, tags: Mapping[str, Tag]) -> tuple[bool, str]:
    """Return whether a probe decodes walls better than from random networks of every kind, and the sentence
    about it.
    """
    point = ReadPoint(tags.get("site"), tags.get("layer"))
    rows = ProbeRows(run.probed).where(
        measure=AREA, head=tags.get("head"), scope=("general", None), reading=("natural", None), **{"class": "wall"}
    )
    rows = rows.where(**{TRAINED_ON: None}, cells=None).at(point)
    if tags.get("agent") is not None:
        rows = rows.where(agent=(tags["agent"], None))
    contrast = Contrast({"control": "none"}, RANDOM_NETWORKS, KEY)
    differences = contrasted(rows, [contrast], summarise, ("head", "class"))
    key: Key = {"measure": AREA, "class": "wall", "head": tags.get("head")}
    rivals = {kind: differences.get(key, less=kind) for kind in NETWORKS}
    if not (sentence := claim_in_words([("walls", rivals)], MADE)):
        return False, _UNKNOWN
    above = verdict(rivals) == "above"
    place = f"{probe_name(tags.get('head'))} at {point}"
    return above, TEXTS(f"decoded maps/{'shown' if above else 'not shown'}", place=place, sentence=sentence)


def _pair(shown_map: ShownMap, episode: Episode) -> Iterator[Figure]:
    """Yield the true grid of a state with its action, and the decoded map."""
    step, tags = episode.steps[shown_map.step], episode.world.tags
    grid = shown(episode.world.grid, step.state)
    later = [
        *(later_step.state for later_step in episode.steps[shown_map.step + 1 : shown_map.step + 2]),
        episode.final,
    ]
    action = "none" if step.action is None else Action(step.action).name
    condition = listed([f"{name} {number(tags[name])}" for name in ("size", "density") if name in tags])
    caption = f"Action {action}, {shown_map.verdict} ({condition}; step {shown_map.step} of {shown_map.episode_id})"
    wrong = [] if shown_map.verdict == names.VERDICTS[0] else [0]
    truth = picture(grid, [step.state.position, later[0].position], label=caption, wrong=wrong)
    outline = (grid.height, grid.width)
    frame = max(len(shown_map.lines), len(shown_map.lines[0]), *outline)
    yield Figure(framed(truth, outline, frame), caption=caption)
    agent = [] if shown_map.tags.get("agent") is None else [str(shown_map.tags["agent"])]
    probe = probe_name(shown_map.tags.get("head"), shown_map.tags.get("control", "none"))
    point = ReadPoint(shown_map.tags.get("site"), shown_map.tags.get("layer"))
    probe_caption = f"Decoded: {', '.join([*agent, probe, str(point)])}"
    yield Figure(map_picture(shown_map.lines, f"{probe_caption}; {caption}", outline=outline), caption=probe_caption)
