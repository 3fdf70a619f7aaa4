"""The catalogues of sentences: every entry renders with planted values, and nothing is left in it that a code would."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from goalscope._ground import registry
from goalscope._ground.folder import package_text
from goalscope._ground.words import Catalogue
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.goals.finding import TEXTS as OF_FINDINGS
from goalscope.report.texts import TEXTS as OF_REPORTS
from goalscope.verdict.texts import TEXTS as OF_VERDICTS
from goalscope.verdict.texts import WORDED

CATALOGUES = {"goals": OF_FINDINGS, "report": OF_REPORTS, "verdict": OF_VERDICTS}


@pytest.mark.parametrize("room", CATALOGUES)
def test_every_sentence_renders_with_planted_values_and_refuses_a_missing_one(room: str) -> None:
    texts = CATALOGUES[room]
    for key in texts.keys(""):
        planted: dict[str, str | int] = {name: f"<{name}>" for name in texts.fields(key)}
        rendered = texts(key, **planted)
        assert all(str(value) in rendered for value in planted.values()), key
        assert "{" not in rendered and "  " not in rendered and rendered == rendered.strip(), key
        with pytest.raises(TypeError, match="surplus"):
            texts(key, **planted, surplus="x")
        for name in planted:
            with pytest.raises(TypeError, match=name):
                texts(key, **{other: value for other, value in planted.items() if other != name})


def test_the_catalogue_words_exactly_the_claims_that_come_with_goalscope() -> None:
    worded = {key.split("/")[1] for key in OF_VERDICTS.keys("claims")}
    assert worded == {name for name in registry.names("claim") if registry.built_in("claim", name)}
    for name in worded:
        assert {key.split("/")[2] for key in OF_VERDICTS.keys(f"claims/{name}")} == {*WORDED}


@pytest.mark.parametrize("name", sorted({key.split("/")[1] for key in OF_VERDICTS.keys("claims")}))
def test_a_threshold_that_a_claim_states_is_the_one_that_decides(name: str) -> None:
    rule = registry.resolve("claim", name)
    for part in ("yes", "no"):
        template = OF_VERDICTS.text(f"claims/{name}/{part}")
        text = getattr(rule, part)
        if "{threshold}" in template:
            assert f"{rule.threshold:g}" in text
        if "{percent}" in template:
            assert f"{100 * rule.threshold:.3g} %" in text
        assert not re.search(r"\{(?!(?:names|goal)\})", text)


@pytest.mark.parametrize("room", CATALOGUES)
def test_no_sentence_begins_or_ends_with_a_blank_which_reading_would_drop(room: str) -> None:
    def leaves(entries: Mapping[str, Any]) -> Iterator[str]:
        for value in entries.values():
            yield from leaves(value) if isinstance(value, Mapping) else (value,)

    raw = read_yaml_text(package_text(f"goalscope.{room}", "texts.yaml"), room)
    assert all(text == text.strip() for text in leaves(raw))


def test_keys_and_leaves_are_checked() -> None:
    texts = Catalogue({"a": {"b": "one {field}"}}, "planted")
    assert texts("a/b", field=3) == "one 3"
    assert texts.keys("a") == ["a/b"] and not texts.has("a/c")
    with pytest.raises(KeyError, match="a/c"):
        texts("a/c")
    with pytest.raises(TypeError, match="a/b"):
        Catalogue({"a": {"b": 3}}, "planted")
