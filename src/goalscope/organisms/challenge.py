"""Challenges: organisms whose truth stays sealed while others make claims about them.

Sealing splits a set in two. The *challenge* can be given away. It contains the weights, the form needed to run them, a
bank of hypotheses, worlds to look at, and for each organism the hash of its truth with an individual salt:

    seal = SHA-256(salt, truth)          truth: its card, and the rule of the bank measured in the challenge's worlds

The *key* stays with the person who sealed the challenge. It contains the salts, the truths and the separating worlds.
Claims are frozen in the challenge directory. Opening checks every seal against the key, and writes the key to
`opened.json` together with the ids of the claims made so far; later claims are scored too, but marked. Everything is
stored in files. To prove that a claim came first, publish its id, which the command prints.

Weights cannot be hidden, so anyone can run an organism in worlds of their own and learn what can be learned that way.
The form of the weights distinguishes some families. Choose a seed of the set that nobody can guess, because the same
seed trains the same organisms.
"""

import secrets
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from goalscope._ground.folder import Folder, anything_at
from goalscope._ground.ids import canonical_json
from goalscope._ground.sealed import SealedRecord, Sha256, Share, StrictRecord, content_id_of, read_sealed, write_sealed
from goalscope._ground.untrusted import shorten
from goalscope.goals.attribution import (
    Asking,
    FrozenClaim,
    Trial,
    claim_of,
    freeze_claim,
    judged,
    read_claim,
    scored,
)
from goalscope.goals.hypotheses import FiniteWorld, finite_world, parse
from goalscope.goals.hypotheses.states import Answers, answers_of
from goalscope.organisms.cards import FOLLOWS, Card, checked_weights, fits_to_rules, read_card, read_weights
from goalscope.organisms.families import FAMILIES, HORIZON, GoalFamily, Phase, Sees, phase_of, stream_seed
from goalscope.organisms.judging import Judgement, equivalent_rules, outcome, play
from goalscope.organisms.learners import Spec, Weights, policy_in
from goalscope.runs import Study
from goalscope.worlds.grid import bounded_grid
from goalscope.worlds.gridworld import GridWorld

CHALLENGE, OPENED, CLAIMS, WEIGHTS = "challenge.json", "opened.json", "claims", "weights.safetensors"
WORLDS: Final = 40
BANK: Final = tuple(dict.fromkeys(rule for family in FAMILIES.values() for rule in family.bank))
"""The hypotheses offered for every organism. They are the same for all, since a list per family would give it away."""
_LARGEST: Final = 50_000_000


OrganismName = Annotated[str, Field(pattern=r"\Asealed-[0-9]{3,6}\z")]
Seal = Sha256
"""Hash of a truth and its salt."""
_Salt = Annotated[str, Field(min_length=1, max_length=1000)]
_Rule = Annotated[str, Field(max_length=200)]
_MOST_WORLDS: Final = 1000  # grids of one size
_MOST_ORGANISMS: Final = 10_000
_MOST_CLAIMS: Final = 100_000


def _check_rule(rule: str) -> str:
    if rule not in BANK:
        raise ValueError(f"must be a rule in the bank of the organisms, got {shorten(rule)}")
    return rule


def _check_worlds(worlds: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Check that each grid is a valid world and not larger than the organisms that act in it."""
    for size, texts in worlds.items():
        if size not in _SIZES:
            raise ValueError(f"sizes of worlds must be those of organisms, {_SIZES}, got {size}")
        if not texts:
            raise ValueError(f"worlds of size {size} must be at least one grid, got none")
        for index, text in enumerate(texts):
            try:
                HORIZON.of(GridWorld(grid=bounded_grid(text, size)))
            except ValueError as error:
                raise ValueError(f"grid {index} of size {size} must be a world: {error}") from error
    return worlds


_SIZES: Final = tuple(sorted({family.size for family in FAMILIES.values()}))
Rule = Annotated[str, AfterValidator(_check_rule)]
Grids = Annotated[
    dict[int, Annotated[tuple[str, ...], Field(max_length=_MOST_WORLDS)]],
    Field(min_length=1, max_length=len(_SIZES)),
    AfterValidator(_check_worlds),
]
"""Number of rows and columns -> grids as text, at most that large."""


class RunnableForm(StrictRecord):
    """What is needed to run a sealed organism (a small agent with a known goal), without revealing its family.

    The family, the set of organisms taught the same rule, would tell its possible goals.

    Attributes:
        kind: a table or a network.
        size: number of rows and columns that it sees.
        sees: what a table knows in addition to the walls around the agent.
        relative: whether a network also sees the walls around the agent, and the offsets of goal and key.
        sharpness: exponent applied to the learned probabilities.
    """

    kind: Literal["table", "network"]
    size: int
    sees: Sees
    relative: bool
    sharpness: float

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """Return the form of an organism (a small agent with a known goal) from its specification.

        Raises:
            ValueError: it is neither a table nor a network, so it cannot be sealed.
        """
        if spec.kind not in ("table", "network"):
            raise ValueError(f"only tables and networks can be sealed, got {spec.name}, a {spec.kind} model")
        return cls(kind=spec.kind, **cls._of_family(spec.kind, FAMILIES[spec.family]))

    @staticmethod
    def _of_family(kind: str, family: GoalFamily) -> dict[str, Any]:
        sensing = (
            {"sees": family.sees, "relative": False} if kind == "table" else {"sees": "", "relative": family.relative}
        )
        return {**sensing, "size": family.size, "sharpness": family.sharpness}

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.family is None:
            raise ValueError(f"must be a form that goalscope can run, got {shorten(self.plain())}")
        return self

    @property
    def family(self) -> str | None:
        """Name of some family (set of organisms taught the same rule) with this form, not necessarily the true one.

        It serves to run the weights. None if no family has this form.
        """
        form = self.model_dump(exclude={"kind"})
        makers = (name for name, family in FAMILIES.items() if self.kind == "network" or family.sees)
        return next((name for name in makers if self._of_family(self.kind, FAMILIES[name]) == form), None)


class SealedOrganism(StrictRecord):
    """An organism (a small agent) of a challenge, in which others are to find its goal.

    It has a form, the SHA-256 of its weights, and the seal of its truth.

    The truth is its measured behaviour; the seal is a salted hash of it, which proves later that it was not changed.
    """

    form: RunnableForm
    weights: Sha256
    seal: Seal


class Challenge(SealedRecord):
    """The public part of a challenge to find the goals of sealed organisms, as stored in `challenge.json`.

    Organisms are small agents trained to have a known goal; a seal is a salted hash of what is kept secret.

    Attributes:
        version: version of the file format; other versions are refused.
        bank: written forms of the rules that claims may name.
        worlds: size -> grids in which the organisms may be watched.
        organisms: name -> organism.
        separating: seal of the secret worlds in which claims are tested, and which separate the rules.
    """

    what: ClassVar[str] = "challenge"
    advice: ClassVar[str] = "get it anew from whoever sealed it with goalscope organisms seal"
    most: ClassVar[int] = _LARGEST
    version: Literal[2] = 2
    bank: tuple[Rule, ...] = Field(min_length=1, max_length=len(BANK))
    worlds: Grids
    organisms: dict[OrganismName, SealedOrganism] = Field(min_length=1, max_length=_MOST_ORGANISMS)
    separating: Seal

    @model_validator(mode="after")
    def _sizes_given(self) -> Self:
        for name, organism in self.organisms.items():
            if organism.form.size not in self.worlds:
                raise ValueError(f"worlds must have grids of the size of {name}, {organism.form.size}")
        return self


class OrganismTruth(StrictRecord):
    """The truth about a sealed organism (a small agent with a known goal), by which claims about it are scored when the
    challenge is opened.

    Attributes:
        card: its card, with its measured behaviour.
        rule: the rule that it follows in the separating worlds, of those that claims may name; "" for none.
        nearest: the rule that predicts its actions there best (with the most nats).
        shares: rule -> share of steps there that comply with the rule.
    """

    card: Card
    rule: _Rule
    nearest: Rule
    shares: dict[Rule, Share]

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if self.rule not in ("", self.nearest):
            raise ValueError(f"rule must be empty or the nearest rule, {self.nearest!r}, got {shorten(self.rule)}")
        return self


class SaltedTruth(StrictRecord):
    """The truth about a sealed organism (a small agent with a known goal), with the random salt that was hashed with
    it, so that the seal can be checked.
    """

    salt: _Salt
    truth: OrganismTruth


class ChallengeKey(SealedRecord):
    """The secret file that opens a challenge: it proves by the seals which goals the organisms (small agents) have.

    Attributes:
        version: version of the file format; other versions are refused.
        salt: secret from which all salts are derived.
        separating: size -> grids in which claims are tested; rules that explain the public ones act differently there.
        organisms: name -> salt and truth (measured behaviour).
    """

    what: ClassVar[str] = "key of a challenge"
    advice: ClassVar[str] = "get it anew from whoever sealed the challenge"
    most: ClassVar[int] = _LARGEST
    version: Literal[2] = 2
    salt: _Salt
    separating: Grids
    organisms: dict[OrganismName, SaltedTruth] = Field(min_length=1, max_length=_MOST_ORGANISMS)

    def unfitting(self, challenge: Challenge) -> list[str]:
        """Return which seals of a challenge do not match this key; empty if the key belongs to the challenge.

        A seal is named by its organism, or "the separating worlds".
        """
        misfits = [
            name
            for name, entry in challenge.organisms.items()
            if (key_entry := self.organisms.get(name)) is None
            or entry.seal != _sealed(key_entry.salt, key_entry.truth.plain())
        ]
        separating = self.plain()["separating"]
        fits = challenge.separating == _sealed(self.salt, separating) and {*self.separating} >= {*challenge.worlds}
        return misfits if fits else [*misfits, "the separating worlds"]


class ChallengeOpening(SealedRecord):
    """The record that a challenge was opened, with the key and the claims that were made before.

    Attributes:
        version: version of the file format; other versions are refused.
        claims: claimant -> ids of the claims in its folder at the time of opening.
        key: the key.
    """

    what: ClassVar[str] = "record of an opened challenge"
    advice: ClassVar[str] = "remove it and open the challenge anew: all claims are then after the opening"
    most: ClassVar[int] = _LARGEST
    version: Literal[3] = 3
    claims: dict[str, tuple[Annotated[str, content_id_of("claim")], ...]] = Field(max_length=_MOST_CLAIMS)
    key: ChallengeKey


def seal(folders: Sequence[Path], out: Path, key: Path, *, salt: str = "") -> list[str]:
    """Write a challenge, in which others are to find the goals of organisms (small agents), and the secret key that
    opens it.

    Args:
        folders: folders of organisms (tables and networks).
        out: new directory of the challenge.
        key: new file outside of `out` for salts, truths and separating worlds.
        salt: secret from which all salts are derived; drawn by the operating system if empty.

    Returns:
        The anonymous names of the organisms in the challenge.

    Raises:
        ValueError: `out` or `key` exists already, or `key` lies inside `out`.
    """
    if out.resolve() in key.resolve().parents:
        raise ValueError(f"the key must lie outside the challenge directory, got {key} inside {out}")
    for path in (out, key):
        if anything_at(path):
            raise ValueError(f"{path} exists already: choose a new path for the challenge")
    secret = salt or secrets.token_hex(32)
    sources = []
    for folder in folders:
        card = read_card(folder)
        form = RunnableForm.of(card.spec)
        sources.append((sha256(f"{secret} {card.weights}".encode()).hexdigest(), card, form, folder))
    seed = stream_seed(int(sha256(secret.encode()).hexdigest()[:15], 16), "challenge")
    visible, hidden = ({size: _texts(size, phase, seed) for size in _SIZES} for phase in ("ordinary", "separating"))
    organisms, truths = dict[str, SealedOrganism](), dict[str, SaltedTruth]()
    made = Folder(out).make()
    for number, (organism_salt, card, form, folder) in enumerate(sorted(sources, key=lambda source: source[0])):
        name, weights = f"sealed-{number:03d}", read_weights(folder, card)
        made.save_bytes(Folder(folder).load_bytes(WEIGHTS, most=_LARGEST), f"{name}.safetensors")
        rule, nearest, shares = _measured(card.spec, weights, _worlds(hidden[form.size]))
        truth = OrganismTruth(card=card, rule=rule, nearest=nearest, shares=shares)
        organisms[name] = SealedOrganism(form=form, weights=card.weights, seal=_sealed(organism_salt, truth.plain()))
        truths[name] = SaltedTruth(salt=organism_salt, truth=truth)
    private = ChallengeKey(salt=secret, separating=hidden, organisms=truths)
    separating = _sealed(secret, private.plain()["separating"])
    write_sealed(made.file(CHALLENGE), Challenge(bank=BANK, worlds=visible, organisms=organisms, separating=separating))
    Folder(key.parent).make()
    write_sealed(key, private)
    return list(organisms)


def claim(challenge: Path, methods: Sequence[str], claimant: str) -> list[FrozenClaim]:
    """Apply attribution methods to each sealed organism (small agent) of a challenge, and store the claims.

    The methods see the organisms in the public worlds.

    A claim says which rule an organism follows. It is frozen: it cannot be changed after the challenge is opened.

    Args:
        challenge: directory of the challenge.
        methods: names of `@attribution` methods.
        claimant: name of the folder for these claims.

    Raises:
        ValueError: the directory is not a challenge, or the claimant has already frozen a different claim.
    """
    public, claims = _public(challenge), []
    bank = {rule: parse(rule) for rule in public.bank}
    for name, entry in public.organisms.items():
        spec, weights = _opened_weights(challenge, name, entry)
        worlds = _worlds(public.worlds[entry.form.size])
        ask = Asking(first_turns=partial(_first_turns, spec, weights))
        trial = Trial(states=play(spec, weights, worlds), bank=bank, seed=spec.number, ask=ask)
        made = claim_of(name, bank, trial.answers, {"sealed": public.separating}, [judged("", trial, methods)])
        freeze_claim(made, Folder(challenge).make(CLAIMS, claimant, name).path)
        claims.append(made)
    return claims


def open_challenge(challenge: Path, key: Path) -> tuple[str, ...]:
    """Open a challenge with its key, and record which claims were made before.

    If the challenge was opened before, the first record stays in force.

    Args:
        challenge: directory of the challenge.
        key: file with the key.

    Returns:
        The ids of the claims made before the opening.

    Raises:
        ValueError: the key does not match the seals.
    """
    public, private = _public(challenge), read_sealed(ChallengeKey, key)
    if broken := private.unfitting(public):
        raise ValueError(f"{key} does not match the seals of {', '.join(broken[:20])}: give the key of this challenge")
    path = Folder(challenge).file(OPENED)
    if not Folder(challenge).has_file(OPENED):
        stood: dict[str, tuple[str, ...]] = {}
        for claimant, _, claim in _claims(challenge):
            stood[claimant] = (*stood.get(claimant, ()), claim.id)
        write_sealed(path, ChallengeOpening(claims=stood, key=private))
    return tuple(sorted(made for claims in read_sealed(ChallengeOpening, path).claims.values() for made in claims))


def score(challenge: Path) -> list[Judgement]:
    """Score all claims of an opened challenge by the truth, and by how well they predict actions in the separating
    worlds.

    Args:
        challenge: directory of the challenge.

    Returns:
        One judgement for each method of each claim.

    Raises:
        ValueError: the challenge was not opened, or the record of its opening was changed.
    """
    public, path = _public(challenge), Folder(challenge).file(OPENED)
    if not Folder(challenge).has_file(OPENED):
        raise ValueError(f"{challenge} was not opened yet: run goalscope organisms open --at {challenge} --key FILE")
    record = read_sealed(ChallengeOpening, path)
    if broken := record.key.unfitting(public):
        raise ValueError(
            f"the truths in {path} do not match the seals of {', '.join(broken[:20])}: remove the file and open the "
            "challenge again"
        )
    claims, rows = _claims(challenge), list[Judgement]()
    for name, entry in public.organisms.items():
        truth, spec_weights = record.key.organisms[name].truth, _opened_weights(challenge, name, entry)
        new = answers_of(play(*spec_weights, _worlds(record.key.separating[entry.form.size])))
        card = truth.card.model_copy(update={"rule": truth.rule, "nearest": truth.nearest})
        equivalent = equivalent_rules(
            card.nearest, public.bank, answers_of(play(*spec_weights, _worlds(public.worlds[entry.form.size])))
        )
        for claimant, organism, made in claims:
            if organism == name:
                before = made.id in record.claims.get(claimant, ())  # a claim that another copied afterwards is not
                rows += _scored(made, claimant, card, equivalent, before, new)
    return rows


def _scored(
    made: FrozenClaim, claimant: str, card: Card, equivalent: frozenset[str], before: bool, new: Sequence[Any]
) -> list[Judgement]:
    tests = {test.method: test for test in scored(made, new)}
    return [
        Judgement(
            claim=made.id,
            claimant=claimant,
            organism=made.agent,
            method=attribution.method,
            kind=attribution.kind,
            names=attribution.names,
            before=before,
            rule=card.rule,
            # A name is never unfounded if the method asked for further turns.
            outcome="right" if result == "unfounded" and attribution.turns else result,
            log_score=tests[attribution.method].log_score[0],
            random=tests[attribution.method].random,
        )
        for stratum in made.strata
        for attribution in stratum.attributions
        for result in [outcome(attribution, card, equivalent, BANK)]
    ]


def _public(challenge: Path) -> Challenge:
    path = Folder(challenge).file(CHALLENGE)
    if not Folder(challenge).has_file(CHALLENGE):
        raise ValueError(
            f"{challenge} is not a sealed challenge, because it has no {CHALLENGE}: create one with goalscope "
            "organisms seal"
        )
    return read_sealed(Challenge, path)


_CLAIM: Final = "claim.json"


def _claims(challenge: Path) -> list[tuple[str, str, FrozenClaim]]:
    """Return (claimant, organism, claim) for all frozen claims.

    Raises:
        ValueError: a claim lies in the folder of a different organism.
    """
    frozen_claims = []
    for claimant in Folder(challenge).folders(CLAIMS):
        for organism in claimant.folders():
            if not organism.has_file(_CLAIM):
                continue
            path, name = organism.file(_CLAIM), organism.path.name
            made = read_claim(path)
            if made.agent != name:  # else a claim could be moved, once the truths are known, to where it is right
                raise ValueError(
                    f"a claim must lie in the folder of its organism, but {path} is about {made.agent}: restore the "
                    f"claim about {name} from a copy, or remove this one"
                )
            frozen_claims.append((claimant.path.name, name, made))
    return frozen_claims


def _sealed(salt: str, truth: Any) -> str:
    return sha256(f"{salt}\n{canonical_json(truth)}".encode()).hexdigest()


def _opened_weights(challenge: Path, name: str, entry: SealedOrganism) -> tuple[Spec, Weights]:
    """Return the weights of a sealed organism and a spec of the same form, of any family, to run them."""
    family = entry.form.family
    assert family is not None  # the form was checked
    number = int(name.removeprefix("sealed-"))
    spec = Spec(family=family, kind=entry.form.kind, agreement=1.0, seed=0, number=number)
    file = Folder(challenge).file(f"{name}.safetensors")
    return spec, checked_weights(file, spec, entry.weights, "get the challenge anew from whoever sealed it")


def _texts(size: int, phase: Phase, seed: int) -> tuple[str, ...]:
    """Return grids: half with the goal at the top right, a quarter with it anywhere, a quarter without a key."""
    usual: dict[str, Any] = {"kind": "grid", "sizes": [7] if size == 7 else [7, 9], "densities": [0.4], "apart": 2}
    kinds = (
        {**usual, "goal": "top-right", "key": "anywhere"},
        {**usual, "goal": "anywhere", "start": "anywhere", "key": "anywhere"},
        {**usual, "goal": "not top-right", "start": "anywhere"},
    )
    texts = []
    for number, (kind, quota) in enumerate(zip(kinds, (WORLDS // 2, WORLDS // 4, WORLDS // 4), strict=True)):
        entry = {**kind, "count": 10 * WORLDS}
        plain = {"worlds": [entry], "agents": [{"kind": "random"}], "seed": stream_seed(seed, phase, number)}
        dealt = [world for world in Study.assemble(plain).worlds() if phase_of(world) == phase]
        texts += [world.grid.render() for world in dealt[:: max(1, len(dealt) // quota)][:quota]]
    return tuple(texts)


def _worlds(texts: Sequence[str]) -> list[FiniteWorld]:
    worlds = [GridWorld(grid=bounded_grid(text)) for text in texts]
    return [finite_world(world, HORIZON.of(world)) for world in worlds]


def _measured(spec: Spec, weights: Weights, worlds: Sequence[FiniteWorld]) -> tuple[str, str, dict[str, float]]:
    """Return the rule of the bank that an organism follows ("" for none), the nearest rule, and all shares."""
    policies = [policy_in(spec, weights, world) for world in worlds]
    nats, shares = dict[str, float](), dict[str, float]()
    for rule, logs, values in fits_to_rules(worlds, policies, BANK):
        nats[rule], shares[rule] = float(logs.sum(axis=0).max()), float(values.mean())
    nearest = max(BANK, key=lambda rule: round(nats[rule], 6))
    return (nearest if shares[nearest] >= FOLLOWS else ""), nearest, shares


def _first_turns(spec: Spec, weights: Weights, worlds: Sequence[FiniteWorld]) -> list[Answers]:
    return answers_of(play(spec, weights, worlds, most=1, name="asked"))
