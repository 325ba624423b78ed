"""Laws written in PyMC from the papers' formulas and the priors of the law files, apart from bayeslaw's code.

Sites have bayeslaw's names: contributions in nats at the reference run (``A_nats``), exponents, ``sigma``, ``dof_above_2``.
"""

import inspect

import numpy as np
import pymc as pm
import pytensor.tensor as pt

EPS = 1e-5  # of replay


def positive(name, median, sigma):
    return pm.LogNormal(name, np.log(median), sigma)


def likelihood(loss, y, checkpoint=None, weight=None):
    """Student-t on log loss; ``checkpoint``: index of each row's, which then share an effect;
    ``weight``: measurements that each row counts for."""
    mean = pt.log(loss)
    if checkpoint is not None:
        tau = pm.HalfNormal("tau_checkpoint", 0.004)
        mean = (
            mean
            + tau * pm.Normal("z", 0, 1, shape=int(checkpoint.max()) + 1)[checkpoint]
        )
    error = {
        "nu": 2 + pm.Gamma("dof_above_2", 2.0, 0.1),
        "mu": mean,
        "sigma": positive("sigma", 0.005, 1.0),
    }
    if weight is None:
        pm.StudentT("log_loss", **error, observed=y)
    else:
        density = pm.logp(pm.StudentT.dist(**error), y)
        pm.Potential("log_loss", pt.sum(weight * density))


def chinchilla(runs, checkpoint=None, weight=None):
    """E + A/N^alpha + B/D^beta; the reference run has 1e9 parameters and 2e10 tokens."""
    n, d = (runs[c].to_numpy() for c in ("N", "D"))
    with pm.Model() as model:
        alpha, beta = positive("alpha", 0.34, 0.3), positive("beta", 0.37, 0.3)
        loss = positive("E_nats", 1.6, 0.4)
        loss += positive("A_nats", 0.3, 1.0) * (n / 1e9) ** -alpha
        loss += positive("B_nats", 0.3, 1.0) * (d / 2e10) ** -beta
        likelihood(loss, np.log(runs["loss"].to_numpy()), checkpoint, weight)
    return model


def ptpp_floor(runs, checkpoint=None, gated=False, by_level=False, lowered=True):
    """Form 1, Form 3 with ``gated``, the D-CPT law without ``lowered``; the reference run: 1e9 parameters, 5e9 tokens, replay .25, ptpp 30.

    ``by_level``: sample the loss at the reference run in place of the floor, whose prior goes along unchanged (the
    Jacobian is 1): chains then reach the tails of terms that trade with the floor.
    """
    n, d, r, ptpp = (runs[c].to_numpy() for c in ("N", "D", "replay", "ptpp"))
    with pm.Model() as model:
        alpha, nu, beta = (
            positive("alpha", 0.34, 0.3),
            positive("nu", 0.2, 0.7),
            positive("beta", 0.25, 0.5),
        )
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
        loss += (
            b * (r / 0.25) ** nu * pt.exp(slope_there * np.log(5e9) - slope * np.log(d))
        )
        loss += c * ((r + EPS) / (0.25 + EPS)) ** -gamma + f * (ptpp / 30) ** -eta
        likelihood(loss, np.log(runs["loss"].to_numpy()), checkpoint)
    return model


def ptpp_gate(runs):
    """Form 2: the gate alone lowers the data exponent; no floor falls with pre-training."""
    return ptpp_floor(runs, gated=True, lowered=False)


def cpt_dynamics(runs):
    """Wang 2025, eq. 4; the reference run: forward areas 7.2 and 1."""
    f, a, g, b = (runs[c].to_numpy() for c in ("S1_pt", "S2_pt", "S1_cpt", "S2_cpt"))
    with pm.Model() as model:
        alpha, rate, beta = (
            positive("alpha", 0.51, 0.3),
            positive("E", 100, 1.0),
            positive("beta", 0.3, 1.0),
        )

        def moved(area):
            return 1 - (1 + rate * area) ** -beta

        loss = (
            positive("L0_nats", 2.7, 0.4)
            + positive("A_nats", 0.2, 1.0) * ((f + g) / 8.2) ** -alpha
        )
        loss += -positive("C1", 0.3, 0.6) * a - positive("C2", 0.3, 0.6) * b
        loss += pm.Normal("B_nats", 0.0, 0.3) * moved(g) / moved(1.0)
        likelihood(loss, np.log(runs["loss"].to_numpy()))
    return model


def pooled_forgetting(runs, centred=False):
    """`forgetting` of several domains (Bethune 2025, eq. 7); the reference run: 334e6 parameters, 3e6 tokens, 1% of replay."""
    n, d, r, before = (runs[c].to_numpy() for c in ("N", "D", "replay", "loss_before"))
    code = np.unique(runs["domain"], return_inverse=True)[1]
    priors = {
        "A_nats": (0.01, 1.0),
        "alpha": (0.74, 0.25),
        "beta": (0.34, 0.5),
        "B": (950, 1.25),
        "sigma": (0.005, 1.0),
    }
    values, count = {}, int(code.max()) + 1
    with pm.Model() as model:
        for name, (median, width) in priors.items():
            mean = pm.Normal(f"mean_{name}", np.log(median), width)
            spread = pm.HalfNormal(f"spread_{name}", width)
            if centred:
                u = pm.Normal(f"u_{name}", mean, spread, shape=count)
            else:
                u = mean + spread * pm.Normal(f"z_{name}", 0, 1, shape=count)
            values[name] = pm.Deterministic(name, pt.exp(u))[code]
        larger = (1 + values["B"] * r) * n / ((1 + values["B"] * 0.01) * 334e6)
        drift = (
            values["A_nats"] * (d / 3e6) ** values["beta"] * larger ** -values["alpha"]
        )
        dof = 2 + pm.Gamma("dof_above_2", 2.0, 0.1)
        y = np.log(runs["loss"].to_numpy())
        pm.StudentT(
            "log_loss",
            nu=dof,
            mu=pt.log(before + drift),
            sigma=values["sigma"],
            observed=y,
        )
    return model


def floor_by_level(rest):
    """E with its prior, from the loss at the reference run less the other terms."""
    floor = pm.Deterministic(
        "E_nats", pm.Flat("level", initval=2.0 + np.zeros(())) - rest
    )
    density = pm.logp(pm.LogNormal.dist(np.log(1.4), 0.4), pt.maximum(floor, 1e-9))
    pm.Potential("E_prior", pt.switch(floor > 0, density, -np.inf))
    return floor


def ptpp_gate_floor(runs, checkpoint=None, by_level=False):
    """Form 3."""
    return ptpp_floor(runs, checkpoint, gated=True, by_level=by_level)


def dcpt(runs, checkpoint=None, by_level=False):
    """The D-CPT law."""
    return ptpp_floor(runs, checkpoint, by_level=by_level, lowered=False)


MODELS = {
    "chinchilla": chinchilla,
    "dcpt": dcpt,
    "ptpp-floor": ptpp_floor,
    "ptpp-gate": ptpp_gate,
    "ptpp-gate-floor": ptpp_gate_floor,
    "cpt-dynamics": cpt_dynamics,
}


def compiled(model):
    """The model compiled by numba for nutpie."""
    import nutpie

    return nutpie.compile_pymc_model(model, backend="numba")


def sample_compiled(program, *, draws, tune, chains, seed, target_accept=0.95):
    """Posterior and sampler statistics, by nutpie with its low-rank metric."""
    import nutpie

    # two names of one thing, by the version of nutpie
    before = "low_rank_modified_mass_matrix"
    is_before = before in inspect.signature(nutpie.sample).parameters
    low_rank = {before: True} if is_before else {"adaptation": "low_rank"}
    return nutpie.sample(
        program,
        draws=draws,
        tune=tune,
        chains=chains,
        seed=seed,
        **low_rank,
        target_accept=target_accept,
        progress_bar=False,
    )
