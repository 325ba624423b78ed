"""Draws of a power law in tokens as a posterior, and a run of such a law: what following a run is tried on."""

from collections.abc import Container
from typing import NamedTuple

import numpy as np
import pandas as pd

N = 1e8
UNTIL = 20 * N


class Reads(NamedTuple):
    """As much of a piece as following reads."""

    covariates: tuple[str, ...]
    first_steps: float = 0.0

    def columns_in(self, there: Container[str]) -> list[str]:
        return list(self.covariates)


class PowerLaws:
    """Draws of a power law in tokens with noise: as much of a posterior as following reads."""

    name, warnings = "power laws", ()

    def __init__(self, floor, height, power, noise=0.003, runs=None):
        self.floor, self.height, self.power = floor, height, power
        self.noise, self.runs = noise, runs

    def pieces(self):
        return (Reads(("N", "D")),)

    def log_loss(self, runs, *, noise=False, seed=0):
        tokens = runs["D"].to_numpy(float) / N
        law = np.log(
            self.floor[:, None] + self.height[:, None] * tokens ** -self.power[:, None]
        )
        if not noise:
            return law
        rng = np.random.default_rng(seed)
        return law + self.noise * rng.standard_normal(law.shape)


def power_laws(draws=300, seed=0, domain=None) -> PowerLaws:
    rng = np.random.default_rng(seed)
    runs = (
        None
        if domain is None
        else pd.DataFrame({"domain": [domain], "N": [N], "D": [UNTIL]})
    )
    return PowerLaws(
        rng.normal(1.6, 0.03, draws), rng.normal(0.8, 0.03, draws), rng.normal(0.3, 0.02, draws), runs=runs,
    )  # fmt: skip


class Mixed(PowerLaws):
    """Power laws whose loss rises with replay, e-fold for e-fold."""

    def pieces(self):
        return (Reads(("N", "D", "replay")),)

    def log_loss(self, runs, *, noise=False, seed=0):
        law = super().log_loss(runs, noise=noise, seed=seed)
        return law + runs["replay"].to_numpy(float)


def points(tokens, losses, **columns) -> pd.DataFrame:
    return pd.DataFrame({"N": N, "D": tokens, "loss": losses} | columns)


def true_curve(tokens, floor=1.62, height=0.8, power=0.31):
    return floor + height * (np.asarray(tokens) / N) ** -power


TOKENS = np.geomspace(0.3, 5.0, 8) * N
END = float(true_curve(UNTIL))
