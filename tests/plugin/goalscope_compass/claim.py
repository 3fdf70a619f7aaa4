"""Whether an agent takes back few of its moves, decided like the claims of goalscope."""

from goalscope.verdict import ArmData, Evidence, claim


@claim(
    "takes few moves back",
    arm="small-grids",
    question="Does it take back less than one move in ten?",
    yes="It takes back less than one move in ten.",
    no="It takes back one move in ten or more.",
    quantity="share of moves that are not taken back",
    threshold=0.9,
    compared="an agent that remembers where it came from takes none back",
    validity="scripted agents of this package",
)
def takes_few_back(data: ArmData) -> Evidence:
    """The mean over grids of one minus the share of moves that are taken back."""
    return data.share("moves taken back", complement=True)
