"""Cards of a verdict: a record in the schema of Every Eval Ever, for machines, and a section of a model card.

Both contain the claims with intervals, numbers of worlds, versions and hashes, and name what is absent and why: arms
that were not asked or failed, claims without an interval, and fields that an evaluation does not know.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder
from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.untrusted import shorten
from goalscope._ground.version import __version__
from goalscope.report.blocks import Table
from goalscope.report.exports import as_markdown, markdown_text
from goalscope.verdict.claim_tables import coverage
from goalscope.verdict.claims import Claim, ClaimLedger, Evaluation
from goalscope.verdict.failures import FAILURES
from goalscope.verdict.sentences import paragraphs, weights
from goalscope.verdict.texts import TEXTS

SCHEMA: Final = "0.3.0"
"""Version of the schema of Every Eval Ever that the records follow."""


def absent_of(evaluation: Evaluation, ledger: ClaimLedger) -> dict[str, str]:
    """Return what the report on a model for a model card lacks, so that a reader sees what was not evaluated.

    Args:
        evaluation: the evaluation.
        ledger: the claims about the model.

    Returns:
        "arm NAME" (a part of the evaluation), "claim NAME" (a question) or the name of a field -> why it is absent.
    """
    absent = {f"arm {arm.name}": arm.why for arm in ledger.arms if not arm.asked}
    absent |= {f"claim {claim.name}": claim.why for claim in ledger.claims if claim.value is None}
    if not ledger.claims:
        absent["claims"] = TEXTS("card/no claim")
    if Folder(evaluation.directory).has_file(FAILURES):
        absent["parts that failed"] = TEXTS("card/errors", file=FAILURES)
    unknown = {"developer": "not recorded", "evaluation_timestamp": "no times", "score bounds": "no bounds"}
    unknown["organization and relationship of the evaluator"] = "not recorded"
    if not weights(ledger.agent):
        unknown["weights"] = "no weights"
    if evaluation.origin is None:
        unknown["runs"] = "not judged"
    elif evaluation.origin.commit is None:
        unknown["commit"] = "not recorded"
    return absent | {name: TEXTS(f"card/{key}") for name, key in unknown.items()}


def model_card(evaluation: Evaluation, ledger: ClaimLedger) -> str:
    """Return a section of a model card in Markdown: the verdict on a model, the claims, what is absent, and versions.

    Args:
        evaluation: the evaluation.
        ledger: the claims about the model.
    """
    rows = [
        (
            claim.question,
            claim.answer,
            claim.attributed_estimate or "–",
            "–" if claim.threshold is None else f"{claim.threshold:.3g}",
            f"{claim.clusters:,}",
            f"{claim.n:,}",
        )
        for claim in ledger.claims
    ]
    headings = ("question", "answer", "estimate", "threshold", "worlds", "values")
    parts = [TEXTS("card/title", model=markdown_text(ledger.model)), *map(markdown_text, paragraphs(ledger))]
    if rows:
        table = Table(headings=headings, rows=tuple(rows), numbers=(3, 4, 5))
        parts += [as_markdown(table).strip(), markdown_text(coverage([ledger]))]
    lines = [markdown_text(f"{name}: {why}") for name, why in absent_of(evaluation, ledger).items()]
    parts += [TEXTS("card/absent"), "\n".join(f"* {line}" for line in lines)]
    if hashes := weights(ledger.agent):
        listing = ", ".join(markdown_text(f"{name} {digest}") for name, digest in hashes.items())
        parts.append(TEXTS("card/weights", weights=listing))
    origin = evaluation.origin
    runs = {} if origin is None else origin.runs
    parts.append(
        TEXTS(
            "card/made by",
            version=__version__ if origin is None else origin.goalscope,
            commit=(origin and origin.commit) or TEXTS("card/no commit"),
            ledger=_ledger_id(evaluation),
            runs=", ".join(markdown_text(f"{name} {identity}") for name, identity in runs.items()) or "–",
        )
    )
    return "\n\n".join(parts)


def eval_record(evaluation: Evaluation, ledger: ClaimLedger, *, seconds: float | None = None) -> dict[str, Any]:
    """Return the results about a model in the schema of Every Eval Ever, with one result per claim that has a value.

    A claim is the answer to one question about the model.

    Args:
        evaluation: the evaluation.
        ledger: the claims about the model.
        seconds: when the record is made, in seconds since 1970; the present by default.
    """
    made_at, origin = f"{time.time() if seconds is None else seconds:.0f}", evaluation.origin
    details = {f"absent: {name}": why for name, why in absent_of(evaluation, ledger).items()}
    details |= {"ledger": _ledger_id(evaluation), "rules": f"{ledger.rules}", "look": f"{ledger.look}"}
    if origin is not None:
        details |= {f"content hash of run {name}": identity for name, identity in origin.runs.items()}
        provenance = {"plan": origin.plan, "seed": origin.seed, "commit": origin.commit, "dirty": origin.dirty}
        details |= {name: f"{value}" for name, value in provenance.items() if value is not None}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"goalscope/{ledger.model}/{made_at}",
        "retrieved_timestamp": made_at,
        "source_metadata": {
            "source_name": "goalscope evaluate",
            "source_type": "evaluation_run",
            "source_organization_name": TEXTS("card/organization"),
            "evaluator_relationship": "other",
            "additional_details": details,
        },
        "eval_library": {"name": "goalscope", "version": __version__ if origin is None else origin.goalscope},
        "model_info": _model_info(ledger),
        "evaluation_results": [_result(ledger, claim) for claim in ledger.claims if claim.value is not None],
    }


def _result(ledger: ClaimLedger, claim: Claim) -> dict[str, Any]:
    texts = ("answer", "says", "compared", "note", "validity", "threshold_rule", "names", "subject", "by_size")
    details = {name: f"{getattr(claim, name)}" for name in texts if getattr(claim, name)}
    interval: dict[str, Any] = {}
    if claim.low is not None and claim.high is not None:
        ends = {"lower": claim.low, "upper": claim.high, "method": claim.method, "confidence_level": claim.confidence}
        interval["confidence_interval"] = {name: value for name, value in ends.items() if value not in (None, "")}
    parameters = {"threshold": claim.threshold, "p": claim.p, "worlds": claim.clusters}
    return {
        "evaluation_result_id": content_id("result", [ledger.model, claim.name]),
        "evaluation_name": claim.question,
        "source_data": {
            "dataset_name": f"goalscope arm {claim.arm}",
            "source_type": "other",
            "additional_details": {"worlds": f"{claim.clusters}"},
        },
        "metric_config": {
            "evaluation_description": claim.quantity,
            "metric_id": f"goalscope.{claim.name.replace(' ', '_')}",
            "metric_name": claim.name,
            "metric_unit": claim.unit,
            "metric_parameters": {name: value for name, value in parameters.items() if value is not None},
            "lower_is_better": False,
            "additional_details": details,
        },
        "score_details": {"score": claim.value, "uncertainty": {**interval, "num_samples": claim.n}},
    }


def _model_info(ledger: ClaimLedger) -> dict[str, Any]:
    model = ledger.agent.get("model")
    fields: Mapping[str, Any] = model if isinstance(model, Mapping) else {}
    files = fields.get("files")
    is_server = "mode" in fields
    details = {
        "deployment_type": "self_deployed" if files else "externally_managed" if is_server else "unknown",
        "model_availability": "open_weights" if files else "unknown",
        "described": ledger.described,
        "agent": canonical_json(ledger.agent),
        "access": ", ".join(ledger.access),
        **{f"sha256 of {name}": digest for name, digest in weights(ledger.agent).items()},
    }
    hub = files.get("hub") if isinstance(files, Mapping) else None
    return {"name": ledger.model, "id": f"{hub or ledger.model}", "additional_details": details}


def check_record(record: Mapping[str, Any]) -> None:
    """Check the record of a model (see `eval_record`) against the schema of the installed package every-eval-ever.

    Raises:
        ImportError: the package is not installed.
        ValueError: the record does not fit its schema.
    """
    try:
        from every_eval_ever.eval_types import EvaluationLog
        from every_eval_ever.schema import schema_json
        from jsonschema import Draft7Validator
    except ImportError as error:
        raise lacking("validating a record needs every-eval-ever (Python 3.12 or later)", "cards", error) from error
    errors = [*Draft7Validator(schema_json()).iter_errors(record)]
    if errors:
        faults = "; ".join(f"{'/'.join(map(str, error.path))}: {shorten(error.message)}" for error in errors[:3])
        raise ValueError(f"the card does not fit the schema of the installed every-eval-ever: {faults}")
    EvaluationLog.model_validate(record)


def _ledger_id(evaluation: Evaluation) -> str:
    """Return the digest that the ledger file carries."""
    return content_id("sealed", evaluation.plain())
