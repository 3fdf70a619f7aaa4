"""A method that says what an agent is after: where its episodes end."""

from goalscope.goals.attribution import Attribution, MixturePart, Trial, attribution
from goalscope.goals.hypotheses import Undefined


@attribution("last place")
def last_place(trial: Trial) -> Attribution:
    """Return the place that most episodes end in."""
    shares = {name: 0.0 for name, one in trial.bank.items() if one.kind == "place"}
    if not shares:
        raise Undefined("it needs a place among the hypotheses")
    for one in trial.answers:
        for name in shares:
            try:
                shares[name] += float(trial.bank[name].where(one.world)[one.last].mean()) / len(trial.answers)
            except Undefined:  # it counts for nothing in this world
                continue
    best = max(shares, key=lambda name: shares[name])
    return Attribution(
        method="last place",
        kind="named" if shares[best] > 0.5 else "not explained",
        names=(best,) if shares[best] > 0.5 else (),
        sentence=f"{shares[best]:.0%} of its episodes end at {best}",
        weights=shares,
        predicts=(MixturePart(hypothesis=trial.bank[best].text, weight=1.0, strength=shares[best]),),
    )
