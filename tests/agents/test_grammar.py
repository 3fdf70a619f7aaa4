"""Two parsers of answers, one written from the grammar of the other, say the same of any text, and invent nothing."""

import json
import random
import re

import pytest
from second_parser import verdict
from test_parse import FAILED, STATED

from goalscope.agents import parse_action
from goalscope.agents.parse import MOVES

PIECES = (
    *("{", "}", "{", "}", "[", "]", ":", ",", '"', "'", "\\", " ", "\n", "\\n", "\u00a0"),
    *("action", "Action", '"action"', "'action'", "action:", '"action":', " action ", '"act\\u0069on"', "reaction"),
    *(
        "UP",
        '"UP"',
        "'up'",
        "DOWN",
        '"down"',
        "LEFT",
        "\uff35\uff30",
        "JUMP",
        "not",
        "do not",
        "!",
        "never",
        "avoid",
        "I'm",
    ),
    *(
        '{"action": "UP"}',
        "{'action': 'left'}",
        '"plan":',
        '"a": [1, {"b": 2}],',
        "null",
        "1.5",
        '""',
        "```json\n",
        "```",
    ),
    *('{"action": "UP", ', '"": 1', "\x00", "\u0131", "\ud800", "x-action", '{"avoid": {"action": "UP"}}', "[1]", "é"),
)
SOUND = [*STATED, *FAILED]


def text_of(draw: random.Random) -> str:
    """A text of pieces, or a known answer with a few changes."""
    if draw.random() < 0.5:
        return "".join(draw.choices(PIECES, k=draw.randint(1, 14)))
    letters = list(draw.choice(SOUND)[:200])
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(letters))
        letters[at : at + draw.randint(0, 2)] = draw.choice((draw.choice(PIECES), ""))
    return "".join(letters)


def compare(texts: int, seed: int) -> None:
    draw, actions = random.Random(seed), 0
    for number in range(texts):
        text, cut = text_of(draw), draw.random() < 0.1
        parsed = parse_action(text, truncated=cut)
        found = parsed.failure if parsed.action is None else parsed.action.name
        assert found == verdict(text, MOVES, truncated=cut), (number, text)
        if parsed.action is not None:
            actions += 1
            undone = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
            assert parsed.action.name in undone.upper(), (number, text)
    assert actions > texts / 50, "texts that state an action must be among them"


@pytest.mark.parametrize("text", SOUND)
def test_the_second_parser_reads_known_answers_as_the_first(text: str) -> None:
    parsed = parse_action(text)
    assert (parsed.failure if parsed.action is None else parsed.action.name) == verdict(text, MOVES)


def test_both_parsers_say_the_same_of_a_thousand_texts() -> None:
    compare(1_000, seed=1)


@pytest.mark.full
def test_both_parsers_say_the_same_of_a_hundred_thousand_texts() -> None:
    compare(100_000, seed=2)


def test_what_is_negated_quoted_or_nested_is_no_action() -> None:
    """An action that is negated, quoted or nested is none, whatever stands around it."""
    draw = random.Random(3)
    for _ in range(300):
        stated = json.dumps({"action": draw.choice(MOVES)})
        around = draw.choice(
            (
                '{{"avoid": {}}}',
                "[{}]",
                '{{"plan": [{}]}}',
                "{{not {}}}",
                '{{"a": 1, "b": {{"c": {}}}}}',
                "{{avoid: 1, {}}}",
                "{{{}, wrong}}",
            )
        )
        for before in ("", "So: ", "```json\n"):
            assert parse_action(before + around.format(stated)).action is None, (before, around, stated)
