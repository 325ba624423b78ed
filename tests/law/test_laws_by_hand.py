"""Every law at runs and parameters of its own, by its paper's formula typed here."""

import numpy as np
import pytest

from bayeslaw import law, laws

RNG = np.random.default_rng(31)
X = {
    "N": np.exp(RNG.uniform(16, 23, 9)),
    "D": np.exp(RNG.uniform(18, 25, 9)),
    "U": np.array([1e8, 1e12, 1e9, 1e8, 1e11, 1e9, 1e8, 1e10, 1e7]),
    "replay": RNG.uniform(0.05, 0.95, 9),
    "ptpp": RNG.uniform(10, 300, 9),
    "S1_pt": RNG.uniform(2, 9, 9),
    "S2_pt": RNG.uniform(-0.2, 0.3, 9),
    "S1_cpt": RNG.uniform(0.1, 2, 9),
    "S2_cpt": RNG.uniform(-0.1, 0.2, 9),
    "loss_before": RNG.uniform(2.2, 3.6, 9),
    "source_loss_before": RNG.uniform(2.0, 3.0, 9),
    "source_loss": RNG.uniform(2.0, 3.0, 9),
    "target_loss": RNG.uniform(2.0, 3.0, 9),
}
SHARES = RNG.dirichlet((2.0, 2.0, 2.0), 9).T
X |= dict(zip(("share_web", "share_code", "share_books"), SHARES, strict=True))


def worth_of_repeats(p):
    """N' and D' of Muennighoff 2023, eqs. 5 and 6."""
    unique = np.minimum(X["U"], X["D"])
    repeats = X["D"] / unique - 1
    tokens = unique + unique * p["R_D"] * (1 - np.exp(-repeats / p["R_D"]))
    best = np.minimum(p["s"] * X["U"], X["N"])
    excess = X["N"] / best - 1
    size = best + best * p["R_N"] * (1 - np.exp(-excess / p["R_N"]))
    return size, tokens


def data_constrained(p):
    size, tokens = worth_of_repeats(p)
    return p["E"] + p["A"] / size ** p["alpha"] + p["B"] / tokens ** p["beta"]


def data_constrained_coupled(p):
    size, tokens = worth_of_repeats(p)
    of_size = p["A"] / size ** (p["alpha"] / p["k"])
    of_tokens = p["B"] / tokens ** (p["beta"] / p["k"])
    return p["E"] + (of_size + of_tokens) ** p["k"]


def data_constrained_overfitting(p):
    """Lovelace 2026 (arXiv 2605.01640)."""
    repeats = X["D"] / np.minimum(X["U"], X["D"]) - 1
    penalty = p["P"] * repeats ** p["delta"] * (X["N"] / X["U"]) ** p["kappa"]
    return size_and_data(p) + penalty


def curve(p):
    """Eq. 4 of Wang 2025 without its annealing."""
    moved = 1 - (1 + p["E"] * X["S1_cpt"]) ** -p["beta"]
    return p["L0"] + p["A"] / (X["S1_pt"] + X["S1_cpt"]) ** p["alpha"], moved


def cpt_dynamics(p):
    base, moved = curve(p)
    return base - p["C1"] * X["S2_pt"] - p["C2"] * X["S2_cpt"] + p["B"] * moved


def signed(s, power):
    return np.sign(s) * np.abs(s) ** power


def cpt_dynamics_power(p):
    base, moved = curve(p)
    annealed = p["C1"] * signed(X["S2_pt"], p["z1"])
    annealed += p["C2"] * signed(X["S2_cpt"], p["z2"])
    return base - annealed + p["B"] * moved


def cpt_dynamics_size(p):
    base, moved = curve(p)
    annealed = p["C1"] * X["S2_pt"] * X["N"] ** p["g1"]
    annealed += p["C2"] * X["S2_cpt"] * X["N"] ** p["g2"]
    return base - annealed + p["B"] * moved + p["F"] / X["N"] ** p["g3"]


def replay_source(p):
    base, moved = curve(p)
    annealed = p["C2"] * X["S2_cpt"] * np.exp(p["a1"] * X["replay"])
    shift = p["B"] * moved * (1 - np.exp(-p["a2"] * (1 - X["replay"])))
    return base - p["C1"] * X["S2_pt"] - annealed + shift


def replay_target(p):
    base, moved = curve(p)
    annealed = p["C2"] * X["S2_cpt"] * np.exp(p["a1"] * (1 - X["replay"]))
    shift = p["B"] * moved * (np.exp(p["a2"] * (1 - X["replay"])) - 1)
    return base - p["C1"] * X["S2_pt"] - annealed + shift


def drifted(p):
    """A D^beta / ((1 + B r) N)^alpha (Bethune 2025, eq. 7)."""
    size = (1 + p["B"] * X["replay"]) * X["N"]
    return p["A"] * X["D"] ** p["beta"] / size ** p["alpha"]


def forgetting_complement(p):
    share = (1 - X["replay"]) ** p["kappa"]
    return p["E"] + p["A"] * X["D"] ** p["beta"] * share / X["N"] ** p["alpha"]


def mixed(p, beta, ptpp=0.0, tokens=X["D"]):
    """The forms of Goffinet 2025 around their exponent along tokens."""
    r = X["replay"]
    size = p["A"] / X["N"] ** p["alpha"]
    data = p["B"] * r ** p["nu"] / tokens**beta
    return p["E"] + size + data + p["C"] / (r + 1e-5) ** p["gamma"] + ptpp


def gated(p):
    gate = X["ptpp"] ** p["zeta"] / (1 + X["ptpp"] ** p["zeta"])
    return p["beta"] * (1 - p["lam"] * gate)


def stage_floor(p):
    return p["F"] / X["ptpp"] ** p["eta"]


def state_source(p):
    before = X["source_loss_before"]
    share = p["a"] * X["N"] ** p["g"] * np.exp(-p["kappa"] * X["replay"])
    moved = share * (1 - np.exp(-X["D"] / p["D1"]))
    learned = p["G"] * np.log(1 + X["replay"] * X["D"] / p["D2"])
    return before + (p["S1"] - before) * moved - learned


def state_target(p):
    way = 1 - (1 + X["D"] * X["N"] ** p["h"] / p["D1"]) ** -p["beta"]
    way = way * (1 - X["replay"]) ** p["q"]
    end = p["c"] * X["source_loss_before"]
    return X["loss_before"] + (end - X["loss_before"]) * way


def state_power(p, farther=1.0):
    before, r = X["source_loss_before"], X["replay"]
    level = before ** p["p"] * (1 - r) ** -p["v"] * (r + 0.02) ** -p["w"]
    exponent = p["b"] * X["N"] ** p["m"]
    tokens = X["D"] * np.sqrt(1 - r) / 1e7
    return level * (p["c"] + p["B"] * farther * X["N"] ** p["h"] * tokens**-exponent)


def reread(p):
    """What reading a text D / U times costs, relative to the level of a law."""
    shrunk = p["R"] * (X["N"] / 1e9) ** p["j"] * np.exp(-p["psi"] * X["replay"])
    return shrunk * np.sqrt(X["D"] / X["U"])


def state_power_repeats(p):
    before, r = X["source_loss_before"], X["replay"]
    level = before ** p["p"] * (1 - r) ** -p["v"] * (r + 0.02) ** -p["w"]
    return state_power(p) + level * reread(p)


def state_rise_repeats(p):
    return state_rise(p) + X["source_loss_before"] * reread(p)


def state_rise(p):
    return risen(p, X["replay"], p["S1"])


def risen(p, r, level):
    before = X["source_loss_before"]
    replayed = r * X["D"] / (X["ptpp"] * X["N"])
    share = p["a"] * X["N"] ** p["g"] * (X["ptpp"] / 30) ** p["z"]
    share = share * np.exp(-p["kappa"] * r**0.6)
    left = (level - before) * share * (1 + replayed / p["delta"]) ** -p["beta"]
    return before + left - p["G"] * before * np.log(1 + replayed)


def ptpp_tokens(p):
    r, pretrained = X["replay"], X["ptpp"] * X["N"]
    size = p["A"] / (X["N"] ** p["alpha"] * pretrained ** p["epsilon"])
    tokens = X["D"] * np.sqrt(1 - r) + p["D_T"]
    data = p["B"] * X["N"] ** p["h"] / tokens ** p["beta"]
    return (1 - r) ** -p["v"] * (p["E"] + size + data)


def ptpp_rise(p):
    replayed, pretrained = X["replay"] * X["D"], X["ptpp"] * X["N"]
    continued = (pretrained + replayed) ** p["epsilon"]
    size = p["A"] / (X["N"] ** p["alpha"] * continued)
    risen = p["C"] * X["N"] ** p["g"] * np.exp(-p["kappa"] * X["replay"] ** 0.6)
    relearned = (1 + replayed / (p["delta"] * pretrained)) ** p["beta"]
    return p["E"] + size + risen / relearned


def size_and_data(p):
    """Chinchilla's law."""
    return p["E"] + p["A"] / X["N"] ** p["alpha"] + p["B"] / X["D"] ** p["beta"]


def effective(p, power=1.0):
    """Own share, and what the others' tokens count for it."""
    web, code, books = SHARES**power
    return web + p["t_code"] * code + p["t_books"] * books


def mixture_additive(p):
    web, code, books = (
        X[f"share_{name}"] ** p[f"gamma_{name}"] for name in ("web", "code", "books")
    )
    return size_and_data(p) + p["K"] / (web + p["c_code"] * code + p["c_books"] * books)


def mixture_coupled(p):
    of_size = p["A"] / X["N"] ** (p["alpha"] / p["k"])
    of_data = p["B"] / X["D"] ** (p["beta"] / p["k"])
    share = effective(p, p["q"])
    of_mixture = p["K"] / share ** p["kappa"]
    return p["E"] + of_mixture + share ** -p["gamma"] * (of_size + of_data) ** p["k"]


def mixture_dcpt(p):
    e = effective(p)
    size = p["A"] / X["N"] ** p["alpha"]
    data = p["B"] * e ** p["nu"] / X["D"] ** p["beta"]
    return p["E"] + size + data + p["C"] / (e + 1e-5) ** p["gamma"]


def mixture_exponential(p):
    of_code, of_books = p["k_code"] * X["share_code"], p["k_books"] * X["share_books"]
    return size_and_data(p) + p["K"] * np.exp(of_code + of_books)


def mixture_rise(p):
    own, code, books = (X[f"share_{name}"] for name in ("web", "code", "books"))
    level = (code * p["S1_code"] + books * p["S1_books"]) / (1 - own)
    return risen(p, own, level)


def mixture_state(p):
    way = 1 - (1 + X["D"] * X["N"] ** p["h"] / p["D1"]) ** -p["beta"]
    end = p["c"] * X["source_loss_before"]
    moved = (end - X["loss_before"]) * effective(p) ** p["q"] * way
    return X["loss_before"] + moved


def mixture_tokens(p):
    data = p["B"] / (effective(p) * X["D"]) ** p["beta"]
    return p["E"] + p["A"] / X["N"] ** p["alpha"] + data


FORMULAS = {
    "mixture-additive": mixture_additive,
    "mixture-coupled": mixture_coupled,
    "mixture-dcpt": mixture_dcpt,
    "mixture-exponential": mixture_exponential,
    "mixture-rise": mixture_rise,
    "mixture-state": mixture_state,
    "mixture-tokens": mixture_tokens,
    "anneal": lambda p: (
        p["L0"] + p["A"] / X["S1_pt"] ** p["alpha"] - p["C"] * X["S2_pt"]
    ),
    "chinchilla": lambda p: (
        p["E"] + p["A"] / X["N"] ** p["alpha"] + p["B"] / X["D"] ** p["beta"]
    ),
    "coupled": lambda p: (
        p["E"]
        + (
            p["A"] / X["N"] ** (p["alpha"] / p["k"])
            + p["B"] / X["D"] ** (p["beta"] / p["k"])
        )
        ** p["k"]
    ),
    "cpt-dynamics": cpt_dynamics,
    "cpt-dynamics-power": cpt_dynamics_power,
    "cpt-dynamics-size": cpt_dynamics_size,
    "cpt-dynamics-replay-source": replay_source,
    "cpt-dynamics-replay-target": replay_target,
    "dcpt": lambda p: mixed(p, p["beta"]),
    "finetune": lambda p: (
        p["E"] + p["A"] / (X["N"] ** p["alpha"] * X["D"] ** p["beta"])
    ),
    "ptpp-tokens": ptpp_tokens,
    "ptpp-rise": ptpp_rise,
    "broken": lambda p: (
        p["A"] * (1 + (X["D"] / p["S"]) ** p["k"]) ** (-p["beta"] / p["k"])
    ),
    "rectified": lambda p: p["E"] + p["B"] / (p["D0"] + X["D"] ** p["beta"]),
    "data-constrained": data_constrained,
    "data-constrained-coupled": data_constrained_coupled,
    "data-constrained-overfitting": data_constrained_overfitting,
    "forgetting": lambda p: X["loss_before"] + drifted(p),
    "forgetting-complement": forgetting_complement,
    "forgetting-floor": lambda p: p["E"] + drifted(p),
    "forgetting-rewarm": lambda p: X["loss_before"] + p["E"] + drifted(p),
    "ood-mixture": lambda p: p["w1"] * X["source_loss"] + p["w2"] * X["target_loss"],
    "ptpp-floor": lambda p: mixed(p, p["beta"], stage_floor(p)),
    "ptpp-gate": lambda p: mixed(p, gated(p)),
    "ptpp-gate-floor": lambda p: mixed(p, gated(p), stage_floor(p)),
    "ptpp-transfer": lambda p: mixed(
        p, p["beta"], stage_floor(p), tokens=X["D"] + p["D_T"]
    ),
    "state-power": state_power,
    "state-power-repeats": state_power_repeats,
    "state-power-stages": lambda p: state_power(p, (X["ptpp"] / 30) ** p["z"]),
    "state-rise": state_rise,
    "state-rise-repeats": state_rise_repeats,
    "state-source": state_source,
    "state-target": state_target,
}


def test_every_law_has_its_formula_here():
    names = {one.name for one in laws()}
    assert set(FORMULAS) == names, "type a new law's formula in FORMULAS above"


@pytest.mark.parametrize("name", FORMULAS)
def test_a_law_is_its_paper_s_formula(name):
    """At parameters a tenth off the plausible ones, each its own way."""
    one, rng = law(name), np.random.default_rng(7)
    parameters = {
        p: float(v) * np.exp(0.1 * rng.standard_normal())
        for p, v in one.plausible.items()
    }
    if name == "forgetting-complement":
        parameters["kappa"] = 3.0  # of a replay of tenths, not of percent
    told = one.loss({c: X[c] for c in one.covariates}, one.from_paper(parameters))
    np.testing.assert_allclose(told, FORMULAS[name](parameters), rtol=1e-9)
