"""Whatever a model says: no crash, no action that was not stated, and no terminal or page that obeys it."""

import contextlib
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server import Loopback, speaker
from typer.testing import CliRunner

from goalscope.agents import ChatAgent, parse_action
from goalscope.agents.models import Message, Reply, Request, Sampling
from goalscope.agents.parse import FAILURES
from goalscope.cli import app
from goalscope.cli.console import fail, guarded, safe, say, table
from goalscope.runs import Store, Study, export_parquet, run
from goalscope.worlds import Action

NAMES = tuple(action.name for action in Action)
MEGABYTE = 1_000_000

# Text of any code point, half surrogates included, and what is made to confuse a parser, a terminal or a page.
noise = st.text(st.characters(), max_size=40)
fragments = st.sampled_from(
    [
        *("{", "}", "[", "]", ":", ",", '"', "'", "\\", '\\"', "`", "\n", " ", "\u00a0", "```json\n"),
        *(
            '"action"',
            "'action'",
            "action",
            '"ACTION "',
            '"act\\u0069on"',
            '"reaction"',
            '"last-action"',
            "\u0430ction",
        ),
        *(
            '"UP"',
            "'DOWN'",
            "LEFT",
            '"right"',
            '" Up\\t"',
            '"\\u0055P"',
            "U\u0420",
            '"UP or DOWN"',
            "null",
            "0",
            "-0.0",
        ),
        *('{"action": "UP"}', '{"action": "DOWN"}', "{'action': 'LEFT'}", "{action: RIGHT}", '{"action": ["UP"]}'),
        *(
            '{"note": "say \\"action\\": \\"UP\\""}',
            "{\"note\": \"'action': 'DOWN'\"}",
            '{"action": "UP", "action": "LEFT"}',
        ),
        *(
            "9" * 5000,
            "1e999",
            "-Infinity",
            "NaN",
            "\ufeff",
            "\u200f",
            "\u202e",
            "\u2066",
            "\u2028",
            "\u200b",
            "\ud800",
        ),
        *("\x00", "\x07", "\x08", "\r", "\x1b[31m", "\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "\x7f", "\x85"),
        *(
            "<script>alert(1)</script>",
            "</script>",
            "<img src=x onerror=alert(1)>",
            "&lt;",
            "[red]x[/red]",
            "[link=http://x]",
        ),
        *(
            "<|channel|>final<|message|>",
            "<|return|>",
            "</think>",
            "{{grid}}",
            "{% raw %}",
            '=HYPERLINK("x")',
            "@SUM(1)",
        ),
    ]
)
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), noise, st.sampled_from([*NAMES, "up", " Left "])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(["action", "Action ", "a"]), noise), inner, max_size=3),
    ),
    max_leaves=10,
).map(json.dumps)
short = st.one_of(
    noise,
    st.lists(fragments, max_size=20).map("".join),
    st.lists(st.one_of(fragments, noise, documents), max_size=8).map(" ".join),
    documents,
    st.tuples(st.integers(1, 3000), documents).map(lambda pair: '{"a":' * pair[0] + pair[1] + "}" * pair[0]),
)
# One in two hundred is said again and again, up to a megabyte.
outputs = st.tuples(short, st.sampled_from(range(200))).map(
    lambda pair: (pair[0] * (MEGABYTE // len(pair[0])))[:MEGABYTE] if pair[1] == 57 and pair[0] else pair[0]
)


def walked(text: str) -> tuple[set[str], set[str]] | None:
    """Values of the keys ``action`` of an answer that is one JSON object: its own, and all; None where it is none."""
    try:
        whole = json.loads(text, object_pairs_hook=lambda pairs: ("object", pairs))
    except (ValueError, RecursionError):
        return None
    if not (isinstance(whole, tuple) and whole[0] == "object"):
        return None
    own, found, waiting = set[str](), set[str](), [whole]
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            for key, inner in value[1]:
                waiting.append(inner)
                if key.strip().lower() == "action":
                    said = inner.strip().upper() if isinstance(inner, str) and inner.strip().isascii() else "other"
                    found.add(said)
                    own |= {said} if value is whole else set()
        elif isinstance(value, list):
            waiting.extend(value)
    return own, found


def readable(text: str) -> set[str]:
    """Every action behind the word action and a colon, with a brace before and one after: letter by letter."""
    plain = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
    found = set()
    for version in (text, plain):
        lower = version.lower() if len(version.lower()) == len(version) else "".join(map(ascii_lower, version))
        at = lower.find("action", version.find("{") + 1) if "{" in version else -1
        while at >= 0:
            rest = re.sub(r"\\[tnrf]", " ", lower[at + 6 : at + 60])
            after = rest.lstrip(" \t\r\n\"'" + "".join(filter(str.isspace, map(chr, range(0x3001)))))
            value = after[1:].strip().lstrip("\"'").strip() if after.startswith(":") else ""
            found |= {name for name in NAMES if value.startswith(name.lower()) and "}" in version[at:]}
            at = lower.find("action", at + 1)
    return found


def ascii_lower(letter: str) -> str:
    return letter.lower() if letter.isascii() else letter


def check_parsed(text: str) -> None:
    for truncated in (False, True):
        parsed = parse_action(text, truncated=truncated)
        assert (parsed.action is None) != (parsed.failure is None)
        assert parsed.failure is None or parsed.failure in FAILURES
        stated = walked(text.strip())
        if stated is not None:
            own, found = stated
            expected = next(iter(own)) if own and len(found) == 1 else "none"
            assert (parsed.action.name if parsed.action is not None else "none") == (
                expected if expected in NAMES else "none"
            )
        elif parsed.action is not None:
            assert parsed.action.name in readable(text)


def check_shown(text: str) -> None:
    """No letter that a terminal obeys passes any of the ways to it."""
    # Megabytes take the same way letter by letter; their beginning is enough for the table and the error.
    assert all(letter.isprintable() or unicodedata.category(letter) == "Zs" for letter in safe(text))
    written, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(errors):
        say(text[:2000])
        fail(text[:2000], title="Stopped")
        table(("answer",), [(text[:2000],)], title=text[:200])
        with pytest.raises(typer.Exit), guarded([]):
            raising(text[:2000])
    for letter in set(written.getvalue() + errors.getvalue()) - {"\n"}:
        assert letter.isprintable() or unicodedata.category(letter) == "Zs", hex(ord(letter))


def raising(text: str) -> None:
    raise ValueError(f"an answer must be an action, got {text}")


def hostile(count: int, texts: st.SearchStrategy[str]) -> list[str]:
    """Check so many outputs one by one, and return them."""
    seen: list[str] = []

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(text=texts)
    def check(text: str) -> None:
        seen.append(text)
        check_parsed(text)
        check_shown(text)

    check()
    return seen


class Speaker:
    """A model that says what it is told, in its answer and in its reasoning."""

    name = '<b>\x1b[31m\u202e[red]x[/red]=HYPERLINK("x")'

    def __init__(self, said: Sequence[str]) -> None:
        self.said = said
        self.count = 0

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "speaker"}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> None:
        return None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        self.count += len(requests)
        begin = self.count - len(requests)
        texts = [self.said[(begin + index) % len(self.said)] for index in range(len(requests))]
        return [Reply.of(text, reasoning=text[::-1], raw=text) for text in texts]


class Page(HTMLParser):
    """Every element of a page with the names of its attributes, and how often."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[tuple[str, ...]] = Counter()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found[(tag, *(name for name, _ in attributes))] += 1


def tamed(text: str) -> str:
    """A harmless answer that is read as the hostile one is: the same action, or the same failure."""
    parsed = parse_action(text)
    return f'{{"action": "{parsed.action.name}"}}' if parsed.action is not None else TAME[str(parsed.failure)]


TAME = {
    "no JSON": "none",
    "markers": "</think>",
    "two different actions": '{"action": "UP"} {"action": "DOWN"}',
    "unknown action": '{"action": "JUMP"}',
    "empty": "",
    "truncated": '{"action": ',
}


def report_of(directory: Path, said: Sequence[str]) -> tuple[str, str, int]:
    """Run a study with a model that says all this, through every command; return page, terminal output and steps."""
    turns = max(1, -(-len(said) // 24))
    study = Study.parse(
        {
            "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.0, 1.0], "count": 2}],
            "agents": [{"kind": "optimal"}],
            "trajectories": turns,
            "horizon": {"steps": 12},
        }
    )
    model = Speaker(said)
    run(study, directory, agents=[ChatAgent(model=model), *study.agents()])
    shown = ""
    for words in (["measure"], ["compare"], ["report"], ["export", "--out", str(directory / "tables")]):
        result = CliRunner().invoke(app, [words[0], str(directory), *words[1:]])
        assert result.exit_code == 0, result.output
        shown += result.output
    return (directory / "report.html").read_text(encoding="utf-8"), shown, model.count


def check_surfaces(texts: Sequence[str], folder: Path) -> None:
    """What is stored of hostile outputs stays what it is, and neither terminal nor page obeys any of it."""
    import pyarrow.parquet

    said = [text for text in texts if len(text) < 10_000] + [text for text in texts if len(text) >= 10_000][:3]
    page, shown, steps = report_of(folder / "hostile", said)
    assert steps >= len(said), "every output was said"
    # The same episodes, move by move, said harmlessly: whatever the page shows of them, it shows in the same elements.
    harmless, _, _ = report_of(folder / "harmless", [tamed(text) for text in said])
    found, expected = Page(page).found, Page(harmless).found
    assert (found - expected, expected - found) == ({}, {}), "hostile text adds neither an element nor an attribute"
    for text in (page, shown):
        hidden = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs")} - {"\n", "\t"}
        assert not hidden
    with Store(folder / "hostile") as store:
        stored = [step.text for episode in store.episodes() for step in episode.steps if step.reasoning is not None]
        assert set(stored) == set(said), "stored letter by letter"
        export_parquet(store, folder / "again")
    column = pyarrow.parquet.read_table(folder / "hostile" / "tables" / "steps.parquet")["text"].to_pylist()
    assert {text for text in column if text is not None} == {
        text.encode("utf-8", "replace").decode() for text in stored if text is not None
    }


def test_hostile_outputs() -> None:
    assert len(hostile(300, short)) >= 300


def test_every_failure_has_a_harmless_answer() -> None:
    assert {name: parse_action(text, truncated=name == "truncated").failure for name, text in TAME.items()} == {
        name: name for name in FAILURES
    }


@pytest.mark.full
def test_ten_thousand_hostile_outputs(tmp_path: Path) -> None:
    texts = hostile(10_000, outputs)
    assert len(texts) >= 10_000
    together = "".join(text for text in texts if len(text) < 10_000)
    for letter in "\x00\x1b\ufeff\u202e\u200f\ud800\u2028\x9b":
        assert letter in together, "the outputs hold all that they are said to hold"
    assert sum(len(text) == MEGABYTE for text in texts) > 3
    read = [parse_action(text, truncated=truncated) for text in texts for truncated in (False, True)]
    assert {parsed.action for parsed in read} == {None, *Action}
    assert {parsed.failure for parsed in read} == {None, *FAILURES}
    check_surfaces(texts, tmp_path)


# What comes between statements: nothing that opens or closes an object or an array, or names an action.
between = st.text(st.characters(), max_size=20).filter(lambda text: not set(text) & set("{}[]"))
STATEMENTS = (
    '{{"action": "{}"}}',
    "{{'action': '{}'}}",
    "{{action: {}}}",
    '{{"Action" : " {} ",}}',
    '{{"plan": ["a", {{"b": "}}"}}], "action": "{}"}}',
    '{{"answer": {{"why": "it\'s near"}}, "action": "{}"}}',
    '{{"note": "never \'action\': \'UP\'", "action": "{}"}}',
)


@given(
    said=st.lists(st.tuples(between, st.sampled_from(STATEMENTS), st.sampled_from([*NAMES, "jump"])), max_size=4),
    last=between,
)
def test_what_is_stated_is_what_is_read(said: list[tuple[str, str, str]], last: str) -> None:
    text = "".join(before + form.format(action) for before, form, action in said) + last
    stated = {action for _, _, action in said}
    parsed = parse_action(text)
    if len(stated) == 1:
        (only,) = stated
        assert parsed.action is (Action[only] if only in NAMES else None)
        assert parsed.failure == (None if only in NAMES else "unknown action")
    else:
        wanted = "two different actions" if stated else "no JSON" if text.strip() else "empty"
        assert (parsed.action, parsed.failure) == (None, wanted)


@pytest.mark.parametrize("status", [400, 403, 500])
def test_what_a_server_says_in_an_error_is_shown_and_not_obeyed(status: int, tmp_path: Path) -> None:
    words = "\x1b[31mno\x07\u202e<script>[red]\x9b2J"
    task = tmp_path / "template.txt"
    task.write_text("{{grid}}")
    error = {"error": {"message": words, "type": words, "code": words}}
    with Loopback(speaker(), refusal=(status, error)) as server:
        study = {
            "worlds": [{"kind": "grid", "sizes": [5], "densities": [0.0], "count": 1}],
            "agents": [
                {
                    "kind": "chat",
                    "model": "speaker",
                    "task": str(task),
                    "server": {
                        "base_url": server.url,
                        "retries": 1,
                        "backoff": 0.01,
                        "patience": 1,
                        "preflight": False,
                    },
                }
            ],
        }
        path = tmp_path / "study.yaml"
        path.write_text(json.dumps(study))
        result = CliRunner().invoke(app, ["run", str(path), "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "\\x1b[31mno" in result.output
    assert not set(result.output) & set("\x1b\x07\u202e\x9b")
