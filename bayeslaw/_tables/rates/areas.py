"""Areas of learning-rate schedules, which the annealing laws read as covariates.

S1(t) = sum_{i<=t} eta_i,    S2(t) = sum_{i<=t} m_i,    m_i = sum_{k<=i} (eta_{k-1} -
eta_k) lambda^(i-k),

the forward and the annealing area (Tissue 2024; Wang 2025, eq. 1), with lambda = .999.
The momentum obeys m_i = lambda m_{i-1} + eta_{i-1} - eta_i, so both areas cost one
pass. The sum starts at step 1 with eta_0 = 0: the warm-up ramp is part of it, and S2 is
negative until the rate has come down again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayeslaw._base.errors import RunTableError

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float


LAMBDA = 0.999  # Tissue 2024; Wang 2025, appendix C
COLUMNS = ("S1_pt", "S2_pt", "S1_cpt", "S2_cpt")


class Areas(NamedTuple):
    """Areas after each step, and the momentum that the next phase inherits."""

    S1: Float[np.ndarray, " step"]
    S2: Float[np.ndarray, " step"]
    momentum: Float[np.ndarray, " step"]


def areas(
    rates: Float[np.ndarray, " step"],
    *,
    before: float = 0.0,
    momentum: float = 0.0,
    lr_power: float = 0.0,
    batch_ratio: float = 1.0,
    decay: float = LAMBDA,
) -> Areas:
    """Compute the forward and annealing area of a schedule, in linear time.

    ``rates``: at steps 1, 2, ..., shape (step,). ``before``, ``momentum``: rate and
    momentum at step 0: both are 0 for pre-training; for adaptation, the last values of
    pre-training. ``lr_power``: power p of Wang 2025, eq. 9, which multiplies the momentum
    of each step by eta_i^p (the paper has p = .1 and .2); with 0 it is eq. 1.
    ``batch_ratio``: number of steps of the first phase that one step counts as, if the
    phase has another batch size. Wang 2025 (appendix F) keeps 1 and lets the coefficients
    absorb the batch size. ``decay``: lambda, per step of the first phase.
    """
    from scipy.signal import lfilter

    rates = np.asarray(rates, float)
    # eta_{i-1} - eta_i: negative in a warm-up, where the annealing area falls.
    drop = -np.diff(rates, prepend=before)
    per_step = decay**batch_ratio
    # m_i = lambda m_{i-1} + drop_i is the recursive filter y_i - lambda y_{i-1} = x_i.
    # Its initial value is lambda times the momentum at step 0. A step may count as b
    # substeps, which all have the step's rate. Then the rate drops in the first
    # substep, and over all b the momentum fades by lambda^b. `first` is the momentum
    # after the first substep.
    first, _ = lfilter([1.0], [1.0, -per_step], drop, zi=np.array([decay * momentum]))
    # sum of decay^j over the substeps j = 0 ... b - 1
    substeps = (1 - per_step) / (1 - decay)
    weight = substeps * (rates**lr_power if lr_power else 1.0)
    # the momentum after the last substep
    last = first * decay ** (batch_ratio - 1)
    return Areas(
        S1=batch_ratio * np.cumsum(rates), S2=np.cumsum(weight * first), momentum=last
    )


def schedule_areas(
    pretraining: Float[np.ndarray, " step"],
    adaptation: Float[np.ndarray, " adaptation_step"] | None = None,
    *,
    carry_momentum: bool = True,
    lr_power: float = 0.0,
    batch_ratio: float = 1.0,
) -> pd.DataFrame:
    """Compute the areas of both phases after every step, one row per step.

    During adaptation the areas of pre-training stay at their last values. Wang 2025
    defines S2 "at the PT and CPT stages" and lets the loss without distribution shift
    follow eq. 1 over the whole schedule (eq. 2), so S2_pt + S2_cpt must be the S2 of
    the two phases joined. Therefore the first drop of adaptation starts from the last
    rate of pre-training (appendix G), and the remaining momentum of pre-training is
    carried on into S2_cpt. The paper has no formula for this momentum;
    ``carry_momentum=False`` drops it.

    Parameters
    ----------
    pretraining, adaptation
        Learning rates at steps 1, 2, ... of each phase, shape (step,).
    carry_momentum
        Whether adaptation starts with the last momentum of pre-training.
    lr_power
        Power of the rate by which the momentum of each step is multiplied (Wang 2025,
        eq. 9).
    batch_ratio
        Batch size of adaptation over that of pre-training, if areas are to count tokens
        and not steps.

    Returns
    -------
    DataFrame
        ``step`` (counted through), ``lr``, ``S1_pt``, ``S2_pt``, ``S1_cpt``,
        ``S2_cpt``.

    Examples
    --------
    >>> rates = bayeslaw.constant(1e-3, 100)
    >>> bayeslaw.schedule_areas(rates)["S1_pt"].iloc[-1].round(6).item()
    0.1
    """
    import pandas as pd

    phases = []
    for name, phase in (("pretraining", pretraining), ("adaptation", adaptation)):
        try:
            rates = np.asarray(() if phase is None else phase, float)
        except (TypeError, ValueError):
            rates = np.full(1, np.nan)
        if rates.ndim != 1 or not (np.isfinite(rates) & (rates >= 0)).all():
            raise RunTableError(
                f"{name}: a schedule is one learning rate a step, each a number of at "
                "least 0, as constant, cosine, wsd and multi_step make it"
            )
        phases.append(rates)
    rates, further = phases
    if not len(rates):
        raise ValueError(
            "the pre-training schedule is empty; a law of a model whose pre-training is "
            "unknown must not read S1_pt or S2_pt"
        )
    first = areas(rates, lr_power=lr_power)
    second = areas(
        further,
        # the first drop of adaptation starts from the last rate of pre-training
        before=rates[-1],
        momentum=first.momentum[-1] if carry_momentum else 0.0,
        lr_power=lr_power,
        batch_ratio=batch_ratio,
    )
    n, zeros = len(further), np.zeros(len(rates))
    table = {
        "step": np.arange(1, len(rates) + n + 1),
        "lr": np.concatenate([rates, further]),
        "S1_pt": np.concatenate([first.S1, np.full(n, first.S1[-1])]),
        "S2_pt": np.concatenate([first.S2, np.full(n, first.S2[-1])]),
        "S1_cpt": np.concatenate([zeros, second.S1]),
        "S2_cpt": np.concatenate([zeros, second.S2]),
    }
    return pd.DataFrame(table)
