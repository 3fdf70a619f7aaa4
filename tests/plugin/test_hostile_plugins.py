"""Entry points of strangers' packages: a name, a value or an import that is wrong takes no other package down."""

import json
from pathlib import Path

import pytest
from test_plugin import install, python

from families import long_after
from goalscope._ground.registry import register

CODE = """
import json, warnings
from goalscope._ground import registry
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    heads = registry.names("head")
print(json.dumps([heads, [str(one.message) for one in caught], registry.resolve("head", "whole")]))
"""
WHOLE = "from goalscope._ground.registry import register\nregister('head', 'whole')(2)\n"
IMPORTS = {
    "SystemExit": ("raise SystemExit(0)", "SystemExit"),
    "an exit with a text": ("import sys\nsys.exit('bye')", "bye"),
    "an own BaseException": ("class Mine(BaseException): pass\nraise Mine('out')", "Mine: out"),
    "GeneratorExit": ("raise GeneratorExit", "GeneratorExit"),
    "an error that acts on terminals": ("raise ValueError('\\x1b[2J\\n[bold]' + 'x' * 10**6)", "x1b"),
    "an error that cannot be told": (
        "class Mute(Exception):\n    def __str__(self): raise RuntimeError('no')\nraise Mute()",
        "Mute",
    ),
    "depth": ("def f(): f()\nf()", "RecursionError"),
    "no Python": ("(((", "SyntaxError"),
    "a zero byte": ("a = 1\x00", "SyntaxError|ValueError"),
}
VALUES = ["nothing.of.the.kind", "", ":", "a b", "../x", "os:nothing", "\x1b[2J", "half:" + "x" * 10**5]


@pytest.mark.parametrize("name", long_after(2, IMPORTS))
def test_an_import_that_fails_in_any_way_is_one_sentence(name: str, tmp_path: Path) -> None:
    module, says = IMPORTS[name]
    install(tmp_path, "half-done", {"half.py": module}, {"a": "half"})
    install(tmp_path, "zzz", {"whole.py": WHOLE}, {"d": "whole"})
    heads, [sentence], whole = json.loads(python(tmp_path, CODE).stdout)
    assert "whole" in heads and whole == 2
    assert "half-done 0.1" in sentence and any(word in sentence for word in says.split("|"))
    assert sentence.isprintable() and len(sentence) < 1000


def test_values_and_metadata_that_are_wrong_are_told_in_one_line(tmp_path: Path) -> None:
    for number, value in enumerate(VALUES):
        install(tmp_path, f"odd{number}", {}, {"\x1b[2Jname": value})
    install(tmp_path, "nameless", {}, {"a": "nothing"})
    (tmp_path / "nameless-0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\n")
    install(tmp_path, "mixed", {}, {"a": "nothing"})
    (tmp_path / "mixed-0.1.dist-info" / "METADATA").write_text("Name: \x1b[31mred\nVersion: [bold]\n")
    install(tmp_path, "zzz", {"whole.py": WHOLE}, {"d": "whole"})
    heads, sentences, whole = json.loads(python(tmp_path, CODE).stdout)
    assert "whole" in heads and whole == 2 and len(sentences) >= 8
    assert all(sentence.isprintable() and len(sentence) < 1000 for sentence in sentences)


@pytest.mark.parametrize("name", ["", " head", "a\nb", "\x1b[2J", "a;b", "\u202e", None, 3])
def test_names_that_do_not_fit_on_a_line_are_refused(name: object) -> None:
    with pytest.raises(ValueError, match="one line"):
        register("head", name)  # type: ignore[arg-type]


def test_a_long_name_or_one_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most"):
        register("head", "x" * 10_000)
    module = "from goalscope._ground.registry import register\nregister('head', 'mlp')(1)\n"
    install(tmp_path, "taking", {"taking.py": module}, {"mlp": "taking"})
    install(tmp_path, "zzz", {"whole.py": WHOLE}, {"d": "whole"})
    _, [sentence], _ = json.loads(python(tmp_path, CODE).stdout)
    assert "taking 0.1" in sentence and "'mlp'" in sentence
