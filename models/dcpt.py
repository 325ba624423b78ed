"""E + A/N^alpha + B r^nu/D^beta + C/(r+eps)^gamma: adaptation with replay at one
pre-training stage.

The law does not read how long the checkpoint was pre-trained. Goffinet 2025, appendix
B, fits it to all stages as the baseline, and to a single stage as the oracle.
"""

from bayeslaw._law.law import Law

from ._terms import (
    ALPHA,
    BETA_ADAPTATION,
    GAMMA,
    NU,
    REFERENCE,
    adaptation_data,
    floor,
    replay_barrier,
    size,
)

LAW = Law(
    name="dcpt",
    title="adaptation with replay at one pre-training stage (D-CPT)",
    source="Que 2024, as used in Goffinet 2025",
    latex=r"E + \frac{A}{N^{\alpha}} + \frac{B\,r^{\nu}}{D^{\beta}}"
    r" + \frac{C}{(r+\epsilon)^{\gamma}}",
    covariates=("N", "D", "replay"),
    terms=(floor(1.4), size(), adaptation_data(), replay_barrier()),
    exponents=(ALPHA, NU, BETA_ADAPTATION, GAMMA),
    reference={c: REFERENCE[c] for c in ("N", "D", "replay")},
    plausible={
        "E": 1.0,
        "A": 180.0,
        "B": 60.0,
        "C": 0.03,
        "alpha": 0.3,
        "nu": 0.15,
        "beta": 0.2,
        "gamma": 0.5,
    },
    monotone={"N": -1, "D": -1},
)
