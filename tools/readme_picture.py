"""Draw the picture of the README: an agent that walks through its world, with the verdict beside it.

Run ``python -m tools.readme_picture EVALUATION OUT.svg`` on a directory that ``goalscope evaluate`` has written. The
picture shows the worst of the episodes on the page, and the answers of its tiles.
"""

import re
import sys
import textwrap
from html import escape
from pathlib import Path

from goalscope.verdict import judging
from goalscope.verdict.page import episodes_of, tiles_of

SECONDS_PER_MOVE = 0.35
WIDTH, HEIGHT, SCALE = 860, 300, 1.25


def draw(directory: Path) -> str:
    """Return the picture of an evaluation's first model as an animated SVG."""
    with judging.reopened(directory) as (_, evaluation, runs):
        ledger = evaluation.models[0]
        section = episodes_of(ledger, runs)
        if section is None:
            raise ValueError(f"no episode of {directory} can be drawn")
        figure = section.figures[-1]
        tiles, model = tiles_of(ledger), ledger.model
    world = re.sub(r"^<svg[^>]*>|</svg>$", "", figure.drawn.svg.strip())
    world = re.sub(r"<title>.*?</title>", "", world)
    size = [float(number) for number in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', figure.drawn.svg)[0]]
    moves = [record for record in figure.drawn.records if record["what"] == "step"]
    points = [(20 * int(str(move["column"])) + 10, 20 * int(str(move["row"])) + 10) for move in moves]
    path = "M" + " L".join(f"{x} {y}" for x, y in points)
    seconds = SECONDS_PER_MOVE * len(points)
    left = 40 + size[0] * SCALE + 40
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'font-family="system-ui, sans-serif"><title>{escape(model)} in a grid world, and its verdict</title>',
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10" fill="#fff" stroke="#d0d7de"/>',
            f'<g transform="translate(40 {(HEIGHT - size[1] * SCALE) / 2:g}) scale({SCALE})">{world}',
            f'<circle r="6" fill="#d9480f" stroke="#fff" stroke-width="1.5"><animateMotion path="{path}" '
            f'dur="{seconds + 1.5:g}s" keyPoints="0;1;1" keyTimes="0;{seconds / (seconds + 1.5):.3f};1" '
            'calcMode="linear" repeatCount="indefinite"/></circle></g>',
            *_texts(model, tiles, left),
            "</svg>\n",
        ]
    )


def _texts(model: str, tiles: list[tuple[str, str, str]], left: float) -> list[str]:
    elements = [
        f'<text x="{left:g}" y="48" font-size="22" font-weight="700" fill="#1f2328">Is {escape(model)} '
        "goal-directed?</text>"
    ]
    top = 84
    for label, large, small in tiles:
        elements.append(f'<text x="{left:g}" y="{top}" font-size="13" fill="#57606a">{escape(label)}</text>')
        elements.append(
            f'<text x="{left:g}" y="{top + 25}" font-size="21" font-weight="600" fill="#0b5fa5">{escape(large)}</text>'
        )
        for number, line in enumerate(textwrap.wrap(small, 62)[:2]):
            y = top + 44 + 16 * number
            elements.append(f'<text x="{left:g}" y="{y}" font-size="13" fill="#57606a">{escape(line)}</text>')
        top += 72
    return elements


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(Path(sys.argv[1])), encoding="utf-8")
