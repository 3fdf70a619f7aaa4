"""The parser never crashes and never returns an action that the answer did not state."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families import examples, long_after
from goalscope.agents import parse_action
from goalscope.agents.parse import FAILURES
from goalscope.worlds import ACTIONS, Action

STATED = {
    '{"action": "UP"}': Action.UP,
    '{"action": "DOWN",}': Action.DOWN,
    "{'action': 'left'}": Action.LEFT,
    "{action: RIGHT}": Action.RIGHT,
    '```json\n{"action": "UP"}\n```': Action.UP,
    'I go up.\n{"action": "UP"}\nThank you.': Action.UP,
    '{"action": "UP"} {"action": "up"}': Action.UP,
    '{"thought": "the goal is above", "action": "UP"}': Action.UP,
    '{{"action": "LEFT"}}': Action.LEFT,
    'So: { {"action": "LEFT"} }': Action.LEFT,
    '[0, 1] is next. {"action": "LEFT"}': Action.LEFT,
    '[[still open {"action": "LEFT"}': Action.LEFT,
    'So: {"path": ["UP", {"to": [1, 2]}], "action": "UP"}': Action.UP,
    "So: {thought: the goal: above, action: UP,}": Action.UP,
    '{"action": "\\u0055P"}': Action.UP,
    '{"Action": " Down "}': Action.DOWN,
    'So: {"thought": "a } b", "action": "UP"}': Action.UP,
    "I'm sure: {thought: I'm near, action: UP} that's it": Action.UP,
}

FAILED = {
    "": "empty",
    " \n\t ": "empty",
    "UP": "no JSON",
    "action: UP": "no JSON",
    'the key "action": "UP" outside of an object': "no JSON",
    '{"reaction": "UP"}': "no JSON",
    '{"last-action": "UP"} and so on': "no JSON",
    "{}": "no JSON",
    '{"": 1, {"action": "UP"}}': "no JSON",
    "{' ': 1, {{action: UP}}}": "no JSON",
    '{"action": "UP", {"action": "UP"}}': "no JSON",
    '{"action": "U': "truncated",
    '{"action": "UP"': "truncated",
    '{"act': "truncated",
    '{"action": "UP"} or rather {"action": "DO': "truncated",
    '{"action": "<UP|DOWN|LEFT|RIGHT>"}': "unknown action",
    '{"action": "JUMP"}': "unknown action",
    '{"action": 0}': "unknown action",
    '{"action": null}': "unknown action",
    '{"action": ["UP"]}': "unknown action",
    '{"action": "r\u0131ght"}': "unknown action",
    '{"action": "\uff35\uff30"}': "unknown action",
    '{"action": ' + "9" * 5000 + "}": "unknown action",
    '{"action": "UP"} {"action": "DOWN"}': "two different actions",
    '{"action": "UP", "action": "DOWN"}': "two different actions",
    '{"action": "UP", "plan": {"action": "DOWN"}}': "two different actions",
    '{"action": "UP"} {"action": "JUMP"}': "two different actions",
    'So: {"act\\u0069on": "UP"} {"action": "DOWN"}': "two different actions",
    'So: {"action": {"action": "UP"}}': "two different actions",
    "So: {\"note\": \"never 'action': 'UP'\"}": "no JSON",
    "{'note': 'never \"action\": \"UP\"'}": "no JSON",
    "{action: UP or DOWN}": "unknown action",
    '{"action": "UP" or "DOWN"}': "unknown action",
    '{"action": "not UP"}': "unknown action",
    "{action: not UP}": "unknown action",
    "{action: !UP}": "unknown action",
    # An action that is denied, or that is a part of something else, is stated by nobody.
    "{do not action: UP}": "no JSON",
    "{do not, action: UP}": "no JSON",
    "{never: do, not action: UP}": "no JSON",
    "{not 'action': 'UP'}": "no JSON",
    "{!action: UP}": "no JSON",
    "{avoid: action: UP}": "no JSON",
    '{"bad" "action":"UP"}': "no JSON",
    '{"bad", "action":"UP"}': "no JSON",
    '{"avoid": "this" "action": "UP"}': "no JSON",
    '{"avoid": {"action": "UP"}}': "no JSON",
    'So: {"avoid": {"action": "UP"}}': "no JSON",
    "So: {avoid {action: UP}}": "no JSON",
    'So: {{"action": "UP"} "is wrong"}': "no JSON",
    'So: {{"action": "UP"}, "is": "wrong"}': "no JSON",
    '{"answer": {"action": "LEFT"}}': "no JSON",
    '{"avoid": [{"action": "UP"}]}': "no JSON",
    'So: {"avoid": ["action": "UP"]}': "no JSON",
    '[{"action": "UP"}]': "no JSON",
    '["never", {"action": "UP"}]': "no JSON",
    'Bad moves: [{"action": "UP"}, {"action": "UP"}]': "no JSON",
    '{"avoid": {"action": "UP"}} {"action": "DOWN"}': "two different actions",
    "{do not action: UP} {action: DOWN}": "two different actions",
}


@pytest.mark.parametrize("text", STATED)
def test_a_stated_action_is_read(text: str) -> None:
    assert parse_action(text).action is STATED[text]


@pytest.mark.parametrize("text", [text for text, failure in FAILED.items() if failure])
def test_a_failure_has_its_name(text: str) -> None:
    parsed = parse_action(text)
    assert parsed.action is None
    assert parsed.failure == FAILED[text]


def test_an_answer_cut_off_at_the_token_limit_is_truncated() -> None:
    assert parse_action("I think", truncated=True).failure == "truncated"
    assert parse_action("", truncated=True).failure == "truncated"
    assert parse_action('{"action": "UP"}', truncated=True).action is Action.UP


def stated_words(text: str) -> set[str]:
    """Every action word that stands in the text at all, escapes of JSON undone."""
    plain = text + text.encode("ascii", "ignore").decode("unicode_escape", "ignore")
    return {action.name for action in ACTIONS if action.name in plain.upper()}


noise = st.text(max_size=60)
fragments = st.sampled_from(
    ["{", "}", '"action"', ":", '"UP"', '"down"', "LEFT", "'", '"', ",", "action", "[", "]", "\\", "\x1b[31m", "\x00"]
)
hostile = st.one_of(
    noise,
    st.lists(fragments, max_size=25).map("".join),
    st.lists(st.one_of(fragments, noise), max_size=12).map(" ".join),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), noise, st.sampled_from(["UP", "DOWN", "up"])),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["action", "a", "Action "]), inner, max_size=3)
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value)),
    st.sampled_from(["<script>alert(1)</script>", "[red]UP[/red]", '=HYPERLINK("x")']),
)


KEYS = st.sampled_from(["avoid", "not", "plan", "a"])
OTHERS = st.recursive(
    st.sampled_from(["x", "UP", 1, None]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(KEYS, st.just("action")), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=examples(150), deadline=None)
@given(members=st.dictionaries(KEYS, OTHERS, max_size=3), around=st.sampled_from(["", "So: ", "```json\n"]))
def test_an_object_without_the_key_of_its_own_states_nothing(members: dict[str, Any], around: str) -> None:
    assert parse_action(f"{around}{json.dumps(members)}").failure == "no JSON"
    assert parse_action(f"{around}{json.dumps([members, {'action': 'UP'}])}").action is None


@settings(max_examples=examples(150), deadline=None)
@given(before=st.text(alphabet="ab_ :'\"-!", min_size=1), quote=st.sampled_from(["", "'", '"']))
def test_what_stands_before_the_key_in_its_member_takes_its_meaning(before: str, quote: str) -> None:
    answer = f"{{{before}{quote}action{quote}: UP}}"
    assert (parse_action(answer).action is None) == bool(before.strip())


@settings(max_examples=examples(300), deadline=None)
@given(text=hostile, truncated=st.booleans())
def test_hostile_answers_never_crash_and_never_become_an_action_not_stated(text: str, truncated: bool) -> None:
    parsed = parse_action(text, truncated=truncated)
    assert (parsed.action is None) != (parsed.failure is None)
    if parsed.action is not None:
        assert parsed.action.name in stated_words(text)
    else:
        assert parsed.failure in FAILURES


@pytest.mark.parametrize(
    "text",
    long_after(
        2,
        [
            "{" * 300_000,
            '{"a":' * 60_000,
            '{"a":' * 60_000 + '"b"' + "}" * 60_000,
            '"action":' * 30_000,
            '{"action":' + " " * 300_000,
            "action" + "'" * 300_000,
            '{"' + '\\"' * 150_000,
            "{'" + "\"\\'" * 100_000,
            "{action:" * 30_000,
            "\x1b[2J" * 60_000,
        ],
    ),
    ids=["braces", "nested", "closed", "keys", "blanks", "quotes", "unclosed", "mixed", "open", "escapes"],
)
def test_hundreds_of_kilobytes_are_read_and_state_nothing(text: str) -> None:
    # Work that grows with the square of the length would take minutes here.
    assert parse_action(text).failure in FAILURES
