"""The border of distrust: what is sound passes unchanged, everything else is one error that names what is wrong."""

import json
import math
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from goalscope._ground.ids import canonical_json
from goalscope._ground.sealed import SealedRecord, seal, unseal
from goalscope._ground.untrusted import (
    MOST_DEPTH,
    UntrustedError,
    decode_json,
    decode_object,
    explain,
    faults,
    printable,
    shorten,
)
from goalscope._ground.yaml_text import read_yaml_text

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # half of a surrogate pair has no UTF-8 form
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(value=PLAIN, strict=st.booleans())
def test_sound_json_is_read_as_it_was_written(value: Any, strict: bool) -> None:
    assert decode_json(canonical_json(value), strict=strict) == value
    assert decode_json(b"\xef\xbb\xbf" + json.dumps(value, ensure_ascii=False).encode(), strict=strict) == value


@given(octets=st.binary(max_size=60), strict=st.booleans(), finite=st.booleans())
def test_any_bytes_are_a_value_or_one_error(octets: bytes, strict: bool, finite: bool) -> None:
    try:
        decode_json(octets, strict=strict, finite=finite)
    except UntrustedError as error:
        assert error.must and printable(str(error)).isprintable()


ALWAYS_REFUSED: dict[str, tuple[bytes | str, str]] = {
    "a key twice": ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' twice"),
    "cut": ('{"a": 1', "valid JSON"),
    "empty": (" \n", "an empty file"),
    "a zero byte": (b'"\x00"', "binary data"),
    "UTF-16": ('"a"'.encode("utf-16"), "UTF-8"),
    "Latin-1": (b'"\xe9"', "byte 0xe9"),
    "endless digits": ("9" * 5000, "64 bits|digits"),
    "bottomless": ("[" * 100_000, "nested"),
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", ALWAYS_REFUSED)
def test_what_is_unsound_is_refused(name: str, strict: bool) -> None:
    data, words = ALWAYS_REFUSED[name]
    with pytest.raises(UntrustedError, match=words):
        decode_json(data, strict=strict)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1e999]", "finite"),
        (str(2**63), "64 bits"),
        ('"\\ud800"', "surrogate"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "nested at most"),
    ],
)
def test_strict_reading_refuses_what_no_episode_can_hold(text: str, words: str) -> None:
    with pytest.raises(UntrustedError, match=words):
        decode_json(text)
    decode_json(text, strict=False)


def test_constants_that_are_no_json_are_read_where_they_are_allowed_alone() -> None:
    for name in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(UntrustedError, match="finite"):
            decode_json(f"[{name}]", strict=False)
        assert not math.isfinite(decode_json(f"[{name}]", finite=False)[0])


def test_an_object_is_asked_for_and_nothing_else_passes() -> None:
    assert decode_object('{"a": 1}') == {"a": 1}
    for other in ("[]", "1", "null", '"text"'):
        with pytest.raises(UntrustedError, match="an object"):
            decode_object(other)


def test_yaml_with_a_repeated_key_or_a_reference_is_refused() -> None:
    assert read_yaml_text("a: [1, x]", "it") == {"a": [1, "x"]}
    for text, words in (
        ("a: 1\na: 2", "'a' stands in line 1"),
        ("a: &x 1\nb: *x", r"\*x"),
        ("a: !!python/name:os x", "without a tag"),
    ):
        with pytest.raises(ValueError, match=words):
            read_yaml_text(text, "it")


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    count: int
    tag: str | int | None = None


def test_errors_of_a_record_are_one_line_each_with_place_and_near_miss() -> None:
    with pytest.raises(ValidationError) as caught:
        Record.model_validate({"cuont": 1, "tag": [1]})
    found = {fault.where: (fault.must, fault.given) for fault in faults(caught.value, {"": ("count", "tag")})}
    assert set(found) == {"count", "cuont", "tag"}
    assert "did you mean count?" in found["cuont"][0]
    assert found["tag"] == ("must be a text or a whole number", "[1]")
    lines = explain(caught.value, {"": ("count", "tag")}, "x.yaml", "record").splitlines()
    assert lines[0] == "x.yaml is not a valid record:" and len(lines) == 4


def test_what_is_shown_of_a_value_is_short_and_obeyed_by_no_terminal() -> None:
    assert shorten("\x1b[2J") == "'\\x1b[2J'"
    assert shorten(list(range(1000))) == "a list of 1000 entries"
    assert len(shorten("x" * 10**6)) < 300 and len(shorten(["x" * 10**6])) < 400


class _Listed(SealedRecord):
    what: ClassVar[str] = "list"
    advice: ClassVar[str] = "write it again"
    longest: ClassVar[int] = 3
    version: Literal[1] = 1
    names: tuple[str, ...]


def test_a_list_with_too_many_entries_is_refused_before_each_is_checked() -> None:
    assert unseal(_Listed, seal(_Listed(names=("a", "b", "c")))).names == ("a", "b", "c")
    with pytest.raises(ValueError, match=r"names.*at most 3.*4") as caught:
        unseal(_Listed, '{"version": 1, "names": [1, 2, 3, 4]}', edited=True)
    assert not isinstance(caught.value, ValidationError)


def test_a_file_with_too_many_values_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope._ground.sealed._MOST_VALUES", 3)
    monkeypatch.setattr("goalscope._ground.sealed.decode_object", None)
    with pytest.raises(ValueError, match=r"at most 3 values, got up to 7"):
        unseal(_Listed, '{"names": [[], [], [')
