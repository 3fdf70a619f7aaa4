"""Only a few places say that a name comes from the user; each of them reads what the user typed or a file of theirs."""

import ast
from pathlib import Path

import goalscope

SOURCE = Path(goalscope.__file__).parent
SEAMS = {
    "cli/overrides.py": "values of --set, and entries of worlds that --worlds holds",
    "worlds/environments/world.py": "the argument of EnvironmentWorld.make",
    "verdict/plan.py": "values of --set",
    "verdict/subject.py": "models on the command line, and files with a model",
    "cli/front/attributing.py": "worlds in a call from Python",
    "cli/front/goals.py": "hypotheses of meg",
    "worlds/environments/environment.py": "environments on the command line",
    "integrations/gymnasium/toy_text.py": "files of --env that register environments with Gymnasium",
    "cli/front/importing.py": "the reader of an import",
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
