"""YAML of strangers: the scalars of the core schema of YAML 1.2, and one short error for everything else."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from families import long_after
from goalscope._ground.folder import package_text
from goalscope._ground.words import Catalogue
from goalscope._ground.yaml_text import MOST_VALUES, read_yaml_text, write_yaml
from goalscope.runs import Study

CORE: dict[str, Any] = {
    "~": None,
    "": None,
    "null": None,
    "true": True,
    "False": False,
    "7": 7,
    "-0": 0,
    "+12": 12,
    "0x1F": 31,
    "0o17": 15,
    "9223372036854775807": 2**63 - 1,
    "1e-3": 0.001,
    "1E5": 100000.0,
    ".5": 0.5,
    "-3.": -3.0,
    "0.05": 0.05,
    "2025-08-05": "2025-08-05",
    "2001-12-14t21:59:43.10-05:00": "2001-12-14t21:59:43.10-05:00",
    "=": "=",
    "<<": "<<",
    "y": "y",
    "n": "n",
    ".inf": ".inf",
    ".nan": ".nan",
    "1e": "1e",
    "module:Class": "module:Class",
    "12e": "12e",
    "1.2.3": "1.2.3",
    "'yes'": "yes",
    '"010"': "010",
}
TWICE_MEANT = [
    *("yes", "No", "ON", "off", "010", "-07", "08", "1_000", "0b11", "0x_f", "1:30", "190:20:30", "1_0.5", "1:30.5"),
]
BEYOND = {
    "a base-60 number": ("1" + ":1" * 300_000, "every version.*key 'seed'"),
    "digits": ("9" * 300_000, "64 bits.*key 'seed'"),
    "hexadecimal": ("0x" + "f" * 300_000, "64 bits.*key 'seed'"),
    "octal": ("0o" + "7" * 300_000, "64 bits.*key 'seed'"),
    "binary": ("0b" + "1" * 300_000, "every version.*key 'seed'"),
    "underscores": ("1" + "_" * 300_000, "every version.*key 'seed'"),
    "beyond 64 bits": (str(2**63), "64 bits"),
    "an exponent": ("1e" + "9" * 100_000, "finite.*key 'seed'"),
    "a long fraction": ("1" * 500_000 + ".5", "finite.*key 'seed'"),
    "a tag of bytes": ("!!binary QUFB", "without a tag.*key 'seed'"),
    "a tag of a set": ("!!set {a, b}", "without a tag"),
    "a tag of pairs": ("!!omap [a: 1]", "without a tag"),
    "a tag of Python": ("!!python/object/apply:os.system [true]", "without a tag"),
    "a tag of the text": ("! x", "without a tag"),
    "a tag of a number": ("!!int 1:1:1", "without a tag"),
    "a long tag": ("!" + "t" * 1_000_000 + " x", "without a tag|YAML"),
    "a long reference": ("*" + "t" * 1_000_000, "references.*key 'seed'"),
    "depth": ("[" * 50_000, "nested too deep"),
    "width": ("[" + "a," * (MOST_VALUES + 1) + "]", f"at most {MOST_VALUES} values"),
    "a long key": ("{? " + "k" * 1_000_000 + " : 1}", "at most 1024 characters"),
    "a list as a key": ("{[a]: 1}", "plain word"),
    "an escape beyond Unicode": ('"\\U00110000"', "at most .U0010FFFF, got more in line 2, column 10"),
    "an escape beyond 32 bits": ('"\\Uffffffff"', "at most .U0010FFFF, got more in line 2, column 10"),
    "half a surrogate pair": ('"\\ud800"', r"half a surrogate pair in line 2, column 7 \(key 'seed'\)"),
    "halves in the wrong order": ('"\\ude00\\ud83d"', "half a surrogate pair in line 2"),
    "a control character": ('"\x07"', r"U\+0007 in line 2, column 8"),
    "a control character in the last line": ("1\n\n\x00", r"U\+0000 in line 4, column 1"),
}


@pytest.mark.parametrize("text", CORE)
def test_scalars_are_those_of_the_core_schema(text: str) -> None:
    value = read_yaml_text(f"a: {text}\n", "it")["a"]
    assert value == CORE[text] and type(value) is type(CORE[text])


@pytest.mark.parametrize("text", TWICE_MEANT)
def test_what_versions_of_yaml_read_differently_is_for_the_author_to_say(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1, column 4 \(key 'a'\)"):
        read_yaml_text(f"a: {text}\n", "it")
    assert read_yaml_text(f"a: '{text}'\n", "it") == {"a": text}


@pytest.mark.parametrize("name", long_after(3, BEYOND))
def test_numbers_tags_and_sizes_are_bounded_and_told_in_short(name: str) -> None:
    text, says = BEYOND[name]
    started = time.process_time()
    with pytest.raises(ValueError, match=says) as caught:
        read_yaml_text(f"name: x\nseed: {text}\n", "it")
    assert len(str(caught.value)) < 800 and str(caught.value).isprintable()
    assert time.process_time() - started < 60


def test_escapes_of_json_are_characters() -> None:
    value = {"a \U0001f600": "é\U0001f600\U0010ffff"}
    assert read_yaml_text(json.dumps(value), "it") == value


def test_a_merge_key_is_a_key_like_others() -> None:
    assert read_yaml_text("<<: {a: 1}\nb: 2", "it") == {"<<": {"a": 1}, "b": 2}


@pytest.mark.parametrize(
    "text",
    long_after(
        2,
        [
            "\n".join(f"k{number}: 1" for number in range(20_000)),
            "worlds: [" + "{kind: x}," * 5_000 + "]",
            "worlds: [{kind: " + "g" * 1_000_000 + "}]",
            "agents: [{kind: " + "r" * 1_000_000 + "}]\nworlds: [{kind: grid, sizes: [7], densities: [0.5], count: 1}]",
            "? " + "k" * 1_000_000 + "\n: 1",
            "name: {" + "k" * 1_000 + ": {" + "j" * 1_000 + ": 1}}",
            "horizon: '" + "v" * 1_000_000 + "'",
        ],
    ),
)
def test_a_refusal_of_a_study_is_short(text: str) -> None:
    with pytest.raises(ValueError, match=r"valid study|it:") as caught:
        Study.parse(read_yaml_text(text, "it"))
    assert len(str(caught.value)) < 15_000


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from([*CORE, *TWICE_MEANT, "123e4567", "0o17"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc0:", max_size=3), inner, max_size=4),
    max_leaves=10,
)


@given(value=PLAIN, flow=st.booleans())
def test_what_is_written_is_read_again(value: Any, flow: bool) -> None:
    assert read_yaml_text(write_yaml(value, default_flow_style=flow), "it") == value


@pytest.mark.parametrize(
    "package",
    [
        "goalscope.agents",
        "goalscope.goals",
        "goalscope.goals.prediction",
        "goalscope.papers",
        "goalscope.report",
        "goalscope.verdict",
    ],
)
def test_a_catalogue_has_the_sentences_that_a_strict_reader_finds(package: str) -> None:
    """Which also refuses a key that stands twice."""
    strict = Catalogue(read_yaml_text(package_text(package, "texts.yaml"), package), package)
    catalogue = Catalogue.of_package(package)
    assert {key: catalogue.text(key) for key in catalogue.keys("")} == {
        key: strict.text(key) for key in strict.keys("")
    }
