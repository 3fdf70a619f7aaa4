"""SECURITY.md states the limits that are applied."""

from pathlib import Path

import pytest

from goalscope._ground import archives, folder, sealed, untrusted, yaml_text
from goalscope.agents.models import folders, loading, weight_files
from goalscope.integrations.inspect_ai import formats
from goalscope.report import exports
from goalscope.runs import tables
from goalscope.worlds import grid
from goalscope.worlds.environments import stored

PAGE = " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8").split())
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def octets(count: int) -> str:
    """Write a number of bytes as the page does."""
    unit = max((name for name in UNITS if count % UNITS[name] == 0), key=UNITS.__getitem__)
    return f"{count // UNITS[unit]} {unit}"


STATED = [
    f"The limit is {octets(untrusted.MOST_FILE_BYTES)} for files that are read as a whole",
    f"{octets(folder.MOST_LOG_BYTES)} for logs that are read line by line, with lines of at most "
    f"{octets(untrusted.MOST_LINE_BYTES)}",
    f"holes of more than {octets(folder.MOST_HOLE_BYTES)} are refused",
    f"Files of weights have at most {octets(weight_files.MOST_WEIGHTS)}",
    f"processor time of one rendering | {loading.TEMPLATE_SECONDS} seconds",
    f"wall-clock time of one rendering | {loading.TEMPLATE_WAIT} seconds",
    f"| {octets(loading.TEMPLATE_MEMORY)} on Linux",
    f"length of the template | {loading.MOST_SOURCE:,} characters",
    f"length of the rendered chat | {loading.MOST_TEXT:,} characters",
    f"all template files of a folder | {octets(folders._MOST_TEMPLATES)}",
    f"processor time of one text | {loading.MOST_SECONDS} seconds",
    f"wall-clock time of one text | {loading.MOST_WAIT} seconds",
    f"at most {folders._MOST_SPECIAL:,} special tokens, which libraries compare with one another, and "
    f"{folders._MOST_ADDED:,} other tokens",
    f"| {octets(loading.MOST_MEMORY)} on Linux",
    f"a header has at most {octets(weight_files._LONGEST_HEADER)}. Each tensor",
    f"a header has at most {octets(weight_files._MOST_HEADER)}, {weight_files._MOST_KEYS:,} entries, each given once, "
    f"and {weight_files._MOST_TENSORS:,} tensors",
    f"Single texts have at most {octets(weight_files._MOST_TEXT)} and texts in lists "
    f"{octets(weight_files._MOST_LISTED_TEXT)}, and lists hold at most {weight_files._MOST_ITEMS:,} texts together",
    f"A value has at most {octets(tables.MOST_FILE_BYTES)}",
    f"lists and objects {sealed.SealedRecord.longest:,} entries",
    f"files {sealed._MOST_VALUES:,} values",
    f"with at most {yaml_text.MOST_YAML_BYTES:,} bytes and {yaml_text.MOST_VALUES:,} values. Keys have at most "
    f"{yaml_text._LONGEST_KEY:,} characters",
    f"`.npz` files with at most {octets(stored.LARGEST_NPZ)} of unpacked arrays, or JSON with at most "
    f"{octets(stored.LARGEST_JSON)}",
    f"the directory of an archive has at most {octets(stored._MOST_DIRECTORY)}",
    f"in JSON** have at most {octets(untrusted.MOST_FILE_BYTES)} and {formats._MOST_NESTED} levels of nesting",
    f"{formats.READING.seconds} seconds of processor time and {formats.READING.wait} seconds by the clock",
    f"{octets(formats.READING.memory)} of memory (Linux), and {octets(formats.READING.answer)} for each sample",
    f"A member may have {octets(archives.MOST_MEMBER_BYTES)}, an archive {archives.MOST_MEMBERS:,} members and a "
    f"directory of {octets(archives.MOST_DIRECTORY_BYTES)}",
    f"{octets(archives.MOST_MEMBER_BYTES)} plus {archives.MOST_RATIO} bytes for each byte of the archive",
    f"A world from a table has at most {stored.MOST_STATES:,} states",
    f"Grids in studies have at most {grid.MAX_SIDE}.",
    f"one that is not a text of at most {octets(exports._MOST_SETTINGS)}",
    f"After {formats._MOST_LOST} listed samples in a row",
]


@pytest.mark.parametrize("limit", STATED)
def test_a_limit_is_stated_as_it_is_applied(limit: str) -> None:
    assert limit in PAGE


def test_limits_that_the_page_states_in_words() -> None:
    assert folder.MOST_ENTRIES == sealed._LONGEST_TEXT == tables._MOST_STATEMENT == 10**6
    assert all(words in PAGE for words in ("at most a million entries", "a million characters"))
