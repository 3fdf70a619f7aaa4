import json
from pathlib import Path
from typing import Any

import pytest
from http_studies import study, template
from hypothesis import given
from hypothesis import strategies as st
from server import Loopback, speaker
from tiny_models import gpt_oss, request, tokenizer

from families import long_after
from goalscope.agents import agent_id, build_agent
from goalscope.agents.models import Caps, HttpModel, LocalModel, Model, NotSentError, Prices, Reply, Sampling, Server
from goalscope.agents.models.http_answers import chat_answer, completions_answer
from goalscope.agents.models.http_errors import retry_after
from goalscope.agents.models.http_settings import CallBudget, GarbledError
from goalscope.agents.models.marks import Marks
from goalscope.runs import Store, run
from goalscope.runs.provenance import noted_of_answers

GREEDY = Sampling(temperature=0.0, max_tokens=12, reasoning_effort=None)
REQUESTS = [request(f"state {number} " + "#_" * number, episode=f"episode-{number}") for number in range(6)]


@pytest.fixture(scope="module")
def talker() -> LocalModel:
    """A random model with harmony channels."""
    return LocalModel.from_parts(gpt_oss(), tokenizer(), name="speaker")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, talker: LocalModel) -> Path:
    path = tmp_path_factory.mktemp("words")
    talker.tokenizer.save_pretrained(path)
    return path


def http(server: Loopback, model: str = "speaker", **changes: Any) -> HttpModel:
    where = {key: changes.pop(key) for key in list(changes) if key in Server.model_fields}
    return HttpModel(
        model, server=Server(base_url=server.url, **{"timeout": 5.0, "retries": 2, "backoff": 0.01, **where}), **changes
    )


@pytest.mark.parametrize("temperature", long_after(1, [0.0, 1.0]))
@pytest.mark.parametrize("ids", ["token_ids", "logprobs"])
def test_completions_mode_gives_what_the_model_gives(
    ids: str, temperature: float, talker: LocalModel, words: Path
) -> None:
    sampling = Sampling(temperature=temperature, max_tokens=12, top_logprobs=2, reasoning_effort="low")
    with Loopback(talker, ids=ids) as server:
        model = http(server, mode="completions", tokenizer=str(words))
        assert isinstance(model, Model)
        found = model.complete(REQUESTS, sampling)
        bodies = [entry.body for entry in server.log]
    assert all(body["temperature"] == temperature and body["skip_special_tokens"] is False for body in bodies)
    assert len({body.get("seed") for body in bodies}) == (len(REQUESTS) if temperature else 1)
    if temperature == 0:
        alone = [talker.complete([asked], sampling)[0] for asked in REQUESTS]
        for mine, theirs in zip(found, alone, strict=True):
            for name in ("parts", "prompt_tokens", "output_tokens", "finish", "raw", "unsupported"):
                assert getattr(mine, name) == getattr(theirs, name), name
            assert json.loads(json.dumps(mine.logprobs)) == [
                {**entry, "top": [list(pair) for pair in entry["top"]]} for entry in theirs.logprobs or ()
            ]
            assert not mine.reconstructed and mine.usage["output_tokens"] == len(mine.output_tokens or ())


def test_ids_made_again_from_the_text_are_marked_and_checked(talker: LocalModel, words: Path) -> None:
    expected = talker.complete(REQUESTS, GREEDY)
    rejecting = ("return_token_ids",)
    for shift, rejects, reason in ((0, (), True), (0, (), False), (0, rejecting, True), (7, (), True)):
        with Loopback(talker, ids="", shift=shift, rejects=rejects, stop_reason=reason) as server:
            found = http(server, mode="completions", tokenizer=str(words)).complete(REQUESTS, GREEDY)
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine.output_tokens is None) != mine.reconstructed
            ids = theirs.output_tokens or ()
            # Where it is not known which token ended the output, it is left off.
            known = ids[:-1] if theirs.finish == "stop" and not reason else ids
            assert mine.output_tokens in (known, None)
            assert ("token_ids" in mine.unsupported) == (mine.output_tokens is None or bool(rejects))
            assert (mine.answer, mine.reasoning) == (theirs.answer, theirs.reasoning)
        assert any(mine.reconstructed for mine in found) == (shift == 0)


def test_a_server_that_changes_the_prompt_is_refused(talker: LocalModel, words: Path) -> None:
    body = {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    with Loopback(talker, override=body) as server, pytest.raises(ValueError, match=r"read 3.*server\.tokenizer"):
        http(server, mode="completions", tokenizer=str(words)).complete(REQUESTS, GREEDY)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["reasoning_effort", "top_logprobs", "seed"])
def test_a_parameter_without_a_place_is_refused_or_recorded(name: str, strict: bool) -> None:
    sampling = Sampling(temperature=0.5, max_tokens=3, reasoning_effort="low", top_logprobs=2)
    with Loopback(speaker(), rejects=(name,), strict=strict) as server:
        with pytest.raises(ValueError, match=rf"(?s){name}.*unsupported: record"):
            http(server).complete(REQUESTS[:1], sampling)
        found = http(server, unsupported="record").complete(REQUESTS[:3], sampling)
        assert [completion.unsupported for completion in found] == [(name,)] * 3
        assert [name in entry.body for entry in server.log] == [True, True, False, False, False]


def test_log_probabilities_are_kept_and_their_absence_is_no_secret() -> None:
    sampling = Sampling(temperature=0.0, max_tokens=3, reasoning_effort=None, top_logprobs=2)
    model = speaker()
    (theirs,) = model.complete(REQUESTS[:1], sampling)
    with Loopback(model) as server:
        (mine,) = http(server).complete(REQUESTS[:1], sampling)
    assert mine.logprobs is not None and theirs.logprobs is not None
    assert [entry["logprob"] for entry in mine.logprobs] == [entry["logprob"] for entry in theirs.logprobs]
    assert [entry["token"] for entry in mine.logprobs] == [
        model.tokenizer.decode(entry["token"]) for entry in theirs.logprobs
    ]
    with Loopback(model, ignores_logprobs=True) as server:
        with pytest.raises(ValueError, match="top_logprobs"):
            http(server).complete(REQUESTS[:1], sampling)
        (completion,) = http(server, unsupported="record").complete(REQUESTS[:1], sampling)
        assert completion.unsupported == ("top_logprobs",) and completion.logprobs is None


SECRET = "sk-very-secret-0123456789"


def test_keys_come_from_the_environment_and_stand_in_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Loopback(speaker(), key=SECRET, models=("speaker", SECRET)) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else-123")
        with pytest.raises(PermissionError, match=r"server\.key_env"):
            http(server).complete(REQUESTS[:1], GREEDY)
        assert server.log[-1].authorization == "Bearer none", "the hosted key goes to no other server"
        with pytest.raises(PermissionError, match="MY_KEY"):
            http(server, key_env="MY_KEY").complete(REQUESTS[:1], GREEDY)
        monkeypatch.setenv("MY_KEY", SECRET[::-1])
        with pytest.raises(PermissionError, match="MY_KEY") as caught:
            http(server, key_env="MY_KEY").complete(REQUESTS[:1], GREEDY)
        assert SECRET[::-1] not in str(caught.value) and "***" in str(caught.value)
        monkeypatch.setenv("MY_KEY", SECRET)
        assert http(server, key_env="MY_KEY").complete(REQUESTS[:1], GREEDY)[0].finish in ("stop", "length")
        monkeypatch.setenv("MY_KEY", "speaker-2")
        with pytest.raises(PermissionError) as caught:
            http(server, key_env="MY_KEY").complete(REQUESTS[:1], GREEDY)
        assert "speaker-2" not in str(caught.value)


def test_what_cannot_get_better_is_asked_once_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with Loopback(speaker()) as server:
        with pytest.raises(ValueError, match=r"server\.base_url.*/models"):
            http(server, model="other").complete(REQUESTS[:1], GREEDY)
        assert len(server.log) == 1
    with Loopback(speaker(), rejects=("temperature",)) as server:
        with pytest.raises(ValueError, match="temperature"):
            http(server).complete(REQUESTS[:1], GREEDY)
        assert len(server.log) == 1
    with pytest.raises(ConnectionError, match=r"cannot be reached.*3 requests"):
        http(server).complete(REQUESTS[:1], GREEDY)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"server": {"base_url": "http://me:hunter2@host/v1"}}, "server.base_url must not contain a user, password"),
        ({"server": {"base_url": "file:///etc"}}, "server.base_url must be an address"),
        ({"server": {"mode": "telepathy"}}, "server.mode must be 'chat' or 'completions'"),
        ({"server": {"key_env": "sk-hunter2"}}, "server.key_env must be the name of an environment variable"),
        ({"server": {"timeout": "soon"}}, "server.timeout must be a valid number"),
        ({"server": {"timeout": 0}}, "server.timeout must be greater than 0"),
        ({"server": {"retries": True}}, "server.retries must be a valid integer"),
        ({"server": {"adress": "x"}}, "server.adress: unknown key"),
        ({"server": {"tokenizer": "x"}}, "server.tokenizer must be left out in mode chat"),
        ({"server": {"body": {"model": "x"}}}, "server.body must not contain model"),
        ({"prices": {"input": 1.0, "output": 2.0}}, "prices.date must be given"),
        ({"prices": {"input": 1.0, "output": 2.0, "date": "soon"}}, "prices.date must be a date"),
        ({"prices": {"input": -1.0, "output": 2.0, "date": "2025-01-01"}}, "prices.input must be"),
        ({"caps": {"usd": 1.0}}, "caps.usd needs prices"),
        ({"caps": {"calls": -1}}, "caps.calls must be"),
        ({"caps": {"euro": 1}}, "caps.euro: unknown key; valid: calls, tokens, usd"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"device": "cpu"}, "device works only for local models"),
        ({"reasoning": "harmony"}, "reasoning must be auto, think, none or"),
        ({"today": "2025-08-05"}, "today works only in mode completions"),
    ],
)
def test_wrong_entries_are_named_and_secrets_not_repeated(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        study("http://127.0.0.1:1/v1", template(tmp_path), **changes)
    assert said in str(caught.value) and "hunter2" not in str(caught.value)
    assert "agents[0]" in str(caught.value)


def test_what_changes_answers_enters_the_identity_and_nothing_else(words: Path, tmp_path: Path) -> None:
    task = template(tmp_path)
    base = study("http://127.0.0.1:1/v1", task)
    same = study("http://other:2/v1", task, server={"timeout": 9, "retries": 1}, caps={"calls": 1}, concurrency=3)
    assert same.id == base.id and agent_id(same.agents()[0]) == agent_id(base.agents()[0])
    different = [
        study("http://other:2/v1", task, **changes)
        for changes in (
            {"revision": "2"},
            {"model": "another"},
            {"reasoning": "none"},
            {"server": {"body": {"top_k": 5}}},
            {"server": {"mode": "completions", "tokenizer": str(words)}},
            {"template_options": {"thinking": False}},
        )
    ]
    assert len({agent_id(other.agents()[0]) for other in [base, *different]}) == len(different) + 1
    assert len({other.id for other in [base, *different]}) == len(different) + 1
    with pytest.raises(ValueError, match="prices"):
        build_agent("chat", {"model": str(words), "prices": {}})


def test_usage_holds_tokens_requests_and_usd(tmp_path: Path) -> None:
    prices = Prices(input=1.0, output=10.0, date="2025-08-05")
    with Loopback(speaker()) as server:
        (found,) = http(server, prices=prices).complete(REQUESTS[:1], GREEDY)
        read, said = found.usage["prompt_tokens"], found.usage["output_tokens"]
        assert found.usage["usd"] == pytest.approx((read + 10 * said) / 1e6) and found.usage["requests"] == 1
    with Loopback(speaker(), usage=False) as server:
        model = http(server, prices=prices)
        (found,) = model.complete(REQUESTS[:1], GREEDY)
        assert found.usage["tokens_at_most"] >= read + 12 and found.usage["usd"] > (read + 10 * said) / 1e6
        assert model.budget.tokens == found.usage["tokens_at_most"]
    with Loopback(speaker()) as server:
        few = study(server.url, template(tmp_path), caps={"tokens": 3})
        with pytest.raises(ValueError, match=r"0 of 3 tokens"):
            run(few, tmp_path / "run")
        assert not server.log


def test_a_budget_is_never_exceeded() -> None:
    budget = CallBudget(Caps(tokens=100), None)
    with budget.reserve(30, 20) as first:
        with first.request():
            pass
        first.settle(30, 5)
    assert budget.tokens == 35
    with budget.reserve(10, 50) as second, second.request():  # nothing is known of its cost
        pass
    with pytest.raises(NotSentError), budget.reserve(10, 56):
        pass
    budget.begin({"requests": 3, "lost": 2, "prompt_tokens": 50, "output_tokens": 1, "tokens_at_most": 10})
    assert (budget.calls, budget.tokens) == (5, 61)


def test_the_pause_that_a_server_asks_for_is_read() -> None:
    assert retry_after({"retry-after": "2.5"}) == 2.5
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert retry_after({"retry-after": "Fri, 21 Oct 2633 07:28:00 GMT"}) > 1e5
    assert retry_after({"retry-after": "later"}) == retry_after({"retry-after": "nan"}) == retry_after({}) == 0.0


def test_reasoning_is_kept_where_the_server_hands_it_over() -> None:
    def read(message: dict[str, Any], reasoning: str = "auto") -> Reply:
        body = {"choices": [{"message": message, "finish_reason": "stop"}]}
        return chat_answer(body, Marks.of(reasoning)).reply

    assert read({"content": "a", "reasoning_content": "r"}).reasoning == "r"
    assert read({"content": "a", "reasoning": "r"}).reasoning == "r"
    refused = read({"content": None, "refusal": "no"})
    assert (refused.answer, refused.finish, refused.error) == ("", "withheld", "no")
    assert read({"content": [{"type": "thinking"}, {"type": "text", "text": "a"}]}).answer == "a"
    tagged = "<think>r</think>a"
    assert (read({"content": tagged}).answer, read({"content": tagged}).reasoning) == ("a", "r")
    assert read({"content": tagged}, "none").answer == tagged
    assert read({"content": "r</think>a"}, "think").answer == "a"


HUGE = 10**3999


@pytest.mark.parametrize("key", ["prompt_tokens", "completion_tokens", "completion_tokens_details"])
def test_a_usage_of_4000_digits_keeps_the_answer_and_counts_up_to_a_bound(tmp_path: Path, key: str) -> None:
    prices = {"input": 1.0, "output": 1.0, "date": "2025-08-05"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, key: {"reasoning_tokens": HUGE} if "details" in key else HUGE}
    body = {"choices": [{"message": {"content": "UP"}, "finish_reason": "stop"}], "usage": usage}
    with Loopback(speaker(), override=body) as server:
        few = study(server.url, template(tmp_path), server={"retries": 1}, prices=prices, count=1, trajectories=1)
        assert run(few, tmp_path / "run").calls == 5 == len(server.log), "no answer is asked for again"
    with Store(tmp_path / "run") as store:
        found = [json.loads(usage) for (usage,) in store.query("SELECT usage FROM calls WHERE state = 'done'")]
        notes = noted_of_answers(store)
    for cost in found:
        assert "reasoning_tokens" not in cost and ("usage_doubted" in cost) == ("details" not in key)
        # The grid of 7 x 7 and the template: fewer than 700 tokens can be reserved for them.
        assert cost["prompt_tokens"] + cost["output_tokens"] <= 16 * (700 + 3)
        assert cost["usd"] == pytest.approx((cost["prompt_tokens"] + cost["output_tokens"]) / 1e6)
    assert any("5 of 5 answers report" in line for line in notes) == ("details" not in key)


def test_other_huge_numbers_of_a_response_are_garbled() -> None:
    held = {"tokens": ["token_id:1"], "token_logprobs": [-HUGE]}
    rest: list[dict[str, Any]] = [{"logprobs": held}, {"stop_reason": HUGE}, {"token_ids": [HUGE]}]
    for choice in ({"text": "UP", **part} for part in rest):
        with pytest.raises(GarbledError):
            completions_answer({"choices": [choice]})


@pytest.mark.parametrize("top", [[1], [None], ["a"], [[]], [{}], [{"token": 3, "logprob": 0.0}], 1, "a"])
def test_alternatives_that_are_none_are_garbled(top: Any) -> None:
    token = {"token": "a", "logprob": -1.0, "top_logprobs": top}
    with pytest.raises(GarbledError):
        chat_answer({"choices": [{"message": {"content": "UP"}, "logprobs": {"content": [token]}}]}, None)


KEYS = ["choices", "message", "content", "text", "usage", "prompt_tokens", "logprobs", "tokens", "token_logprobs"]
KEYS += ["top_logprobs", "token_ids", "reasoning", "finish_reason", "stop_reason", "token", "logprob"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_a_hostile_body_is_an_answer_or_garbled(inner: Any, outer: Any) -> None:
    for body in ({"choices": [inner]}, {"choices": [{"message": inner, "text": "x", "logprobs": outer}]}):
        for read in (lambda found: chat_answer(found, None), completions_answer):
            try:
                answer = read(body)
            except GarbledError:
                continue
            assert isinstance(answer.reply, Reply)
