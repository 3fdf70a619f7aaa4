import os
import shlex
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from command_line import call
from goalscope._ground.extras import how_to_install
from goalscope._ground.progress import TALLY, ModelsAtWork, Pace, duration, memory_words
from goalscope.cli.console import fail, progress, safe, table
from goalscope.cli.doctor import NEEDS, examine


def command(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    code = "from goalscope.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=cwd, timeout=120)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [red]text[/red]", "plain [red]text[/red]"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\u202eb\u200bc", "a\\u202eb\\u200bc"),
        ("two\nlines", "two\\nlines"),
        ("größe 世界", "größe 世界"),
    ],
)
def test_text_is_shown_and_never_obeyed(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_line_breaks_are_kept_where_asked() -> None:
    assert safe("two\nlines\r", lines=True) == "two\nlines\\r"


def test_tables_and_errors_show_markup_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    table(("a [b]x[/b]",), [("\x1b[1m[bold]",)], title="[i]t")
    fail("wrong [red]thing\x1b[0m\nsecond line")
    written = capsys.readouterr()
    assert "a [b]x[/b]" in written.out and "\\x1b[1m[bold]" in written.out and "[i]t" in written.out
    assert written.err.splitlines() == ["Error:", "  wrong [red]thing\\x1b[0m", "  second line"]


def test_progress_without_a_terminal_is_plain_lines_with_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 10.0, 11.0, 20.0, 30.0, 40.0, 65.0])
    monkeypatch.setattr("goalscope._ground.progress.time.monotonic", lambda: next(clock))
    with progress("work") as show:
        for done in (0, 25, 30, 50):
            show(done, 100)
        show(60, 100, 90.0)  # the caller knows that the rest is slower
        show(60, 100, None)
        show(100, 100)
    lines = capsys.readouterr().err.splitlines()
    assert ["because" in line for line in lines] == [False, False, True, False, False]
    assert [line.split(";")[0] for line in lines] == [
        "work: 25 of 100 (25 %), time left 30 s",
        "work: 50 of 100 (50 %), time left 20 s",
        "work: 60 of 100 (60 %), time left 1 min 30 s",
        "work: 60 of 100 (60 %), time left 27 s",
        "work: 100 of 100 (100 %), in 1 min 05 s",
    ]


def test_while_models_work_a_line_comes_without_a_word_of_theirs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalscope._ground.progress.QUIET_SECONDS", 0.2)
    monkeypatch.setattr("goalscope._ground.progress._BEAT_SECONDS", 0.01)
    with progress("scripted") as show:
        show(1, 10)
        time.sleep(0.5)
    assert not capsys.readouterr().err, "no model is at work"
    with progress("grids") as show:
        TALLY.tell("reading the weights of one")
        TALLY.add(begun=4, under_way=4)
        time.sleep(0.3)
        show(1, 10, 60.0)
        TALLY.add(under_way=-2, answers=2, invalid=1, computed_prompt=900, computed_output=100)
        time.sleep(0.5)
        TALLY.add(under_way=-2)
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == "grids: reading the weights of one"
    assert 2 <= len(lines) <= 5 and lines[0].startswith(
        "grids: time left unknown; 0 answers (4 in progress); no tokens yet"
    )
    assert lines[-1].startswith("grids: 1 of 10 (10 %), time left ")
    assert "2 answers (2 in progress), 50 % invalid; " in lines[-1]
    rates = [int(line.split("; ")[2].split(" tokens/s")[0]) for line in lines if "tokens/s" in line]
    assert max(rates) > 500 and "generated" in lines[-1]
    assert sys.platform != "linux" or " GB of memory" in lines[-1]


def test_a_pass_longer_than_the_lines_are_apart_does_not_show_a_model_that_stands_still() -> None:
    working = ModelsAtWork(0.0)
    TALLY.add(begun=1, under_way=1)
    speeds = []
    for second in range(1, 61):  # a pass of 30 seconds over 600 tokens, twice
        if second in (30, 60):
            TALLY.add(computed_prompt=600)
        speeds.append(working.words(float(second))[1])
    TALLY.add(under_way=-1)
    assert set(speeds[:29]) == {"no tokens yet"}
    assert speeds[29] == speeds[59] == "20 tokens/s (0 generated)"
    assert all(5 < int(speed.split()[0]) <= 20 for speed in speeds[29:])


def test_the_time_left_grows_while_nothing_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 20.0])
    monkeypatch.setattr("goalscope._ground.progress.time.monotonic", lambda: next(clock))
    written = list[str]()
    pace = Pace(lambda done, total, words: written.append(words))
    pace(1, 4, 30.0)
    TALLY.add(begun=1)
    pace.beat()
    assert [words.split(";")[0] for words in written] == ["time left 30 s", "time left 1 min 00 s"]


def test_memory_is_said_while_torch_is_still_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    half = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", half)
    assert all("GPU" not in words for words in memory_words())
    half.cuda = ModuleType("torch.cuda")  # type: ignore[attr-defined]
    assert all("GPU" not in words for words in memory_words())


def test_durations_read_well() -> None:
    assert [duration(seconds) for seconds in (0.4, 59, 65, 7800)] == ["0 s", "59 s", "1 min 05 s", "2 h 10 min"]


def test_doctor_finds_what_the_project_declares(tmp_path: Path) -> None:
    declared: dict[str, set[str]] = {}
    for text in metadata.requires("goalscope") or []:
        name = text.split(";")[0].split(">")[0].split("[")[0].strip().lower()
        extra = text.split("extra ==")[1].strip(" '\"") if "extra ==" in text else ""
        declared.setdefault(extra, set()).add(name)
    for extra, names in NEEDS.items():
        assert {name.lower() for name in names} == declared[extra]
    findings = {finding.what: finding for finding in examine(tmp_path)}
    assert findings["numpy (core)"].state == "installed" and not any(found.fatal for found in findings.values())
    assert "write-ahead log" in findings[f"run directory in {tmp_path}"].detail
    assert not list(tmp_path.iterdir())


def test_doctor_and_runs_agree_on_where_a_write_ahead_log_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalscope.runs.opening._file_system", lambda directory: "nfs4")
    (found,) = (finding for finding in examine(tmp_path) if finding.what == f"run directory in {tmp_path}")
    assert found.state == "ok" and not found.fatal
    assert "no write-ahead log (the file system is shared over a network (nfs4))" in found.detail


def test_doctor_says_which_extra_brings_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name in ("pyarrow", "rich"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr("goalscope.cli.doctor.metadata.version", version)
    findings = {finding.what: finding for finding in examine(tmp_path / "nowhere")}
    assert findings["pyarrow (extra export)"].detail == how_to_install("export")
    assert not findings["pyarrow (extra export)"].fatal and findings["rich (core)"].fatal
    assert findings[f"run directory in {tmp_path / 'nowhere'}"].state == "problem"


def test_the_advice_names_the_packages_that_the_installed_goalscope_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = list(map(Requirement, metadata.requires("goalscope") or []))
    for extra in ("", *set(metadata.metadata("goalscope").get_all("Provides-Extra") or ())):
        advised = shlex.split(how_to_install(extra))
        assert advised[:2] == ["pip", "install"]
        evaluated = {"python_version": "3.12", "extra": extra}  # one package of the extra cards needs this version
        wanted = [one for one in declared if one.marker is None or one.marker.evaluate(evaluated)]
        of_extra = [one for one in wanted if (one.marker is None) == (extra == "")]
        assert {(one.name, one.specifier) for one in map(Requirement, advised[2:])} == {
            (one.name, one.specifier) for one in of_extra
        }

    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert how_to_install("lm") == "pip install '.[lm]' in the clone"


def test_help_loads_nothing_heavy_and_every_command_has_an_example() -> None:
    code = (
        "import sys\nfrom goalscope.cli import app\nfrom typer.testing import CliRunner\n"
        "print(CliRunner().invoke(app, ['--help']).output)\n"
        # Packages are imported, since their commands are listed.
        "print(sorted(set(sys.modules) & {'scipy', 'matplotlib', 'torch', 'jinja2', 'pandas'}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.splitlines()[-1] == "[]"
    for name in ("demo", "run", "import", "measure", "compare", "report", "export", "doctor"):
        assert f"  {name} " in found.stdout
        assert f"goalscope {name}" in call(name, "--help").split("Example")[1]


def test_doctor_shows_what_a_server_does(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from server import TRANSFORMERS, VLLM, Loopback, speaker

    from goalscope.agents.models.http_settings import RECORDING
    from goalscope.cli.examining import doctor_server

    with Loopback(speaker(positions=4096), **TRANSFORMERS) as server:
        doctor_server(server.url, "speaker")
        assert RECORDING in " ".join(capsys.readouterr().out.split())
    with Loopback(speaker(positions=4096), **VLLM) as server:
        doctor_server(server.url, None, as_json=True)
        found = json.loads(capsys.readouterr().out)
        server.behaviour.pages = {}
        with pytest.raises(ValueError, match="give --model NAME"):
            doctor_server(server.url, None)
    states = {one["name"]: one["state"] for one in found["abilities"]}
    assert found["model"] == "speaker" and found["told"]["server"]["version"] == "0.32.0"
    assert states["temperature"] == states["token ids"] == states["log-probabilities"] == "yes"


def test_a_real_process_reports_errors_on_standard_error_with_status_2(tmp_path: Path) -> None:
    found = command("measure", "no\x1b[31mwhere", cwd=tmp_path)
    assert found.returncode == 2 and not found.stdout
    assert found.stderr.startswith("Error:\n  ") and "Traceback" not in found.stderr and "\x1b" not in found.stderr


def test_a_real_process_that_is_stopped_says_how_to_go_on(tmp_path: Path) -> None:
    import signal
    import time

    # A test run in the background hands SIGINT on as ignored; the process of a user at a terminal has it.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from goalscope.cli import main; main()"
    words = [sys.executable, "-c", code, "run", "scripted", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "run.db").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Stopped:" in errors and "resume" in errors


def _written(monkeypatch: pytest.MonkeyPatch, *times: float) -> tuple[list[list[str]], Pace]:
    clock, written = iter(times), list[list[str]]()
    monkeypatch.setattr("goalscope._ground.progress.time.monotonic", lambda: next(clock))
    return written, Pace(lambda done, total, words: written.append(words.split("; ")))


def test_tokens_under_way_shorten_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    written, pace = _written(monkeypatch, 0.0, 10.0, 15.0)
    TALLY.add(begun=1, computed_prompt=100)
    pace(1, 4, 30.0)  # 400 tokens in all at this pace
    TALLY.add(computed_prompt=60, computed_output=40)  # half of them after 15 s
    pace.beat()
    assert [words[0] for words in written] == ["time left 30 s", "time left 15 s"]


def test_a_time_left_that_grows_by_half_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    written, pace = _written(monkeypatch, 0.0, 10.0, 20.0, 60.0, 61.0)
    pace(0, 10)
    pace(2, 10)
    pace(3, 10)
    pace(4, 10)
    assert ["because" in "".join(words) for words in written] == [False, False, True, False]
    assert "40 s each" in written[2][-1]


def test_silent_work_is_said_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope._ground.progress.SILENT_SECONDS", 0.0)
    lines, heard = list[str](), threading.Event()

    def hear(line: str) -> None:
        lines.append(line)
        heard.set()

    with TALLY.heard_by(hear):
        with TALLY.watched(), TALLY.watched():  # the inner one starts no second thread
            assert heard.wait(20)
        heard.clear()
        assert not heard.wait(1.5) and lines
