"""What is said to be printed, compared with the papers; prompts that they print are sent letter for letter."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorder import Recorder

from command_line import call
from goalscope.agents import prompts
from goalscope.agents.chat import TaskChatAgent
from goalscope.agents.prompts import PAPER, PRINTED, PrintedPrompt, normalised, read_template, recognised, system_prompt
from goalscope.papers import find, items
from goalscope.papers.printed import sizes_that_fit
from goalscope.papers.working import as_printed, published_study, with_nearest_prompts
from measured_runs import small_study

REPOSITORY = Path(__file__).parents[2]
PAPERS = REPOSITORY.parent / "shared" / "papers"
TEXTS = {
    "telos": ("behavioural-and-representational-evaluation", "behavioural-and-representational-evaluation-post"),
    "exploration": ("exploration-exploitation-errors",),
    "meg": ("measuring-goal-directedness",),
}
beside = pytest.mark.skipif(not PAPERS.is_dir(), reason="the texts of the papers are not beside the checkout")


def plain(text: str) -> str:
    """Text on one line, without marks of emphasis, and words joined that were broken at the end of a line."""
    return " ".join(re.sub(r"(?<=[a-z])-\s*\n\s*(?=[a-z])", "", text).replace("*", "").split())


def text_of(paper: str) -> str:
    return " ".join(plain((PAPERS / f"{name}.txt").read_text(encoding="utf-8")) for name in TEXTS[paper])


def quotations() -> Iterator[tuple[str, str]]:
    """Each quotation of the page on published numbers, with the paper of its line."""
    paper = ""
    for line in (REPOSITORY / "docs" / "corrections.md").read_text(encoding="utf-8").splitlines():
        first = line.split("|")[1].strip() if line.startswith("| ") else line
        found = [
            name for name, said in (("telos", "telos paper"), ("exploration", "exploration paper")) if said in first
        ]
        paper = found[0] if found else "meg" if "MEG paper" in first else paper
        if line.startswith("## 4"):
            paper = "exploration"
        yield from ((paper, quoted) for quoted in re.findall("“([^”]*)”", line))


@beside
def test_every_quotation_is_in_its_paper() -> None:
    found = list(quotations())
    assert len(found) >= 12
    for paper, quoted in found:
        assert plain(quoted) in text_of(paper), (paper, quoted)


@beside
def test_every_printed_number_is_in_its_paper() -> None:
    checked = 0
    for name, item in items().items():
        numbers = set(re.findall(r"\d[\d,]*\.?\d*", text_of(name.split()[0])))
        for reading in item.readings:
            for published in (reading.published, *reading.others.values()):
                values = published.values() if isinstance(published, dict) else [published]
                for value in (one for one in values if isinstance(one, int | float)):
                    forms = {
                        f"{abs(value):.{digits}f}" for digits in range(4) if abs(round(value, digits) - value) < 1e-9
                    }
                    assert forms & numbers, (name, reading.label, value)
                    checked += 1
    assert checked > 100


def test_a_size_fits_all_printed_numbers_of_its_row() -> None:
    """By hand: 3 of 20 are 15.0 %, and a mean of three whole numbers ends in .0, .3 or .7."""
    assert 20 in sizes_that_fit(["15.0"], means={"142.3": "15.0"})
    assert 20 not in sizes_that_fit(["15.0"], means={"142.5": "15.0"}) and 40 in sizes_that_fit(
        [], means={"142.5": "15.0"}
    )
    assert sizes_that_fit(["33.3"], most=10) == [3, 6, 9] and sizes_that_fit(["33.30"], most=10) == []
    assert sizes_that_fit(["17"], most=12) == [6, 12] and sizes_that_fit(["0.0", "100.0"], most=3) == [1, 2, 3]
    assert sizes_that_fit([], means={"4.0": "0.0"}, most=50) == []  # no case, no mean
    literal = [n for n in range(1, 101) if {"98.9", "17.0"} <= {f"{100 * k / n:.1f}" for k in range(n + 1)}]
    assert sizes_that_fit(["98.9", "17.0"]) == literal
    with pytest.raises(ValueError, match="got none"):
        sizes_that_fit([])


# Prompts that the papers print: recognised by their words, sent letter for letter, and what is compared only then.


OWN = "Go to the grid-based goal.\n\n“Now” is:\n{{grid_state}}\nAnswer `UP` or `DOWN`."


def _fenced(text: str, title: str) -> str:
    part = text[text.index(f"\n{title}\n") :]
    block = re.search(r"\n```\n(.*?)\n```(?=\n\n|\s*$)", part, re.DOTALL)
    assert block is not None
    return block[1]


def _between(text: str, title: str, end: str) -> str:
    begin = text.index(f"\n{title}\n") + len(title) + 2
    return text[begin : text.index(end, begin)]


def cut() -> dict[str, str]:
    """Return the printed prompts by name, as the texts of the papers hold them."""
    telos = (PAPERS / "behavioural-and-representational-evaluation.txt").read_text(encoding="utf-8")
    tasks = (PAPERS / "exploration-exploitation-errors.txt").read_text(encoding="utf-8")
    of_tasks = {
        "exploration C.3 base": ("System Prompt (Base)", "System Prompt (Exploration)"),
        "exploration C.3 exploration": ("System Prompt (Exploration)", "System Prompt (Exploitation)"),
        "exploration C.3 exploitation": ("System Prompt (Exploitation)", "\nLLM\n"),
        "exploration C.3 balance": ("System Prompt (Balance)", "D Harness Engineering"),
        "exploration D": ("System Prompt (with Harness Engineering)", "Below is an example turn"),
    }
    return {
        "telos G.2": _fenced(telos, "G.2. Prompt for Behavioural Evaluation"),
        "telos G.3": _fenced(telos, "G.3. Prompt for Instrumental and Implicit Goals"),
        **{name: _between(tasks, *ends) for name, ends in of_tasks.items()},
    }


@beside
def test_the_prompts_of_the_papers_are_recognised_and_a_changed_word_is_not() -> None:
    prompts = cut()
    assert set(prompts) == {printed.name for printed in PRINTED.values()}
    for name, text in prompts.items():
        found = recognised(text)
        assert found is not None and found.name == name
        # As a page shows it: other line breaks, curly quotation marks, a ligature, a word that is broken at its end.
        reflowed = re.sub(r"\s+", "\n", text).replace('"', "”").replace("fi", "ﬁ").replace("agent", "a-\ngent")
        assert recognised(reflowed) == found
        words = text.split()
        for index in range(0, len(words), 7):
            for changed in ([*words[:index], *words[index + 1 :]], [*words[:index], "x", *words[index + 1 :]]):
                assert recognised(" ".join(changed)) is None, words[index]
        assert recognised(text.lower()) is None


def test_what_is_compared_of_a_prompt() -> None:
    assert normalised(OWN) == normalised(
        "Go to the grid-\nbased  goal. \"Now\" is: {{any slot}} Answer 'UP' or ‘DOWN’."
    )
    assert normalised(OWN) != normalised(OWN.replace("goal", "aim")) and normalised("a - b") != normalised("ab")
    assert normalised("{{grid}} 1 2") != normalised("1 2")


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make two texts of our own printed prompts, where the papers are not there."""
    texts = {OWN: PrintedPrompt(name="telos G.3", title="keys and doors"), "All of it.": BASE}
    hashes = {prompts.hash_of(text): printed for text, printed in texts.items()}
    monkeypatch.setattr(prompts, "PRINTED", hashes)
    recognised.cache_clear()
    yield
    recognised.cache_clear()


BASE = PrintedPrompt(name="exploration C.3 base", title="task worlds", strategy="base")


@pytest.mark.usefixtures("known")
def test_a_printed_prompt_is_read_with_our_names_of_its_slots_and_for_its_arm_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text(OWN + "\n", encoding="utf-8")
    assert read_template(path) == OWN.replace("grid_state", "grid")
    path.write_text("All of it.", encoding="utf-8")
    assert system_prompt(str(path), "base", False, False, form="example") == "All of it."
    for arm in (("exploration", False, False), ("base", True, False), ("base", False, True)):
        with pytest.raises(ValueError, match=r"exploration C\.3 base"):
            system_prompt(str(path), arm[0], arm[1], arm[2], form="example")
    path.write_text(OWN, encoding="utf-8")
    with pytest.raises(ValueError, match="grid_state"):
        system_prompt(str(path), "base", False, False, form="example")


def of_server(index: int, url: str) -> list[str]:
    keys = {"base_url": url, "mode": "chat", "preflight": "false"}
    words = [word for key, value in keys.items() for word in ("--set", f"agents.{index}.server.{key}={value}")]
    return [*words, "--set", f"agents.{index}.top_logprobs=0"]


def told(folder: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads((folder / "reproduction.json").read_text(encoding="utf-8"))["lines"]
    return lines


@beside
def test_a_recognised_template_is_sent_letter_for_letter_with_the_sampling_of_the_paper(tmp_path: Path) -> None:
    copy = tmp_path / "g3.txt"
    copy.write_text(cut()["telos G.3"], encoding="utf-8")
    words = ("--scale", "0.02", "--model", "GPT-OSS-20B", "--template", copy, "--out", tmp_path / "out")
    with Recorder('{"action": "UP"}') as server:
        printed = call("reproduce", "telos table 1 rooms", *words, *of_server(0, server.url))
    before, between, after = re.split(r"\{\{[a-z_]+\}\}", copy.read_text(encoding="utf-8"))
    assert server.requests and all(one["temperature"] == 0.7 and one["top_p"] == 0.95 for one in server.requests)
    for request in server.requests:
        (message,) = request["messages"]
        middle = message["content"].removeprefix(before).removesuffix(f"{between}no{after}")
        assert message["content"].startswith(before) and re.fullmatch(r"[#_AGKD\d\s]+", middle), message["content"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "at 0.02 of the published size" in page and "small network" not in page
    line = next(line for line in told(tmp_path / "out") if line["label"] == "Success Rate (%)")
    reasons = [reason.partition(":")[0] for reason in line["differs"]]
    assert line["within"] is None and reasons == ["generator", "reasoning_effort", "fewer than 10 grids"]
    assert "fewer than 10" in printed


@beside
def test_both_arms_of_the_memory_summary_take_their_printed_prompts(tmp_path: Path) -> None:
    copies = {name: tmp_path / f"{number}.txt" for number, name in enumerate(("exploration C.3 base", "exploration D"))}
    for name, path in copies.items():
        path.write_text(re.sub(r"(?<=[a-z])-\n(?=[a-z])", "", cut()[name].strip()), encoding="utf-8")
    small = ("--set", "worlds.0.presets=[high-small]", "--set", "worlds.0.count=1", "--scale", "0.02")
    words = [word for path in copies.values() for word in ("--template", path)]
    agents = ("--model", "Gemini 3.1 Flash Lite", "--out", tmp_path / "out", *small)
    with Recorder('{"action":"up"}') as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMINI_API_KEY", "k" * 20)
        where = [word for index in (4, 5) for word in of_server(index, server.url)]
        call("reproduce", "exploration table 2", *words, *agents, *where)
    systems = {request["messages"][0]["content"] for request in server.requests}
    assert systems == {path.read_text(encoding="utf-8") for path in copies.values()}
    assert all(one["temperature"] == 0 and one["top_p"] == 1 for one in server.requests)
    first = {request["messages"][1]["content"] for request in server.requests if len(request["messages"]) == 2}
    assert all(text.startswith("OBSERVATION: ") and "action" not in text for text in first)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "worlds that were given" in page and "published size" not in page  # --set changed them
    fields = {reason.partition(":")[0] for line in told(tmp_path / "out") for reason in line["differs"]}
    assert "observations" in fields and "prompt" not in fields


@pytest.mark.usefixtures("known")
def test_a_file_that_is_no_copy_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    path = tmp_path / "copy.txt"
    for text, item in ((OWN.replace("goal", "aim"), "telos table 1 rooms"), ("All of it.", "telos table 1 rooms")):
        path.write_text(text, encoding="utf-8")
        said = call("reproduce", item, "--template", path, "--out", tmp_path / "out", status=2)
        assert "telos G.3" in said and not (tmp_path / "out").exists()
    for broken in ("grid-\nbased", "grid- \n\nbased", "grid- based"):  # recognised, and cut from a PDF
        path.write_text(OWN.replace("grid-based", broken), encoding="utf-8")
        said = " ".join(
            call("reproduce", "telos table 1 rooms", "--template", path, "--out", tmp_path / "out", status=2).split()
        )
        assert "line 1" in said and "grid-based" in said and not (tmp_path / "out").exists()
    call("reproduce", "telos table 1 rooms", "--template", tmp_path / "none", "--out", tmp_path / "out", status=2)
    call("reproduce", "meg figure 1", "--template", path, "--out", tmp_path / "out", status=2)


@pytest.mark.usefixtures("known")
def test_lines_that_a_pdf_may_have_broken_are_named_before_they_are_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, item = tmp_path / "copy.txt", find("telos table 1 rooms")
    for text, noted in ((OWN, False), (OWN.replace("Go to", "Go\nto"), True), (OWN.replace("goal.", "goal.\n"), False)):
        path.write_text(text, encoding="utf-8")
        as_printed(item, published_study(item, 0.1), [path])
        assert ("line 1" in " ".join(capsys.readouterr().err.split())) == noted, text


@pytest.mark.full
@pytest.mark.usefixtures("known")
def test_without_a_copy_the_line_says_own_wording_and_nothing_of_within(tmp_path: Path) -> None:
    words = ("--scale", "0.02", "--model", "GPT-OSS-20B", "--out", tmp_path / "out")
    with Recorder('{"action": "UP"}') as server:
        printed = call("reproduce", "telos table 1 rooms", *words, *of_server(0, server.url))
    assert f"at {server.url}" not in printed, "a setting of one command must not reach the next one's defaults"
    assert "own wording" in printed and "not compared: a" in " ".join(printed.split())
    assert all(line["within"] is None and line["differs"] for line in told(tmp_path / "out") if any(line["published"]))
    answer = '{"action": "<UP|DOWN|LEFT|RIGHT>"}'  # no example move: of our prompts the nearest to the printed one
    assert all(answer in one["messages"][-1]["content"] for one in server.requests)


def test_without_a_copy_task_worlds_have_the_facts_of_the_paper_alone_and_a_card_is_kept() -> None:
    served = {"kind": "task-chat", "model": "some/chat", "server": {"base_url": "http://127.0.0.1:1"}}
    own = {"kind": "task-chat", "model": "ariadne", "name": "own"}
    worlds = [{"kind": "task-map", "presets": ["paper-low-small"], "count": 1}]
    asked = small_study(worlds=worlds, agents=[served, {**served, "memory": True}, own])
    agents = with_nearest_prompts(as_printed(find("exploration table 2"), asked, [])).agents()
    base, memory, carded = (agent for agent in agents if isinstance(agent, TaskChatAgent))
    for agent in (base, memory):
        assert agent.template == PAPER and "hidden budget" in agent.system and not agent.example
        assert agent.sampling.temperature == 0 and agent.sampling.top_p == 1
    assert ("summary" in memory.system) > ("summary" in base.system)
    assert carded.template == "" and carded.sampling.top_p == 1


@pytest.mark.full
def test_a_prompt_of_ones_own_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text(OWN.replace("grid_state", "grid") + "{{carrying_key}}", encoding="utf-8")
    own = ("--set", f"agents.0.task={tmp_path / 'own.txt'}")
    words = ("--scale", "0.02", "--model", "GPT-OSS-20B", "--out", tmp_path / "out", *own)
    with Recorder('{"action": "UP"}') as server:
        call("reproduce", "telos table 1 rooms", *words, *of_server(0, server.url))
    assert all(one["messages"][-1]["content"].startswith("Go to the grid-based goal.") for one in server.requests)
