"""Write the pages of the site: those of ``docs/``, and what the package's own declarations say.

``make site`` runs it and has the generator of the site build what it wrote (``mkdocs.yml``). A fact stands once: pages
of measures, commands and the interface are written from what is registered and documented in the code;
``tools/site.yaml`` adds equations, pitfalls and pictures. Links to files outside of the site become their paths, for no
address is known.

After the generator, ``python -m tools.site --markdown`` adds files for people who work with an assistant: ``llms.txt``,
which lists all pages with a sentence on each, and every page as plain Markdown. Its address is that of the page with
``.md`` appended, such as ``start.html.md``.
"""

import ast
import functools
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer
import yaml

from goalscope import _OFFERED
from goalscope._ground import registry
from goalscope.cli import app
from goalscope.measures import StepMeasure, behaviour_measures
from goalscope.verdict.rules import Rule

ROOT: Final = Path(__file__).parents[1]
OUT: Final = ROOT / "build" / "site"
INTERFACES: Final = (
    *("stats", "worlds", "worlds.planning", "meg", "agents", "runs", "environments", "measures", "goals"),
    *("goals.hypotheses", "goals.attribution", "inside.activations", "inside.probing", "inside.interventions"),
    *("report", "verdict"),
)
"""Packages whose public names have a page each."""
MORE: Final[Mapping[str, Any]] = yaml.safe_load((ROOT / "tools" / "site.yaml").read_text(encoding="utf-8"))
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/papers.md": "items.md",
}
"""Pages that stand outside of ``docs/``, and their names on the site."""
PARTS: Final = ("agent", "world", "environment", "model", "head", "intervention", "attribution", "analysis", "study")
"""The kinds whose registered names are listed; measures, claims and arms have more to say."""
_LINK: Final = re.compile(r"(!?\[(?:[^\]]|\](?!\())*\])\((?!https?://|#)([^)\s#]+)(#[^)\s]*)?\)")
_DIRECTIVE: Final = re.compile(r"^::: (\S+)\n    options: \{heading: (.+)\}$", re.MULTILINE)
_FENCE: Final = re.compile(r"^([ ]*```.*?^[ ]*```)", re.DOTALL | re.MULTILINE)


def linked(text: str, page: str) -> str:
    """Return a page of the repository with its links as they lead on the site; ``page`` is its path there."""
    folder, place = (ROOT / page).parent, page.removeprefix("docs/")

    def target(link: re.Match[str]) -> str:
        words, path, heading = link.groups()
        there = (folder / path).resolve().relative_to(ROOT).as_posix()
        found = OUTSIDE.get(there) or (there.removeprefix("docs/") if there.startswith("docs/") else "")
        if found:
            found = os.path.relpath(re.sub(r"[.](ipynb|py)$", ".md", found), Path(OUTSIDE.get(page, place)).parent)
            return f"{words}({found}{heading or ''})"
        name = words.removeprefix("[").removesuffix("]")
        return name if name.strip("`") == there else f"{name} (`{there}`)"

    return "".join(part if part.lstrip().startswith("```") else _LINK.sub(target, part) for part in _FENCE.split(text))


def cells_of(path: Path) -> list[tuple[str, str]]:
    """Return the cells of a notebook, or of a script with cells (``# %%``): "markdown" or "code", and the text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    found = []
    for part in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        kind, _, body = part.partition("\n")
        if "[markdown]" in kind:
            found.append(("markdown", re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip()))
        else:
            found.append(("code", body.strip()))
    return found


def tutorial(path: Path) -> str:
    """Return a notebook or a script with cells as a page."""
    parts = [f"```python\n{text}\n```" if kind == "code" else text for kind, text in cells_of(path)]
    return linked("\n\n".join(parts) + "\n", path.relative_to(ROOT).as_posix())


def _module_of(found: StepMeasure) -> str:
    if found.name.endswith(" under fog"):
        return "fog"
    function: Any = found.function
    while isinstance(function, partial):
        function = function.func
    return str(function.__module__).removeprefix("goalscope.measures.")


def measures_of(group: str) -> list[StepMeasure]:
    """Return the registered measures of a group of ``tools/site.yaml``."""
    all_measures = [one for one in behaviour_measures() if isinstance(one, StepMeasure)]
    return [found for found in all_measures if _module_of(found) == group]


def measure_page(group: str) -> str:
    """Return the page of a group of measures: definition, equation, source, pitfalls and a picture."""
    more, found = MORE["measures"][group], measures_of(group)
    lines = [f"# {more['title']}", "", f"![{more['title']}](../gallery/{more['picture']})", "", "## Pitfalls", ""]
    lines += [f"* {sentence}" for sentence in more["pitfalls"]]
    variants = [one for one in found if one.base]
    for one in (one for one in found if not one.base):
        low, high = (f"{bound:g}".replace("inf", "∞") for bound in one.bounds)
        lines += ["", f"## {one.name}", "", f"{one.text[:1].upper()}{one.text[1:]}.", ""]
        if equation := more["equations"].get(one.name):
            lines += [f"    {equation}", ""]
        lines += [f"* Unit: {one.unit}, from {low} to {high}, one value per {one.per}", f"* Source: {one.source}"]
        lines += [f"* Needs: {', '.join(one.needs)}"] if one.needs else []
        if named := [f"`{variant.name}`" for variant in variants if variant.base == one.name]:
            lines += [f"* Variants: {', '.join(named)}"]
    return "\n".join([*lines, "", "[Measures](../measures.md) explains the rules that all of them share.", ""])


def commands_page() -> str:
    """Return all commands with arguments and options, as ``--help`` says them."""
    program: Any = typer.main.get_command(app)
    names = program.list_commands(None)
    purpose = "[The command line](../studies.md#the-command-line) says what each command is for."
    lines = ["# All commands and options", "", purpose, ""]
    for name in sorted(names):
        command = program.commands[name]
        if command.hidden:
            continue
        text = " ".join((command.help or "").split())
        lines += [f"## goalscope {name}", "", _escaped(text), "", "| argument or option | meaning |", "| --- | --- |"]
        for parameter in command.params:
            meaning = " ".join(str(getattr(parameter, "help", "") or "").split())
            shown = ", ".join((*parameter.opts, *parameter.secondary_opts))
            shown = shown if shown.startswith("-") else str(parameter.metavar or shown.upper())
            lines.append(f"| `{shown.replace('|', ' or ')}` | {_escaped(meaning)} |")
        lines.append("")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([|<>\[\]*_`])", r"\\\1", text)


def parts_page() -> str:
    """Return the names that are registered by kind, as studies and commands take them."""
    purpose = "The names that studies and commands accept. A package of yours can [add to them](../plugins.md)."
    lines = ["# Names of parts", "", purpose, ""]
    for kind in PARTS:
        lines += [f"## {kind}", "", "\n".join(f"* `{name}`" for name in registry.names(kind)), ""]
    return "\n".join(lines)


def questions_page() -> str:
    """Return every question of a verdict with its quantity, threshold and comparison, by arm, as they are declared."""
    rules: list[Rule] = [registry.resolve("claim", name) for name in registry.names("claim")]
    lines = [
        "# Questions of a verdict",
        "",
        "A question is answered by [comparing an interval with its threshold](../evaluate.md#how-an-answer-follows).",
    ]
    for arm in dict.fromkeys(rule.arm for rule in rules):
        lines += [
            "",
            f"## {arm}",
            "",
            "| question | quantity | threshold | compared with |",
            "| --- | --- | --- | --- |",
        ]
        for rule in rules:
            if rule.arm == arm:
                cells = (rule.question, rule.quantity, f"{rule.threshold:g}", rule.compared)
                lines.append(f"| {' | '.join(map(_escaped, cells))} |")
    return "\n".join([*lines, ""])


@functools.cache
def _taken(module: str) -> dict[str, str]:
    """Return the names that a module takes from other modules, and the module of each."""
    tree = ast.parse(Path(str(import_module(module).__file__)).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


def defined(module: str, name: str) -> str:
    """Return the full name of what a module offers, where it is defined; a module of its own stands in the package."""
    while (source := _taken(module).get(name, module)) != module:
        module = source
    return f"{module}.{name}"


def offered(package: str) -> dict[str, str]:
    """Return the full names of what a package offers but for bare numbers, which have no docstring, and the names."""
    module = import_module(package)
    return {defined(package, name): name for name in module.__all__ if not isinstance(getattr(module, name), int)}


def interface_page(title: str, names: Mapping[str, str]) -> str:
    """Return a page that shows docstrings: full names, and under which name each is offered."""
    shown = (f"::: {name}\n    options: {{heading: {offered}}}\n" for name, offered in names.items())
    return f"# {title}\n\n" + "\n".join(shown)


def gallery(out: Path, words: Mapping[str, Any]) -> str:
    """Run the commands of the gallery in ``out`` and return its page: each picture with the command that draws it."""
    lines = ["# Gallery", "", "Pictures that goalscope draws, each with the command that made it."]
    program = [sys.executable, "-c", "from goalscope.cli import main; main()"]
    for name, entry in words.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        for command in entry["commands"]:
            done = subprocess.run([*program, *shlex.split(command)[1:]], cwd=out, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{command}\n{done.stdout}{done.stderr}")
        lines += ["", f"## {entry['title']}", "", entry["says"], "", "```sh", *entry["commands"], "```", ""]
        for picture in sorted((out / name).glob("*.svg"), key=shown_first):
            one = entry["commands"][-1].partition(" --all ")[0]
            how = f"`{one} {picture.stem} --out {picture.name}`" if "figure" in one else f"`{entry['commands'][-1]}`"
            label = label_of(picture.read_text(encoding="utf-8"))
            label = label if " " in label else f"{picture.stem.partition('-figure')[0].replace('-', ' ')}: {label}"
            lines += [f"![{label}]({name}/{picture.name})", "", f"*{label}.* {how}", ""]
        for path in (out / name).iterdir():
            if path.suffix != ".svg":
                path.unlink()
    shutil.rmtree(out / "runs")
    return "\n".join(lines)


def shown_first(picture: Path) -> tuple[bool, int, str]:
    """Order pictures: agents in their worlds first, those of the first agent before the others, then by name."""
    in_world = picture.stem.startswith(("episodes", "examples"))
    return not in_world, len(picture.stem) if in_world else 0, picture.stem


def label_of(svg: str) -> str:
    """Return the sentence that describes a picture, without the id of the episode."""
    return unescape(svg.partition('aria-label="')[2].partition('"')[0]).partition("; episode-")[0]


def pages() -> dict[str, str]:
    """Return all pages but the gallery by their path on the site."""
    found = {name: linked((ROOT / page).read_text(encoding="utf-8"), page) for page, name in OUTSIDE.items()}
    for path in sorted((ROOT / "docs").rglob("*")):
        name = path.relative_to(ROOT / "docs")
        if path.suffix == ".md":
            found[name.as_posix()] = linked(path.read_text(encoding="utf-8"), f"docs/{name.as_posix()}")
        elif path.suffix in (".ipynb", ".py"):
            found[name.with_suffix(".md").as_posix()] = tutorial(path)
    for group in MORE["measures"]:
        found[f"measures/{group.rpartition('.')[0] or group}.md"] = measure_page(group)
    found["reference/commands.md"] = commands_page()
    found["reference/parts.md"] = parts_page()
    found["reference/questions.md"] = questions_page()
    front = {f"goalscope.{module}.{name}": offered for offered, (module, name) in _OFFERED.items()}
    found["api/goalscope.md"] = interface_page("goalscope", front)
    for package in INTERFACES:
        found[f"api/{package}.md"] = interface_page(f"goalscope.{package}", offered(f"goalscope.{package}"))
    return found


def navigation() -> Iterator[tuple[str, str, str]]:
    """Yield kind, title ("" for that of the page) and path of each page, as ``mkdocs.yml`` lists them."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    for section in settings["nav"]:
        for kind, entries in section.items():
            for entry in entries:
                title, path = ("", entry) if isinstance(entry, str) else next(iter(entry.items()))
                yield kind, title, path


def markdown_name(page: str) -> str:
    """Return where a page lies as plain Markdown: at the address of the page with ``.md`` behind it."""
    return f"{page.removesuffix('.md')}.html.md"


def markdown_of(text: str) -> str:
    """Return a page of the site as plain Markdown: docstrings written out, links to Markdown pages."""

    def target(link: re.Match[str]) -> str:
        words, path, heading = link.groups()
        return f"{words}({markdown_name(path) if path.endswith('.md') else path}{heading or ''})"

    parts = (part if part.lstrip().startswith("```") else _LINK.sub(target, part) for part in _FENCE.split(text))
    return _DIRECTIVE.sub(lambda found: _documented(found[1], found[2]), "".join(parts))


def _documented(name: str, heading: str) -> str:
    """Return the heading, the signature and the docstring of an object, and of the public methods of a class."""
    module, _, attribute = name.rpartition(".")
    shown = getattr(import_module(module), attribute)
    lines = [f"## {heading}", "", *_signature(heading, shown), inspect.getdoc(shown) or ""]
    if inspect.isclass(shown):
        for method, function in vars(shown).items():
            if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
                title = f"{heading}.{method}"
                lines += ["", f"### {title}", "", *_signature(title, function), inspect.getdoc(function) or ""]
    return "\n".join(lines)


def _signature(title: str, shown: Any) -> list[str]:
    try:
        return ["```python", f"{title}{inspect.signature(shown)}", "```", ""]
    except (TypeError, ValueError):  # not callable, or its signature is unknown
        return []


def first_sentence(text: str) -> str:
    """Return the first sentence of a page in plain words; "" for a page that begins with a table or a list."""
    paragraphs = [part.strip() for part in _FENCE.sub("", text).split("\n\n")]
    plain = [part for part in paragraphs if part and part[0] not in "#|*!:<-"]
    words = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain[0]).split()) if plain else ""
    return re.split(r"(?<=[.?]) ", words, maxsplit=1)[0]


def list_of_pages(texts: Mapping[str, str]) -> str:
    """Return ``llms.txt``: all pages by kind, each with its title and its first sentence."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    lines, last = [f"# {settings['site_name']}", "", f"> {settings['site_description']}"], ""
    for kind, title, path in navigation():
        if kind != last:
            lines += ["", f"## {kind}", ""]
            last = kind
        heading = re.search(r"^# (.+)$", texts[path], re.MULTILINE)
        name = title or (heading[1] if heading else path)
        sentence = first_sentence(texts[path])
        lines.append(f"- [{name}]({markdown_name(path)})" + (f": {sentence}" if sentence else ""))
    return "\n".join([*lines, ""])


def write_markdown(place: Path = OUT) -> None:
    """Write ``llms.txt`` and every page as plain Markdown into the site that the generator built."""
    source, built = place / "pages", place / "html"
    texts = {path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in source.rglob("*.md")}
    for page, text in texts.items():
        path = built / markdown_name(page)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(markdown_of(text), encoding="utf-8")
    (built / "llms.txt").write_text(list_of_pages(texts), encoding="utf-8")


def main() -> None:
    """Write everything that the site is built from."""
    place = OUT / "pages"
    shutil.rmtree(place, ignore_errors=True)
    for name, text in pages().items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "images", place / "images")
    kept = OUT / "gallery"  # pictures are drawn again after `make clean`
    if not (kept / "index.md").exists():
        shutil.rmtree(kept, ignore_errors=True)
        text = gallery(kept, MORE["gallery"])
        (kept / "index.md").write_text(text, encoding="utf-8")
    shutil.copytree(kept, place / "gallery")


if __name__ == "__main__":
    if "--markdown" in sys.argv[1:]:
        write_markdown()
    else:
        main()
