"""State laws on published learning curves: a 70M model adapted from the Pile to code at four shares of replay.

The loss before adaptation is measured (``kind`` base); the checkpoint's learning rate had not been annealed to zero, so
that its source loss first rises and then falls. Tokens a step are not in the table: a million are assumed, which
scales D1 and D2 and nothing else.
"""

import numpy as np
import pandas as pd
import pytest

import bayeslaw

TARGET = "starcoder.python"
TOKENS_PER_STEP, N = 1e6, 7e7
PUBLISHED = 0.286  # replay at which the source loss does not change (Ye 2024)

# one checkpoint: what acts through the size or the loss before cannot be learned, and S1 not apart from its share
FITS = {
    "source": ("state-source", {"g": "fixed(0)", "S1": "fixed(4)"}),
    "target": ("state-target", {"h": "fixed(0)"}),
}


def curves(path) -> pd.DataFrame:
    """A row per replay, step and domain: ``source`` is the Pile average by its weights, ``target`` Python code."""
    table = pd.read_csv(path)
    pile = table[table["domain"] != TARGET]
    weight = pile["pile_weight"] / pile.loc[pile["kind"] == "base", "pile_weight"].sum()
    points = ["kind", "replay", "step"]
    source = pile.assign(loss=pile["loss"] * weight).groupby(points, dropna=False)["loss"].sum().reset_index()
    both = pd.concat([source.assign(domain="source"), table[table["domain"] == TARGET].assign(domain="target")])
    before = both[both["kind"] == "base"].set_index("domain")["loss"]
    runs = both[both["kind"] == "ct"][["replay", "step", "domain", "loss"]].reset_index(drop=True)
    runs["loss_before"], runs["source_loss_before"] = runs["domain"].map(before), before["source"]
    return runs.assign(N=N, D=runs["step"] * TOKENS_PER_STEP, run="replay " + runs["replay"].astype(str))


def fit(runs: pd.DataFrame, domain: str) -> bayeslaw.Fit:
    law, priors = FITS[domain]
    return bayeslaw.fit(runs[runs["domain"] == domain], law, priors=priors)


def zero_change(posterior: bayeslaw.Fit, runs: pd.DataFrame) -> np.ndarray:
    """Replay at which each draw's source loss ends where it began, shape (draw,): the root along replay."""
    replay = np.linspace(0.02, 0.98, 481)
    end = runs[runs["D"] == runs["D"].max()].iloc[[0] * len(replay)].assign(replay=replay)
    change = posterior.log_loss(end) - np.log(end["source_loss_before"].to_numpy())
    assert np.all(np.diff(change, axis=1) < 0)
    return np.array([np.interp(0, -c, replay) for c in change])


@pytest.fixture(scope="module")
def runs(data):
    return curves(data("cpt_replay_70m.csv"))


@pytest.fixture(scope="module")
def fits(runs):
    return {domain: fit(runs, domain) for domain in FITS}
