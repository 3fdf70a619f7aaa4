"""Before an evaluation: a batch of first turns is measured and kept; a model that cannot answer is told after it."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorder import Recorder
from tiny_models import PLAIN_TEMPLATE, llama, tokenizer

from command_line import call
from goalscope._ground.registry import resolve
from goalscope.agents import ChatAgent, Observation, Turn
from goalscope.agents.parse import EXAMPLE, LIKELIHOOD, LITTLE_MASS
from goalscope.runs import Store, Study
from goalscope.verdict import Evaluation, evaluating, subject_of
from goalscope.verdict.measured import with_seen_settings
from goalscope.verdict.plan import LEDGER, PAGE, PLAN, Plan
from goalscope.verdict.preflight import first_turns
from goalscope.verdict.preflight.first_turns import FirstTurns, Portion, why_unusable, without_action
from goalscope.verdict.preflight.forecast import forecast
from goalscope.worlds.planning import optimal_actions
from planted_findings import stated


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One arm is asked, of one world a cell, so that an evaluation takes seconds."""
    listed = [replace(resolve("arm", "grids"), quick=1)]
    monkeypatch.setattr(evaluating, "arms", lambda: listed)
    monkeypatch.setattr("goalscope.verdict.plan.arms", lambda: listed)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Observation]:
    """What chat agents are asked; each acts optimally, but for every fourth turn, which holds no action."""
    seen = list[Observation]()

    def act(self: ChatAgent, observations: Sequence[Observation]) -> list[Turn]:
        turns = []
        for one in observations:
            seen.append(one)
            assert one.grid.start is not None
            usage, best = (
                {"prompt_tokens": 100.0, "output_tokens": 10.0},
                min(optimal_actions(one.grid, one.grid.start)),
            )
            failing = len(seen) % 4 == 0
            said: dict[str, Any] = {"action": None, "failure": "truncated"} if failing else {"action": int(best)}
            turns.append(Turn(**said, text="I go", usage=usage))
        return turns

    monkeypatch.setattr(ChatAgent, "act", act)
    return seen


def model(folder: Path, positions: int = 4096) -> Path:
    """A tiny random model that writes nonsense."""
    llama(positions=positions).save_pretrained(folder)
    tokenizer(PLAIN_TEMPLATE, added=()).save_pretrained(folder)
    return folder


def headline(directory: Path) -> str:
    """The first sentence of the verdict on the page."""
    text = (directory / PAGE).read_text()
    return " ".join(text[text.index("Nothing can be said") :].split("<")[0].split())


@pytest.mark.usefixtures("few")
def test_what_is_asked_first_is_announced_kept_and_not_asked_again(tmp_path: Path, asked: list[Observation]) -> None:
    words = ("evaluate", model(tmp_path / "small"), "--quick", "--out", tmp_path / "out")
    dry = " ".join(call(*words, "--dry-run").split())
    first = len(asked)
    assert 5 < first <= 9 and stated("plan/timed", dry) and f"{first} first moves in" in dry
    assert stated("plan/first moves of a server", dry)
    assert all(stated(f"plan/{key}", dry) for key in ("expected", "tokens", "memory"))
    assert Plan.read(tmp_path / "out" / PLAN).looks == ()
    said = " ".join(call(*words).split())
    assert stated("plan/timed before", said) and f"small: {first} first moves" in said
    keys = [(one.episode_id, one.step, one.attempt) for one in asked]
    assert len(set(keys)) == len(keys), "no turn was asked for twice"
    with Store(tmp_path / "out" / "arms" / "grids") as store:
        assert store.query("SELECT count(*) FROM calls WHERE state = 'done'")[0][0] == sum(
            len(episode.steps) for episode in store.episodes()
        )
    plan = Plan.read(tmp_path / "out" / PLAN)
    count = len(asked)
    call(*words)
    assert len(asked) == count and Plan.read(tmp_path / "out" / PLAN) == plan


@pytest.mark.usefixtures("few")
def test_a_budget_of_tokens_is_not_spent_on_measuring(tmp_path: Path, asked: list[Observation]) -> None:
    words = ("evaluate", model(tmp_path / "small"), "--out", tmp_path / "out", "--dry-run")
    call(*words, "--budget", "100k-tokens")
    assert 110 * len(asked) <= 10_000
    with Store(tmp_path / "out" / "arms" / "grids") as store:
        assert not store.episode_ids()


@pytest.mark.usefixtures("few")
def test_a_model_that_answers_in_prose_alone_ends_in_a_page_that_says_so(tmp_path: Path) -> None:
    words = ("evaluate", model(tmp_path / "talker"), "--answer", "generated", "--quick", "--out", tmp_path / "out")
    said = " ".join(call(*words).split())
    shown = headline(tmp_path / "out")
    assert stated("verdict/nothing", shown) and stated("plan/no move in any", shown)
    assert not stated("plan/by likelihood", said) and "--answer likelihood" in shown and shown[:60] in said
    [ledger] = Evaluation.read(tmp_path / "out" / LEDGER).models
    assert not ledger.claims and ledger.look == 1
    with Store(tmp_path / "out" / "arms" / "grids") as store:
        before = store.query("SELECT count(*) FROM calls")[0][0]
        assert before >= first_turns.FEWEST and not store.episode_ids()
    call(*words)
    with Store(tmp_path / "out" / "arms" / "grids") as store:
        assert store.query("SELECT count(*) FROM calls")[0][0] == before


@pytest.mark.usefixtures("few")
def test_a_model_that_answers_in_prose_alone_chooses_among_answers(
    tmp_path: Path, asked: list[Observation], monkeypatch: pytest.MonkeyPatch
) -> None:
    act = ChatAgent.act

    def prose(self: ChatAgent, observations: Sequence[Observation]) -> Sequence[Turn]:
        turns = act(self, observations)
        failing = Turn(action=None, failure="no JSON", text="I go", usage=turns[0].usage)
        return turns if self.choice is not None else [failing] * len(turns)

    monkeypatch.setattr(ChatAgent, "act", prose)
    words = ("evaluate", model(tmp_path / "talker"), "--arms", "grids", "--quick", "--out", tmp_path / "out")
    said = " ".join(call(*words).split())
    assert stated("plan/by likelihood", said)
    plan, count = Plan.read(tmp_path / "out" / PLAN), len(asked)
    [entry] = plan.models
    assert entry["answer"] == "likelihood" and entry["name"] == "talker"
    [ledger] = Evaluation.read(tmp_path / "out" / LEDGER).models
    assert "answer: likelihood" in ledger.described
    again = " ".join(call(*words).split())  # the same command goes on, and asks nothing twice
    assert not stated("plan/by likelihood", again)
    assert len(asked) == count and Plan.read(tmp_path / "out" / PLAN) == plan
    assert "another evaluation" in call(*words, "--answer", "generated", status=2)


def test_answers_are_cut_off_where_the_longest_valid_ones_end(tmp_path: Path) -> None:
    subject, limits = subject_of(str(model(tmp_path / "small"))), first_turns.Limits()
    first = first_turns.FirstTurns(asked=12, failures={"truncated": 2}, longest=256, longest_valid=80)
    changed, reason = with_seen_settings(subject, first, limits) or (subject, "")
    assert changed.parameters["max_tokens"] == 160 and changed.name == "small" and stated("plan/fewer tokens", reason)
    for other in ({"longest": 150}, {"longest_valid": 130}, {"asked": 5}):
        assert with_seen_settings(subject, first.model_copy(update=other), limits) is None
    assert with_seen_settings(subject.changed(["max_tokens=256"]), first, limits) is None


@pytest.mark.full
@pytest.mark.usefixtures("few")
def test_a_server_that_always_says_the_same_prose_is_told_of_by_what_it_says(tmp_path: Path) -> None:
    """Its trials refuse it, as it heeds no temperature; what a user must know is that its answers hold no action."""
    with Recorder("I think that going up would be best here.") as server:
        call("evaluate", f"openai:talker@{server.url}", "--quick", "--out", tmp_path / "out")
    shown = headline(tmp_path / "out")
    assert "Nothing can be said about the goals of talker: none of" in shown and "going up" in shown
    with Recorder('{"action": "UP"}') as server:  # one whose answers could be used is refused by its trials
        said = call("evaluate", f"openai:mule@{server.url}", "--quick", "--out", tmp_path / "mule", status=1)
    assert "temperature" in said and "temperature" in headline(tmp_path / "mule")


@pytest.mark.usefixtures("few")
def test_a_server_that_stops_half_way_is_the_reason_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    stopped = [False]

    def answer(before: int) -> str | None:
        return None if stopped[0] and before > 40 else f'{{"action": "{("UP", "DOWN", "LEFT", "RIGHT")[before % 4]}"}}'

    words = ("--quick", "--arms", "grids", "--out", tmp_path / "out", "--set", "server.retries=1")
    journal = "SELECT count(*) FROM calls WHERE state = 'done'"
    with Recorder(answer) as server:
        stopped[0] = True
        said = call("evaluate", f"openai:halfway@{server.url}", *words, status=1)
        shown = headline(tmp_path / "out")
        assert "server.retries (1)" in shown and "left out" not in shown and stated("failed/retry", said)
        with Store(tmp_path / "out" / "arms" / "grids") as store:
            kept, episodes = store.query(journal)[0][0], len(store.episode_ids())
        assert kept >= 30
        stopped[0] = False
        asked = len(server.requests)
        said = call("evaluate", f"openai:halfway@{server.url}", *words)
        assert f"{episodes} episode" in said and stated("plan/stored", said)
        again = len(server.requests) - asked
        with Store(tmp_path / "out" / "arms" / "grids") as store:
            assert store.query(journal)[0][0] == kept + again
    [ledger] = Evaluation.read(tmp_path / "out" / LEDGER).models
    assert ledger.claims


@pytest.mark.full
@pytest.mark.usefixtures("few")
def test_what_a_slow_model_does_is_told_during_its_first_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope._ground.progress.QUIET_SECONDS", 0.3)

    def answer(before: int) -> str:
        time.sleep(0.2 if before < 20 else 0.0)  # its trials come first
        return f'{{"action": "{("UP", "DOWN", "LEFT", "RIGHT")[before % 4]}"}}'

    with Recorder(answer) as server:
        words = ("--quick", "--dry-run", "--out", tmp_path / "out")
        said = call("evaluate", f"openai:slow@{server.url}", *words).splitlines()
    told = [line for line in said if line.startswith("first turns of slow: ")]
    assert len(told) >= 2 and "(1 in progress)" in told[0] and "tokens/s" in told[-1]


@pytest.mark.full
@pytest.mark.usefixtures("few")
def test_of_two_models_the_one_that_answers_is_evaluated(tmp_path: Path) -> None:
    call("evaluate", model(tmp_path / "talker"), "optimal", "--quick", "--out", tmp_path / "out")
    talker, optimal = Evaluation.read(tmp_path / "out" / LEDGER).models
    assert not talker.claims and stated("plan/no move in any", talker.arms[0].why)
    assert optimal.claims and all(arm.asked for arm in optimal.arms)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    kept.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        for connection in kept:
            connection.close()


@pytest.mark.usefixtures("few")
def test_a_server_that_never_answers_ends_in_a_page_that_says_so(
    tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_turns, "PATIENCE", 1.0)
    monkeypatch.setattr("goalscope.agents.models.http_client._LOOK", 0.2)
    call("evaluate", f"openai:mute@{silent}", "--quick", "--out", tmp_path / "out", status=1)
    assert stated("plan/silent", headline(tmp_path / "out"))
    assert "within 1 seconds" in headline(tmp_path / "out")
    server: Any = subject_of(f"openai:mute@{silent}").parameters["server"]
    assert "timeout" not in server, "what the user names is kept to"


@pytest.mark.usefixtures("few")
def test_an_address_at_which_no_server_listens_is_named_and_more_time_is_not_proposed(tmp_path: Path) -> None:
    address = "http://127.0.0.1:9/v1"
    words = ("--quick", "--arms", "grids", "--set", "server.retries=0", "--out", tmp_path / "out")
    shown = " ".join(call("evaluate", f"openai:mute@{address}", *words, status=1).split())
    assert f"{address} cannot be reached" in shown and "refused" in shown and "start the server" in shown
    assert "server.timeout" not in shown and "server.patience" not in shown and "All answers" not in shown
    for model in ((), ("--model", "mute")):
        shown = " ".join(call("doctor", "--server", address, *model, status=2).split())
        assert f"{address} cannot be reached" in shown and "refused" in shown and "--model" not in shown
    shown = " ".join(call("doctor", "--server", "http://nowhere.invalid:9/v1", status=2).split())
    assert "http://nowhere.invalid:9/v1 cannot be reached" in shown and "host" in shown


@pytest.mark.parametrize(
    ("failures", "facts"),
    [
        ({"no JSON": 3, "empty": 1}, ["4 of its first 8", "3 prose", "1 empty", "--answer likelihood"]),
        ({"truncated": 8}, ["none of its first 8", "max_tokens", "“So”"]),
        ({"little mass": 5}, ["least_mass", "--template completion"]),
        ({"of its own": 8}, ["8 of its own"]),
    ],
)
def test_what_helps_follows_from_what_the_answers_are(failures: dict[str, int], facts: list[str]) -> None:
    told = without_action(FirstTurns(asked=8, failures=failures, example="So"))
    assert all(fact in told for fact in facts)
    assert without_action(FirstTurns(asked=8)) == ""


@pytest.mark.parametrize("failure", ["no JSON", "empty", "unknown action", "two different actions", "x"])
def test_what_was_used_is_not_proposed(failure: str) -> None:
    told = without_action(FirstTurns(asked=1, failures={failure: 1}, used=(LIKELIHOOD, EXAMPLE)))
    assert not any(word in told for word in ("--answer likelihood", "--template example"))
    assert told.rpartition(": ")[2]


def test_the_rates_of_a_batch_are_refused_without_a_turn(tmp_path: Path) -> None:
    study = resolve("arm", "grids").make([subject_of("optimal")], 1, 5)
    with pytest.raises(ValueError, match="at least one turn"):
        forecast(study, study.agents()[0], {}, FirstTurns())


def timed(longest: Sequence[int], **fields: Any) -> FirstTurns:
    """A batch whose portions take 0.1 s for each token of their longest answer, and 2 s for each turn."""
    turns = [2**number for number in range(len(longest))]
    portions = tuple(
        Portion(turns=count, longest=most, seconds=0.1 * most + 2 * count)
        for count, most in zip(turns, longest, strict=True)
    )
    asked = sum(turns)
    usage = {"output_tokens": 7.0 * asked, "prompt_tokens": 500.0 * asked}
    return FirstTurns(asked=asked, scored=asked, optimal=asked, counted=500, usage=usage, portions=portions, **fields)


def grids(agent: str, **settings: Any) -> Study:
    made = resolve("arm", "grids").make([subject_of(agent)], 1, 5)
    return Study.parse({**made.dump(), **settings})


def seconds_of(study: Study, first: FirstTurns) -> float:
    return float(forecast(study, study.agents()[0], study.agents_[0].parameters, first).seconds[1])


def test_second_answers_are_turns_of_a_forecast() -> None:
    once, twice = grids("optimal"), grids("optimal", answers=2)
    first = timed([7, 7, 7])
    turns = [forecast(study, study.agents()[0], {}, first).turns for study in (once, twice)]
    assert (turns[1] == 2 * turns[0]).all()


def test_an_answer_that_rambles_does_not_change_the_time_of_the_others() -> None:
    """In a run it is written beside the answers of other episodes."""
    study = grids("optimal")
    assert seconds_of(study, timed([7, 7, 128, 7])) == pytest.approx(seconds_of(study, timed([7, 7, 7, 7])))


@pytest.mark.filterwarnings("ignore:.*does not mark reasoning")
def test_what_a_local_model_has_read_is_not_read_again(tmp_path: Path) -> None:
    """A second episode in the same world begins with the same prompt; whether a server reads it again is not known."""
    local, first = str(model(tmp_path / "small")), timed([7, 7, 7, 7], shared=0.5)
    for agent, again in ((local, False), ("openai:x@http://127.0.0.1:9/v1", True)):
        once, twice = (grids(agent, trajectories=count, horizon={"steps": 1}) for count in (1, 2))
        ratio = seconds_of(twice, first) / seconds_of(once, first)
        assert ratio > 1.9 if again else 1.1 < ratio < 1.6, (agent, ratio)
    long, short = (grids(local, horizon={"steps": steps}) for steps in (6, 1))
    turns = [forecast(study, study.agents()[0], {"model": local}, first).turns[1] for study in (long, short)]
    assert seconds_of(long, first) / seconds_of(short, first) < 0.9 * turns[0] / turns[1]


def test_the_advice_for_improbable_actions_is_complete_and_says_how_improbable_they_are() -> None:
    """The command that it names works as it stands: least_mass is refused without likelihoods, and needs a value."""
    first = FirstTurns(asked=8, failures={LITTLE_MASS: 8}, used=(LIKELIHOOD,), mass=0.00031)
    said = why_unusable(first)
    assert "--answer likelihood --set least_mass=0" in said and "0.00031" in said and "--out" in said
    assert stated("plan/little mass", said)
