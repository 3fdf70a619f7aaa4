"""The program as somebody uses it who has nothing but its messages: each command runs, and so does what it proposes."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from documented import PROGRAM, is_form, problem

# Where a sentence goes on behind a command.
_STOP = re.compile(
    r"`|[;)]|[,:](?=\s|$)|\.(?=\s|$)|\s(?:\(|–|- )|\s(?:or|and|to|where|if|for|with|after|then|says|shows|lists|"
    r"writes|fits|also|again|before|which|that|is|in|on|first|does|prints)(?=\s|$)"
)
_COMMAND = re.compile(r"(?<![\w./-])goalscope ((?:--own-code )?[a-z][\w-]*)")
# What takes minutes or downloads, as proposed: only that the program takes the words is asked.
LONG = frozenset({"evaluate", "demo", "reproduce"})
# Not `python -m goalscope`, which looks for modules in the working directory first, as Python does.
PROGRAM_FILE = Path(sys.executable).with_name("goalscope")
# No page, table or message may show these, whatever happens.
FAULTS = ("Traceback", "fault of goalscope")


def proposed(text: str) -> Iterator[str]:
    """Yield each command that a text proposes, without the sentence around it."""
    for found in _COMMAND.finditer(text):
        name = found[1].removeprefix("--own-code ")
        if name not in PROGRAM.commands:
            continue
        quoted = found.start() > 0 and text[found.start() - 1] == "`"
        rest = text[found.end() :].partition("\n")[0]
        end = re.search("`", rest) if quoted else _STOP.search(rest)
        yield f"goalscope {found[1]}{rest[: end.start()] if end else rest}".rstrip(" .")


@dataclass
class Program:
    """The program in a folder: `COMMAND` in processes of its own, all that they propose collected.

    Attributes:
        folder: the working directory.
        site: a folder with packages that are installed, None for none.
        before: words before the command, such as those of a program that takes rights away.
        proposals: each proposed command, with the command that proposed it.
        ran: the commands that ran, as text.
    """

    folder: Path
    site: Path | None = None
    before: tuple[str, ...] = ()
    proposals: dict[str, str] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)

    def __call__(self, *words: object, status: int | tuple[int, ...] = 0) -> str:
        """Run a command, require its exit status and no traceback, and return all that it printed."""
        line = shlex.join(["goalscope", *map(str, words)])
        # So wide that no path and no sentence is broken.
        environment = {**os.environ, "COLUMNS": "2000", "HF_HUB_OFFLINE": "1"}
        if self.site is not None:
            environment["PYTHONPATH"] = str(self.site)
        command = [*self.before, str(PROGRAM_FILE), *map(str, words)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=self.folder, check=False, timeout=500
        )
        said = done.stdout + done.stderr
        assert done.returncode in (status if isinstance(status, tuple) else (status,)), f"{line}: {said}"
        assert not [fault for fault in FAULTS if fault in said], f"{line}: {said}"
        self.ran.add(line)
        if "--help" not in words:
            for proposal in proposed(said):
                self.proposals.setdefault(proposal, line)
        return said

    def follow(self, places: Mapping[str, str], statuses: Mapping[str, int] | None = None) -> set[str]:
        """Run every command that was proposed and did not run, and what these propose in their turn.

        Args:
            places: what stands for a word in capitals of a proposal ("RUN", "DIR", "TEXT"...).
            statuses: exit status of a command by its text where it is another than 0 or 1.

        Returns:
            What ran, as it was proposed.
        """
        followed: set[str] = set()
        while left := [line for line in self.proposals if line not in followed]:
            for line in left:
                followed.add(line)
                by = self.proposals[line]
                whole = " ".join(places.get(word, word) for word in line.replace("...", "").split())
                assert not is_form(whole), f"{by} proposes {line}: nothing stands for its words in capitals"
                if whole in self.ran:
                    continue
                words = shlex.split(whole)[1:]
                wrong = problem(whole.replace(" --own-code", ""))
                assert wrong is None, f"{by} proposes {line}: {wrong}"
                if words[0] in LONG:
                    self(words[0], "--help")
                else:
                    self(*words, status=(statuses or {}).get(line, (0, 1)))
        return followed
