"""Attacks that are carried out: a command is given what was changed, and is held against what it may do."""

import ctypes
import itertools
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from catalogue import Call, Place, calls
from samples import Sample, Samples

from attacks import MARK, PLACES, Attack, attacks_on, kinds_of_files

SECONDS: Final = 40.0
"""Processor time that a command may use; by the clock it may take longer (`attacked.PATIENCE`)."""
MEMORY: Final = 2**30
"""Bytes that it may take beyond what the sound sample takes."""
_MOST: Final = 8 * 2**30  # address space
_DURATION = re.compile(r"\d[\d.,]*\s*(?:ms|s|min|h|MB|kB|bytes)\b(?:\s*\d+\s*(?:s|min))?")
_OPENED = 0x20 | 0x01 | 0x02 | 0x100 | 0x200  # inotify: open, access, modify, create, delete

Given = Mapping[str, Sample]


@dataclass(frozen=True)
class Target:
    """What is attacked in a call.

    Attributes:
        place: the argument.
        file: the file below the path that it names, "" for that path itself.
        state: "given" for a sample that is read; "beside" for a file in the working directory that the sample names;
            "new" for a place that is written first; "again" for one that the same command has written before.
    """

    place: Place
    file: str
    state: str


@dataclass(frozen=True)
class Case:
    """An attack on a target in a call."""

    call: Call
    given: tuple[tuple[str, Sample], ...]
    target: Target
    attack: Attack

    @property
    def name(self) -> str:
        """What is attacked, and how."""
        given = ", ".join(f"{argument}={sample.name}" for argument, sample in self.given)
        target = self.target
        where = f"{target.place.argument.upper()} ({target.state}) {target.file or 'itself'}"
        return f"goalscope {self.call.name} [{given}]: {where}: {self.attack.name}"


@dataclass
class Ended:
    """How a command ended."""

    status: int
    late: bool
    seconds: float
    memory: int
    stdout: str
    stderr: str
    opened: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All that was printed."""
        return self.stdout + self.stderr

    @property
    def plain(self) -> str:
        """What was printed as the result, without what the clock says."""
        # A range of durations may be missing where they are short, and columns are as wide as their longest entry.
        return re.sub(r"[ ─]+", " ", _DURATION.sub("T", self.stdout).replace(" (T to T)", ""))


class Watch:
    """Who opens anything in a directory that nobody may reach, by the notices of Linux; none elsewhere."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._number = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if sys.platform == "linux" else -1

    def look(self, folder: Path) -> None:
        """Begin to look at a directory and those in it, and forget what was."""
        self.events()
        for path in (folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())):
            if self._number >= 0:
                self._library.inotify_add_watch(self._number, os.fsencode(path), _OPENED)

    def events(self) -> list[str]:
        """Return the names of what was opened, changed or made since then; "" is the directory itself."""
        names = []
        while self._number >= 0:
            try:
                octets = os.read(self._number, 2**16)
            except BlockingIOError:
                break
            at = 0
            while at < len(octets):
                _, mask, _, length = struct.unpack_from("iIII", octets, at)
                name = octets[at + 16 : at + 16 + length].rstrip(b"\0").decode(errors="replace")
                at += 16 + length
                if mask & _OPENED and not (mask & 0x40000000 and not name):
                    names.append(name)
        return names


def state_of(folder: Path) -> dict[str, str]:
    """Return what lies in a directory, by name; of sparse files the size alone."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        is_file = path.is_file() and not path.is_symlink()
        content = sha256(path.read_bytes()).hexdigest() if is_file and status.st_size < 10**8 else str(status.st_size)
        found[str(path.relative_to(folder))] = f"{status.st_mode:o} {content if is_file else ''}"
    return found


class Range:
    """Where attacks are carried out.

    Args:
        folder: a new directory for samples and cases.
        heavy: whether samples that need a model are attacked, too.
    """

    def __init__(self, folder: Path, *, heavy: bool) -> None:
        self._case, self._heavy, self._watch = folder / "case", heavy, Watch()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
        script = Path(__file__).with_name("attacked.py")
        self._server = subprocess.Popen(
            [sys.executable, str(script), *(["heavy"] if heavy else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._server.stdout is not None and self._server.stdout.readline() == "ready\n"
        (folder / "samples" / "work").mkdir(parents=True)
        self._made = folder / "samples"
        self.samples = Samples(folder / "samples", self._make, heavy=heavy)
        self._sound: dict[tuple[Any, ...], Ended] = {}
        self._again: dict[tuple[Any, ...], Path] = {}

    def close(self) -> None:
        """End the process that starts the commands."""
        self._server.communicate()

    def _make(self, *words: object) -> None:
        done = self._run([str(word) for word in words], self._made / "work", seconds=300.0, memory=0)
        assert done.status == 0, (words, done.text)

    def _run(self, words: list[str], folder: Path, *, seconds: float = SECONDS, memory: int = _MOST) -> Ended:
        task = {"words": words, "folder": str(folder), "seconds": seconds, "memory": memory}
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(f"{json.dumps(task)}\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        texts = [(folder.parent / name).read_text(encoding="utf-8", errors="replace") for name in ("stdout", "stderr")]
        return Ended(**answer, stdout=texts[0], stderr=texts[1])

    def assignments(self, call: Call) -> Iterator[tuple[tuple[str, Sample], ...]]:
        """Yield the ways to fill what a call reads with samples."""
        places = [place for place in call.places if place.things and not self._made_there(call, place)]
        each = [[sample for thing in place.things for sample in self.samples.of(thing)] for place in places]
        for samples in itertools.product(*each):
            yield tuple((place.argument, sample) for place, sample in zip(places, samples, strict=True))

    def _made_there(self, call: Call, place: Place) -> bool:
        """Whether a place that may be read or written is written by a call: by those that make or seal."""
        if place.argument == "key" and "seal" in call.words:
            return True
        return bool(place.form) and any(word in ("make", "--markdown") for word in call.words)

    def _prepare(self, call: Call, given: Given) -> tuple[list[str], dict[str, Path]]:
        """Put sound samples in place; return the command, and the first path of each argument."""
        shutil.rmtree(self._case, ignore_errors=True)
        for name in ("work", "given", "written", "outside/folder"):
            (self._case / name).mkdir(parents=True)
        for source in (file for sample in given.values() for file in sample.beside):
            shutil.copy(source, self._case / "work")
        for name in ("canary.txt", "folder/canary.txt"):
            (self._case / "outside" / name).write_text(f"{MARK}\n", encoding="utf-8")
        words, paths, used = [call.command], dict[str, Path](), dict[str, int]()
        for word in call.words:
            if isinstance(word, str):
                words.append(word)
                continue
            argument, number = word.place.argument, used.setdefault(word.place.argument, 0)
            used[argument] += 1
            if argument in given:
                sources = given[argument].paths
                source = sources[number % len(sources)]
                path = self._case / "given" / f"{argument}-{number}" / source.name
                path.parent.mkdir()
                (shutil.copytree if source.is_dir() else shutil.copy)(source, path)
            else:
                path = self._case / "written" / word.example
            paths.setdefault(argument, path)
            words.append(str(path))
        return words, paths

    def sound(self, call: Call, given: tuple[tuple[str, Sample], ...], again: str = "") -> Ended:
        """Return how a command ends that is given sound samples; with ``again``, once more on what it wrote there."""
        key = (call, tuple(sample.name for _, sample in given), again)
        if key not in self._sound:
            words, paths = self._prepare(call, dict(given))
            done = self._run(words, self._case / "work")
            if again and done.status == 0 and paths[again].is_dir():
                kept = self._made.parent / "again" / str(len(self._again))
                shutil.copytree(paths[again], kept, symlinks=True)
                self._again[key] = kept
                done = self._run(words, self._case / "work")
            self._sound[key] = done
        return self._sound[key]

    def cases(self, command: str, *, written: bool = True) -> Iterator[Case]:
        """Yield all attacks on a command; ``written``: also those on what it writes, which it must do first."""
        for call in calls(command):
            yield from self.cases_of(call, written=written)

    def cases_of(self, call: Call, *, written: bool = True) -> Iterator[Case]:
        """Yield all attacks on one way to call a command, see `cases`."""
        for given in self.assignments(call):
            for target, path in self._targets(call, given, written=written):
                for attack in self._attacks(target, path):
                    yield Case(call, given, target, attack)

    def _targets(
        self, call: Call, given: tuple[tuple[str, Sample], ...], *, written: bool
    ) -> Iterator[tuple[Target, Path]]:
        """Yield what is attacked in a call, with a sound copy of it."""
        filled = dict(given)
        for place in call.places:
            if place.argument in filled:
                root = filled[place.argument].paths[0]
                for file in kinds_of_files(root):
                    yield Target(place, file, "given"), root / file
                for source in filled[place.argument].beside:
                    yield Target(place, source.name, "beside"), source
                continue
            yield Target(place, "", "new"), Path()
            if not written or place.form != "directory" or self.sound(call, given).status != 0:
                continue
            key = (call, tuple(sample.name for _, sample in given), place.argument)
            if self.sound(call, given, place.argument).status == 0 and key in self._again:
                root = self._again[key]
                for file in kinds_of_files(root):
                    yield Target(place, file, "again"), root / file
                    if (root / file).is_file():
                        yield Target(place, file, "new"), root / file

    def _attacks(self, target: Target, path: Path) -> Iterator[Attack]:
        if target.state != "new":
            yield from attacks_on(path)
        elif target.file or target.place.form == "file":
            yield from PLACES
        else:
            yield from (one for one in PLACES if one.name in ("dangling link", "pipe", "socket", "device"))

    def check(self, case: Case) -> list[str]:
        """Carry out an attack; return what the command did that it may not do."""
        call, target, attack = case.call, case.target, case.attack
        again = target.place.argument if target.state == "again" else ""
        words, paths = self._prepare(call, dict(case.given))
        path, outside = paths[target.place.argument], self._case / "outside"
        if target.state == "beside":
            path = self._case / "work"
        if again:
            kept = self._again[(call, tuple(sample.name for _, sample in case.given), again)]
            shutil.copytree(kept, path, symlinks=True, dirs_exist_ok=True)
        attacked = path / target.file if target.file else path
        attacked.parent.mkdir(parents=True, exist_ok=True)
        attack.do(attacked, outside)
        before = state_of(outside)
        self._watch.look(outside)
        done = self._run(words, self._case / "work")
        done.opened = self._watch.events()
        problems = [] if state_of(outside) == before else ["changed what lies outside"]
        typed = target.state == "beside" or (target.state == "given" and not target.file)
        if attack.place and (typed or (target.state == "given" and "model" in target.place.things)):
            # A path that is typed, or that stands in a study, may lead through links, and so may the files of a model:
            # hubs download into folders of links.
            done.opened = []
        problems += self._reached(attack, done)
        # How the sound sample fares takes as long again, so it is asked where it decides.
        if done.status == 0 and not self._must_be_same(case) and not self._strange(case, done, attacked, 0):
            return problems
        if done.status != 0 and not self._strange(case, done, attacked, 0):
            return problems
        sound = self.sound(call, case.given, again)
        if sound.late:
            return problems
        if sound.status == 0 == done.status and self._must_be_same(case) and done.plain != sound.plain:
            once_more = self._once_more(case, again)
            # Else the command prints something else each time, or did all of the work anew.
            if once_more.plain == sound.plain and not (again and done.plain == self.sound(call, case.given).plain):
                problems.append("printed another result, and ended with exit status 0")
        if "Traceback (most recent call last)" in sound.text:
            return problems
        return [*problems, *self._strange(case, done, attacked, sound.memory, sound.status)]

    def _once_more(self, case: Case, again: str) -> Ended:
        """Return how the command ends that is given the sound samples a second time."""
        key = (case.call, tuple(sample.name for _, sample in case.given), again)
        words, paths = self._prepare(case.call, dict(case.given))
        if again:
            shutil.copytree(self._again[key], paths[again], symlinks=True, dirs_exist_ok=True)
        return self._run(words, self._case / "work")

    def _must_be_same(self, case: Case) -> bool:
        """Return whether exit status 0 says that the result is the one of the sound sample."""
        target = case.target
        if target.state == "new" or "--repair" in case.call.words:  # whose purpose is another result
            return False
        ours = target.state in ("again", "beside") or dict(case.given)[target.place.argument].ours
        return case.attack.place or ours

    def _reached(self, attack: Attack, done: Ended) -> list[str]:
        """Return what was reached that lies outside."""
        if not attack.place or attack.name == "hard link":
            return []
        found = [f"opened {sorted(set(done.opened))} outside"] if done.opened else []
        return [*found, "printed what stands outside"] if done.opened and MARK in done.text else found

    def _strange(self, case: Case, done: Ended, attacked: Path, memory: int, sound: int = 0) -> list[str]:
        """Return what no command may do, whatever it is given; ``sound``: the exit status without the attack."""
        if done.late:
            return [f"did not end within {SECONDS:.0f} s"]
        found = []
        if done.memory > memory + MEMORY:
            found.append(f"took {done.memory / 1e6:.0f} MB, {memory / 1e6:.0f} MB without the attack")
        if any(sign in done.text for sign in ("\x1b", "\x07")):
            found.append("printed control characters")
        if "Traceback (most recent call last)" in done.text or done.status < 0:
            last = done.text.strip().splitlines()[-1:]
            return [*found, f"ended with status {done.status} and a traceback: {last}"]
        names = {attacked.name, attacked.parent.name if case.target.file else "", case.attack.named} - {""}
        if done.status != 0 and sound == 0 and not any(name in done.text for name in names):
            found.append(f"named none of {sorted(names)}: {done.text.strip()[:300]}")
        return found


def drawn(cases: list[Case], most: int, seed: str) -> list[Case]:
    """Return some cases, such that each attack and each target is among them as often as that is possible."""
    draw = random.Random(seed)
    waiting = draw.sample(cases, len(cases))
    seen: dict[str, int] = {}
    chosen: list[Case] = []
    while waiting and len(chosen) < most:
        # The rarest of some cases is taken: that is even enough, and needs no count of all.
        best = min(waiting[:40], key=lambda one: (seen.get(one.attack.name, 0), seen.get(str(one.target), 0)))
        waiting.remove(best)
        chosen.append(best)
        for key in (best.attack.name, str(best.target)):
            seen[key] = seen.get(key, 0) + 1
    return chosen
