"""L0 + A S1^-alpha - C S2: the loss at any step of pre-training under any learning-rate
schedule.

The areas are the columns ``S1_pt`` and ``S2_pt``, as in the laws of adaptation, so that
the same function computes them (`schedule_areas`).
"""

from bayeslaw._law.law import Law

from ._dynamics import ALPHA, REFERENCE, SOURCE, TISSUE, annealing, forward, level

LAW = Law(
    name="anneal",
    title="loss curve of pre-training under any learning-rate schedule",
    source=f"{TISSUE}; Wang 2025, eq. 1",
    latex=r"L_0 + A\,S_1^{-\alpha} - C\,S_2",
    covariates=("S1_pt", "S2_pt"),
    terms=(
        level(),
        forward(lambda x: x["S1_pt"], r"A\,S_1^{-\alpha}"),
        annealing("C", lambda x, e: x["S2_pt"], r"C\,S_2"),
    ),
    exponents=(ALPHA,),
    reference={c: REFERENCE[c] for c in ("S1_pt", "S2_pt")},
    plausible={**{p: SOURCE[p] for p in ("L0", "A", "alpha")}, "C": SOURCE["C1"]},
    monotone={"S1_pt": -1, "S2_pt": -1},
)
