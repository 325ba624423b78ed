"""Choose the laws of the catalogue that suit a table, by its columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._inference.discrepancy.process import PRIORS, middle_size
from bayeslaw._law import catalogue
from bayeslaw._law.columns import (
    LOSS_BEFORE,
    SOURCE_LOSS_BEFORE,
    is_share,
    starts_from_losses,
)
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law
from bayeslaw._tables.fitting import HANDFUL
from bayeslaw._tables.proposals import it_has
from bayeslaw._tables.rows.settings import alike_but_settings

# Forms 1, 2 and 3 of Goffinet 2025, and Form 1 with a bend that tables hardly show
FORM_3 = "ptpp-gate-floor"
FORMS = ("ptpp-floor", "ptpp-gate", FORM_3, "ptpp-transfer")
# two sizes hardly tell the powers of N of `state-power`; of three, its forecasts at the
# end of runs are better than an average with `state-target`
FEW_SIZES = 2
# laws read a setting if the losses along it differ by more than this many times what
# laws miss by their prior: it then makes four fifths of what they would miss
WORTH = 2.0


def law_for(law: Law | str | None, runs: pd.DataFrame) -> Law:
    """Take a law, or find it for a table by its name, formula or file.

    Raises
    ------
    LawError
        There is no such law, or none is given; the message names those that suit.
    """
    if law is None:
        suited = default_laws(runs)
        raise LawError(
            f"name a law: fit(runs, {suited[0]!r}); this table suits "
            f"{', '.join(suited)}; average(runs) weighs them by their forecasts, and "
            f"compare(runs) says which forecasts best (by command: --law {suited[0]})"
        )
    return as_law(law, runs)


def candidate_laws(runs: pd.DataFrame) -> list[str]:
    """Name the laws that are compared by default: those whose columns the table has,
    both separable and coupled ones, and the `default_laws`.

    Raises
    ------
    LawError
        No law of the default sets suits the table's columns.
    """
    suited = _list_suited(runs)
    return list(dict.fromkeys([*suited, *_choose_default(suited, runs)]))


def default_laws(runs: pd.DataFrame) -> list[str]:
    """Name the laws that are averaged by default. If every run has its checkpoint's
    losses, these are the `candidate_laws` that start from them (`informed`). Otherwise,
    if the stage varies, they are those that read it, of the forms only Form 3.

    They read a setting that was swept if it moves losses by far more than laws miss.
    """
    return _choose_default(_list_suited(runs), runs)


def _choose_default(suited: Sequence[str], runs: pd.DataFrame) -> list[str]:
    laws = [catalogue.law(name) for name in suited]
    starts = [law for law in laws if starts_from_losses(law.covariates)]
    read_stage = [law for law in laws if "ptpp" in law.covariates]
    # the other forms are parts of Form 3, or hardly differ from them
    stages = [law for law in read_stage if law.name == FORM_3 or law.name not in FORMS]
    return _add_swept(starts or stages or laws, runs)


def _add_swept(laws: Sequence[Law], runs: pd.DataFrame) -> list[str]:
    """Add swept settings to laws that miss by far less than these make."""
    names = [law.name for law in laws]
    # several laws are weighed by left-out stages; of a handful of rows, too few stay for
    # the parameters of a setting
    is_open = len(laws) == 1 or len(runs) > HANDFUL
    alike = alike_but_settings(runs) if is_open else None
    if alike is None or not alike.readable:
        return names
    size = middle_size({c: runs[c].to_numpy(float) for c in ("N",) if c in runs})
    misses = [PRIORS.of_all_pieces(law.covariates, size).median for law in laws]
    return [
        "+".join([name, *alike.readable]) if alike.spread > WORTH * miss else name
        for name, miss in zip(names, misses, strict=True)
    ]


def _list_suited(runs: pd.DataFrame) -> list[str]:
    """Name the laws whose columns a table has; raises as `candidate_laws` does."""
    # columns that are empty at all rows of a domain are none: no law can read them there
    domains = runs["domain"].astype(str) if "domain" in runs else np.zeros(len(runs))
    runs = runs.loc[:, runs.notna().groupby(domains).any().all()]
    mixtures = [runs[c].nunique() for c in runs if is_share(c)]
    if {"N", "D"} <= set(runs) and max(mixtures, default=0) > 1:
        of_state = _choose_state_laws(runs, ["mixture-state"], "mixture-rise")
        return ["mixture-coupled", "mixture-exponential", *of_state]
    levels = {c: runs[c].nunique() for c in ("N", "replay", "ptpp") if c in runs}
    is_staged = levels.get("ptpp", 0) > 1
    if {"N", "D", "replay"} <= set(runs) and levels["replay"] > 1:
        # replayed tokens count relative to those of pre-training
        of_source = "state-rise" if "ptpp" in runs else "state-source"
        of_target = ["state-power"]
        if "ptpp" in runs and not _is_repeated(runs):
            of_target = ["state-power-stages"]
        # of few sizes the target's own loss before tells what exponents of N cannot
        if levels["N"] <= FEW_SIZES:
            of_target.append("state-target")
        of_state = _choose_state_laws(runs, of_target, of_source)
        # With one size only the checkpoint's own losses inform about it. But for a
        # handful of mixes at one size, dcpt gives the curve in replay.
        is_read = levels["N"] > 1 or len(runs) <= HANDFUL or not of_state
        of_size = ["dcpt"] if is_read else []
        of_stage = [*FORMS, _stage_law(runs)] if of_size and is_staged else []
        return [*of_size, *of_stage, *of_state]
    of_areas = ["anneal"]
    if "S1_cpt" in runs and runs["S1_cpt"].nunique() > 1:
        of_areas = ["cpt-dynamics", "cpt-dynamics-power"]
    if {"D", "S1_pt", "S2_pt"} <= set(runs) and levels.get("N", 1) == 1:
        # curves of one size that differ by their schedules, which N and D do not know
        at_tokens = runs.groupby("D")["S1_pt"]
        if (at_tokens.max() > 1.01 * at_tokens.min()).any():
            return of_areas
    if {"N", "D"} <= set(runs) and _is_repeated(runs):
        return ["data-constrained", "data-constrained-coupled"]
    if {"N", "D"} <= set(runs):
        # one mix of an adaptation, whose checkpoints differ
        is_adapted = "replay" in runs and is_staged
        return ["chinchilla", "coupled", *([_stage_law(runs)] if is_adapted else [])]
    if {"S1_pt", "S2_pt"} <= set(runs):
        return of_areas
    missing = [c for c in ("N", "D") if c not in runs]
    once = (
        f"; if {missing[0]} is the same in all rows, write it: --column {missing[0]}=8B"
    )
    if missing == ["N"]:
        once += "; one model fine-tuned on D examples: --law rectified --law broken"
    raise LawError(
        f"no law is compared by default on a table without {' and '.join(missing)}; map "
        f"columns, or name laws (--law, --laws){once * (len(missing) == 1)}; "
        f"{it_has(runs)}"
    )


def _is_repeated(runs: pd.DataFrame) -> bool:
    """Tell whether some run read its target's text more than once."""
    return "U" in runs and bool((runs["D"] > runs["U"]).any())


def _stage_law(runs: pd.DataFrame) -> str:
    of_source = "domain" in runs and bool((runs["domain"] == "source").all())
    return "ptpp-rise" if of_source else "ptpp-tokens"


def _choose_state_laws(
    runs: pd.DataFrame, of_target: Sequence[str], of_source: str
) -> list[str]:
    """Choose the laws of checkpoint state whose columns the table has: those of the
    source if ``loss_before`` equals ``source_loss_before``; without ``loss_before`` if
    the domain is named so, or not named. Of a handful of rows, which leave none to weigh
    laws by, it is one law; of repeated text those that know it, if there are.
    """
    if SOURCE_LOSS_BEFORE not in runs:
        return []
    domains = set(runs["domain"]) if "domain" in runs else {"source"}
    if LOSS_BEFORE in runs and "target" not in domains:
        losses = runs[LOSS_BEFORE], runs[SOURCE_LOSS_BEFORE]
        is_source = np.allclose(*losses, equal_nan=True)
    else:
        is_source = domains == {"source"}
    names = [of_source] if is_source else list(of_target)
    if _is_repeated(runs):
        known = set(catalogue.law_names())
        repeated = [f"{name}-repeats" for name in names]
        names = [name for name in repeated if name in known] or names
    read = [
        name
        for name in names
        if {c for c in catalogue.law(name).covariates if not is_share(c)} <= set(runs)
    ]
    return read[:1] if len(runs) <= HANDFUL else read
