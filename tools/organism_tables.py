"""Tables of docs/organisms.md and docs/results.md: what was made, what methods claim of it, what the gate says of it.

goalscope organisms make --seed 31 --at organisms
goalscope organisms judge --at organisms --out judged --json > judged.json
goalscope organisms gate --at organisms --out gate --json > gate.json
python tools/organism_tables.py --at organisms --judged judged.json --gate gate.json
python tools/organism_tables.py --at organisms --gate gate.json --short
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from goalscope.organisms import FAMILIES, Card, folders, read_card
from goalscope.organisms.families import AGREEMENTS
from goalscope.organisms.gate import by_condition, counts
from goalscope.organisms.judging import SHARES, WORLDS, Judgement


def row(*cells: object) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def what(card: Card) -> str:
    """Return what a card says: the meant rule, another one, none with the least share of the nearest, or left open."""
    rules = card.possible()
    share = min(ends[card.nearest][0] for ends in card.shares.values())
    if len(rules) > 1:
        return f"open ({' or '.join(rule or 'none' for rule in rules)}, {share:.2f})"
    if not rules[0]:
        return f"none ({card.nearest}, {share:.2f})"
    return "meant" if rules[0] == card.meant else f"**{rules[0]}**"


def made(cards: Sequence[Card]) -> Iterator[str]:
    """Yield what each organism does, by family and agreement, and how many do anything at each agreement."""
    yield row("family", *(f"{share:.0%}" for share in AGREEMENTS))
    yield row(*["---"] * (1 + len(AGREEMENTS)))
    for family in FAMILIES:
        for kind in ("network", "table"):
            of = [card for card in cards if (card.spec.family, card.spec.kind) == (family, kind)]
            cells = [dict.fromkeys(what(card) for card in of if card.spec.agreement == share) for share in AGREEMENTS]
            if of:
                yield row(f"{family}, {kind}", *("; ".join(cell) for cell in cells))
    for share in AGREEMENTS:
        of = [card for card in cards if card.spec.agreement == share]
        rules = [card.possible() for card in of]
        follow, left_open = sum("" not in one for one in rules), sum({""} < {*one} for one in rules)
        yield f"agreement {share:.0%}: {follow} of {len(of)} follow a rule, {left_open} perhaps, the others none"


def claimed(rows: Sequence[Judgement]) -> Iterator[str]:
    """Yield right/undecided/false or unfounded claims by method and share of worlds that tell, and their cost."""
    for title, ruled in (("organisms that follow a rule", True), ("organisms that follow none", False)):
        of = [one for one in rows if one.worlds == WORLDS and bool(one.rule) == ruled]
        counted = [len({one.organism for one in of if one.share == share}) for share in SHARES]
        yield row(title, *(f"{share:.0%} ({count})" for share, count in zip(SHARES, counted, strict=True)))
        yield row(*["---"] * (1 + len(SHARES)))
        for method in dict.fromkeys(one.method for one in of):
            found = [
                Counter(one.outcome for one in of if (one.method, one.share) == (method, share)) for share in SHARES
            ]
            yield row(method, *(f"{n['right']}/{n['undecided']}/{n['false'] + n['unfounded']}" for n in found))
        yield ""
    for method in dict.fromkeys(one.method for one in rows):
        of = [one for one in rows if one.method == method]
        seconds = sum(one.seconds for one in of) / len({one.organism for one in of})
        yield f"{method}: {seconds:.1f} s of processor time an organism, {sum(one.turns for one in of):,} more answers"


def judged(given: Sequence[Judgement], *, short: bool) -> Iterator[str]:
    """Yield what came of verdicts by condition and family, or by the agreement in training if it is to be short."""
    first = "goal and proxy agree in training" if short else "family"
    heads = ("organisms", "decidable", "with a false claim", "upper 95 % bound", "with a right claim")
    yield row("condition", first, *heads, "open ones with a false claim")
    yield row(*["---"] * 8)
    for condition, claims in by_condition(given).items():
        groups: dict[str, list[Judgement]] = {}
        for one in sorted(claims, key=lambda one: -one.agreement if short else 0.0):
            groups.setdefault(f"{one.agreement:.0%}" if short else one.family, []).append(one)
        for name, members in {**groups, "all": claims}.items():
            count = counts(members)
            numbers = (count.organisms, count.decidable, count.false, f"{count.bound:.3f}")
            yield row(condition, name, *numbers, count.right, count.open_false)


def read(path: Path) -> list[Judgement]:
    """Return the judgements that a command printed."""
    return [Judgement.model_validate_json(json.dumps(one)) for one in json.loads(path.read_text())]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", type=Path, required=True, help="organisms")
    parser.add_argument("--gate", type=Path, required=True, help="what goalscope organisms gate --json printed")
    parser.add_argument("--judged", type=Path, help="what goalscope organisms judge --json printed")
    parser.add_argument("--short", action="store_true", help="the gate alone, by agreement in training")
    given = parser.parse_args()
    if not given.short:
        print("\n".join(made([read_card(folder) for folder in folders(given.at)])), end="\n\n")
    if given.judged:
        print("\n".join(claimed(read(given.judged))), end="\n\n")
    print("\n".join(judged(read(given.gate), short=given.short)))
