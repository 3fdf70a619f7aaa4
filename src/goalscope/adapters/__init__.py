"""Other people's formats: recorded logs to episodes, with every recorded label checked."""

from goalscope.adapters.front import import_into, import_path
from goalscope.adapters.jsonl import read_jsonl
from goalscope.adapters.jsonl_write import write_jsonl
from goalscope.adapters.problems import ImportResult, Problem
from goalscope.adapters.telos import read_telos

__all__ = ["ImportResult", "Problem", "import_into", "import_path", "read_jsonl", "read_telos", "write_jsonl"]
