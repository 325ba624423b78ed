"""Laws written in PyMC from the papers' formulas and the priors of the law files, apart from bayeslaw's code.

Sites have bayeslaw's names: contributions in nats at the reference run (``A_nats``), exponents, ``sigma``, ``dof_above_2``.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

EPS = 1e-5  # of replay


def positive(name, median, sigma):
    return pm.LogNormal(name, np.log(median), sigma)


def likelihood(loss, y, checkpoint=None):
    """Student-t on log loss; ``checkpoint``: index of each row's, which then share an effect."""
    mean = pt.log(loss)
    if checkpoint is not None:
        tau = pm.HalfNormal("tau_checkpoint", 0.004)
        mean = mean + tau * pm.Normal("z", 0, 1, shape=int(checkpoint.max()) + 1)[checkpoint]
    sigma = positive("sigma", 0.005, 1.0)
    pm.StudentT("log_loss", nu=2 + pm.Gamma("dof_above_2", 2.0, 0.1), mu=mean, sigma=sigma, observed=y)


def chinchilla(runs, checkpoint=None):
    """E + A/N^alpha + B/D^beta; the reference run has 1e9 parameters and 2e10 tokens."""
    n, d = (runs[c].to_numpy() for c in ("N", "D"))
    with pm.Model() as model:
        alpha, beta = positive("alpha", 0.34, 0.3), positive("beta", 0.37, 0.3)
        loss = positive("E_nats", 1.6, 0.4)
        loss += positive("A_nats", 0.3, 1.0) * (n / 1e9) ** -alpha
        loss += positive("B_nats", 0.3, 1.0) * (d / 2e10) ** -beta
        likelihood(loss, np.log(runs["loss"].to_numpy()), checkpoint)
    return model


def ptpp_floor(runs, checkpoint=None, gated=False, by_level=False, lowered=True):
    """Form 1, Form 3 with ``gated``, the D-CPT law without ``lowered``; the reference run: 1e9 parameters, 5e9 tokens, replay .25, ptpp 30.

    ``by_level``: sample the loss at the reference run in place of the floor, whose prior goes along unchanged (the
    Jacobian is 1): chains then reach the tails of terms that trade with the floor.
    """
    n, d, r, ptpp = (runs[c].to_numpy() for c in ("N", "D", "replay", "ptpp"))
    with pm.Model() as model:
        alpha, nu, beta = positive("alpha", 0.34, 0.3), positive("nu", 0.2, 0.7), positive("beta", 0.25, 0.5)
        gamma = positive("gamma", 0.4, 0.5)
        slope, slope_there = beta, beta
        if gated:
            lam, zeta = pm.Beta("lam", 2, 2), pm.Normal("zeta", 0, 0.5)
            slope = beta * (1 - lam * ptpp**zeta / (1 + ptpp**zeta))
            slope_there = beta * (1 - lam * 30.0**zeta / (1 + 30.0**zeta))
        a, b = positive("A_nats", 0.3, 1.0), positive("B_nats", 0.4, 1.0)
        c, f, eta = positive("C_nats", 0.05, 1.0), 0.0, 1.0
        if lowered:
            f, eta = positive("F_nats", 0.1, 1.0), positive("eta", 0.37, 0.35)
        e = floor_by_level(a + b + c + f) if by_level else positive("E_nats", 1.4, 0.4)
        loss = e + a * (n / 1e9) ** -alpha
        loss += b * (r / 0.25) ** nu * pt.exp(slope_there * np.log(5e9) - slope * np.log(d))
        loss += c * ((r + EPS) / (0.25 + EPS)) ** -gamma + f * (ptpp / 30) ** -eta
        likelihood(loss, np.log(runs["loss"].to_numpy()), checkpoint)
    return model


def floor_by_level(rest):
    """E with its prior, from the loss at the reference run less the other terms."""
    floor = pm.Deterministic("E_nats", pm.Flat("level", initval=2.0 + np.zeros(())) - rest)
    density = pm.logp(pm.LogNormal.dist(np.log(1.4), 0.4), pt.maximum(floor, 1e-9))
    pm.Potential("E_prior", pt.switch(floor > 0, density, -np.inf))
    return floor


def ptpp_gate_floor(runs, checkpoint=None, by_level=False):
    """Form 3."""
    return ptpp_floor(runs, checkpoint, gated=True, by_level=by_level)


def dcpt(runs, checkpoint=None, by_level=False):
    """The D-CPT law."""
    return ptpp_floor(runs, checkpoint, by_level=by_level, lowered=False)


MODELS = {"chinchilla": chinchilla, "dcpt": dcpt, "ptpp-floor": ptpp_floor, "ptpp-gate-floor": ptpp_gate_floor}


def compiled(model):
    """The model compiled by numba for nutpie."""
    import nutpie

    return nutpie.compile_pymc_model(model, backend="numba")


def sample_compiled(program, *, draws, tune, chains, seed, target_accept=0.95):
    """Posterior and sampler statistics, by nutpie with its low-rank metric."""
    import nutpie

    return nutpie.sample(
        program,
        draws=draws,
        tune=tune,
        chains=chains,
        seed=seed,
        adaptation="low_rank",
        target_accept=target_accept,
        progress_bar=False,
    )
