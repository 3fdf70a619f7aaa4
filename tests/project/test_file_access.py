"""Where the package opens files, and where a name is taken to come from the user; exceptions have reasons."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "goalscope"

METHODS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "touch"),
    *("mkdir", "rmdir", "iterdir", "glob", "rglob", "unlink", "rename", "symlink_to", "hardlink_to", "chmod"),
    *("exists", "is_file", "is_dir", "is_symlink", "is_fifo", "stat", "lstat", "samefile", "readlink"),
    *("savefig", "to_csv", "to_parquet", "tofile", "extractall", "from_pretrained", "save_pretrained"),
}
"""Methods of paths, and of others that take a path."""
FUNCTIONS = {
    "os": {
        *("open", "fdopen", "listdir", "scandir", "walk", "makedirs", "mkdir", "remove", "unlink", "rename", "replace"),
        *("rmdir", "link", "symlink", "stat", "lstat", "truncate", "chmod", "utime", "access", "removedirs", "mkfifo"),
    },
    "path": {"exists", "lexists", "isfile", "isdir", "getsize", "getmtime", "samefile"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "rmtree", "make_archive", "unpack_archive"},
    "tempfile": {
        "TemporaryDirectory",
        "NamedTemporaryFile",
        "TemporaryFile",
        "SpooledTemporaryFile",
        "mkdtemp",
        "mkstemp",
    },
    "sqlite3": {"connect"},
    "zipfile": {"ZipFile", "Path"},
    "tarfile": {"open", "TarFile"},
    "json": {"load", "dump"},
    "np": {"load", "save", "savez", "savez_compressed", "fromfile", "memmap", "loadtxt", "savetxt", "genfromtxt"},
    "torch": {"load", "save"},
    "mmap": {"mmap"},
}
NAMES = {
    *("open", "FileIO", "TemporaryDirectory", "NamedTemporaryFile", "mkdtemp", "mkstemp", "rmtree", "copyfile"),
    *("copytree", "ZipFile", "load_file", "save_file", "safe_open", "ParquetWriter", "read_csv", "read_parquet"),
    *("GGUFReader", "read_eval_log", "read_eval_log_sample", "read_eval_log_samples", "write_eval_log"),
}
"""Functions that are called by their own name, or by that of any module."""

_CHECKED = "reads a path that Folder or NamedFile checked just before"
_STREAM = "reads a stream that NamedFile opened, not a path"
_PARTIAL = "writes the new file that NamedFile.replacing made for it"
_SQLITE = "opens a path that Folder checked; SQLite has no other way in"
_PIPE = "the pipe of a child process to its parent, which is no file"
_ANONYMOUS = "a temporary file without a name, which nobody else can reach"
_HUB = "gets a folder that check_folder and check_tokenizer looked at, or a name on the hub"

# file -> calls -> reason
ALLOWED: dict[str, dict[str, str]] = {
    "inside/activations/shards.py": {"safe_open": _CHECKED},
    "_ground/checks.py": {
        "is_file": "asks whether a shipped name is a path, too; opens nothing, and Folder stands above it",
        "path.lexists": "asks whether a shipped name is a path, too; opens nothing, and Folder stands above it",
    },
    "cli/doctor.py": {"sqlite3.connect": _SQLITE},
    "cli/generator.py": {"write_text": "a method of Click's formatter of help texts, not of a path"},
    "integrations/gymnasium/textworld.py": {
        "mkdtemp": "TextWorld compiles a game into a folder that lives as long as the game"
    },
    "verdict/opening.py": {"sqlite3.connect": _SQLITE},
    "_ground/archives.py": {"zipfile.ZipFile": _STREAM},
    "integrations/inspect_ai/export.py": {"write_eval_log": _PARTIAL},
    "integrations/inspect_ai/formats.py": {"open": _STREAM},
    "integrations/inspect_ai/log_process.py": {"read_eval_log": _CHECKED},
    "goals/meg/causal_target.py": {"replace": "a method of a causal model, not of a path"},
    "worlds/environments/stored.py": {
        "open": _STREAM,
        "np.savez_compressed": "writes a stream that NamedFile opened, not a path",
    },
    "agents/models/dialect.py": {"from_pretrained": _HUB},
    "agents/models/engine.py": {"tempfile.TemporaryFile": _ANONYMOUS},
    "agents/models/engine_process.py": {"os.fdopen": _PIPE},
    "agents/models/weight_files.py": {"mmap.mmap": _STREAM},
    "agents/models/loading.py": {"from_pretrained": _HUB},
    "agents/models/local.py": {"from_pretrained": _HUB, "load_file": _CHECKED},
    "_ground/bounded_process.py": {
        "os.fdopen": _PIPE,
        "exists": "reads /proc/self/statm in a child that imports as little as possible",
        "read_text": "reads /proc/self/statm in a child that imports as little as possible",
    },
    "organisms/adapters.py": {"safe_open": _CHECKED},
    "report/exports.py": {"savefig": _PARTIAL},
    "papers/cliff_world.py": {"savefig": _PARTIAL},
    "runs/export.py": {"ParquetWriter": _PARTIAL},
    "runs/opening.py": {
        "sqlite3.connect": _SQLITE,
        "FileIO": "wraps the number of a file that Folder.open_to_change opened",
        "readlink": "asks /proc/self/fd where an open file lies now",
    },
    "runs/tables.py": {"sqlite3.connect": "a database in memory, which has no file"},
}


def file_calls(text: str) -> Iterator[tuple[str, int]]:
    """Yield (name, line) of each call that opens, lists, makes, removes or looks at files."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in NAMES:
            yield function.id, node.lineno
        elif isinstance(function, ast.Attribute):
            holder = function.value
            module = holder.id if isinstance(holder, ast.Name) else getattr(holder, "attr", "")
            one = len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)
            if function.attr in FUNCTIONS.get(module, ()):
                yield f"{module}.{function.attr}", node.lineno
            elif function.attr in METHODS | (NAMES - {"open"}) or (function.attr == "replace" and one):
                yield function.attr, node.lineno


FILES = sorted(SOURCE.rglob("*.py"))


def test_files_are_reached_through_a_folder_alone() -> None:
    beyond, unneeded = list[str](), list[str]()
    for path in FILES:
        name = str(path.relative_to(SOURCE))
        allowed, found = ALLOWED.get(name, {}), list(file_calls(path.read_text(encoding="utf-8")))
        if name != "_ground/folder.py":
            beyond += [f"{name}:{line}: {call}" for call, line in found if call not in allowed]
        unneeded += [f"{name}: {call}" for call in set(allowed) - {call for call, _ in found}]
    assert not beyond, "use goalscope._ground.folder, or give a reason in ALLOWED"
    assert not unneeded, "an exception that is no longer needed"


def test_exceptions_name_files_and_reasons() -> None:
    assert set(ALLOWED) <= {str(path.relative_to(SOURCE)) for path in FILES}
    assert all(len(reason) > 20 for calls in ALLOWED.values() for reason in calls.values())


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "path.open()",
        "(a / b).read_text(encoding='utf-8')",
        "Path(x).mkdir(parents=True)",
        "partial.replace(path)",
        "os.open(path, 0)",
        "os.path.exists(path)",
        "shutil.rmtree(x)",
        "from tempfile import mkdtemp\nmkdtemp()",
        "sqlite3.connect(path)",
        "np.load(path)",
        "figure.savefig(path)",
        "[path.stat().st_size for path in folder.glob('*')]",
    ],
)
def test_the_rule_itself_finds_what_it_forbids(line: str) -> None:
    assert list(file_calls(line))


@pytest.mark.parametrize(
    "line", ["text.replace('a', 'b')", "folder.load_text('x')", "replace(plan, a=1)", "os.getpid()"]
)
def test_the_rule_leaves_the_rest_alone(line: str) -> None:
    assert not list(file_calls(line))


# Only a few places say that a name comes from the user; each of them reads what the user typed or a file of theirs.


SEAMS = {
    "cli/overrides.py": "values of --set, and entries of worlds that --worlds holds",
    "worlds/environments/world.py": "the argument of EnvironmentWorld.make",
    "verdict/plan.py": "values of --set",
    "verdict/subject.py": "models on the command line, and files with a model",
    "cli/attributing.py": "worlds in a call from Python",
    "cli/goals.py": "hypotheses of meg",
    "worlds/environments/environment.py": "environments on the command line",
    "integrations/gymnasium/toy_text.py": "files of --env that register environments with Gymnasium",
    "cli/logs.py": "the reader of an import",
    "goals/prediction/kinds.py": "files of kinds of worlds",
    "goals/hypotheses/written.py": "hypotheses on the command line, and files with some",
    "integrations/inspect_ai/scanner.py": "the reader that the parameters of a scan name",
    "integrations/inspect_ai/tasks.py": "studies made of the parameters of a task",
    "verdict/preflight/study_files.py": "studies by name or file",
    "runs/study.py": "Study.parse and Study.load themselves",
}


def test_consent_is_given_where_the_user_speaks() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "consent" not in text and "Study" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                last = getattr(node.func, "id", getattr(node.func, "attr", ""))
                name = ast.unparse(node.func) if last in ("consent", "parse") else ""
                if name in ("consent", "own.consent", "Study.parse"):
                    found.add(str(path.relative_to(SOURCE)))
    assert found == set(SEAMS)
