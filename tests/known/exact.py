"""Posteriors known exactly: a line with normal noise, in closed form, and a constant law, on a grid."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from arviz_base import from_dict
from scipy import stats

import bayeslaw
from bayeslaw._forecasts.checking.inference import Ranked
from bayeslaw._inference.noise import ERROR
from bayeslaw._posteriors.fits import artifact

ROWS, NOISE = 12, 0.01
X = np.column_stack([np.ones(ROWS), np.linspace(-1, 1, ROWS)])
PRIOR_SD = np.array([0.05, 0.02])
Y = X @ np.array([0.03, -0.01]) + NOISE * np.random.default_rng(3).standard_normal(ROWS)
NAMES = ("level", "slope")


@dataclass(frozen=True)
class Line:
    """Inference of a level and a slope. A wrong one is ``narrow`` times too narrow, or ``shift`` sds too high, in the
    posterior given the table, or with ``always`` in that given both tables too; one that ``reweighs`` weighs its own
    draws by the likelihood of the new losses, and takes the posterior given the table, wrong or not, for granted.
    """

    narrow: float = 1.0
    shift: float = 0.0
    always: bool = False
    reweighs: bool = False

    def _posterior(self, wrong, rows, y, mean=(0.0, 0.0), precision=None):
        """Mean and a root of the covariance, given rows."""
        before = np.diag(PRIOR_SD**-2) if precision is None else precision
        after = before + rows.T @ rows / NOISE**2
        centre = np.linalg.solve(after, before @ mean + rows.T @ y / NOISE**2)
        root = np.linalg.cholesky(np.linalg.inv(after))
        if wrong:
            sd = np.sqrt(np.diag(np.linalg.inv(after)))
            centre, root = centre + self.shift * sd, root / self.narrow
        return centre, root

    def draw(self, rng):
        centre, root = self._posterior(True, X, Y)
        return dict(zip(NAMES, centre + root @ rng.standard_normal(2), strict=True))

    def simulate(self, truth, rng):
        mean = X @ [truth[name] for name in NAMES]
        return mean + NOISE * rng.standard_normal(ROWS)

    def rank(self, truth, new, seed):
        if self.reweighs:
            centre, root = self._posterior(True, X, Y)
            precision = np.linalg.inv(root @ root.T)
            centre, root = self._posterior(False, X, new, centre, precision)
        else:
            both = np.vstack([X, X]), np.concatenate([Y, new])
            centre, root = self._posterior(self.always, *both)
        draws = centre + np.random.default_rng(seed).standard_normal((400, 2)) @ root.T
        below = (draws < [truth[name] for name in NAMES]).mean(axis=0)
        return Ranked(dict(zip(NAMES, below.tolist(), strict=True)))


# -- a law of which all but its floor is fixed -----------------------------------------


def constant_law() -> bayeslaw.Law:
    """E + A / N^alpha + B / D^beta, of which only E is to be learned."""
    law = bayeslaw.law("chinchilla")
    names = [name for name in law.priors if name != "E_nats"]
    return law.with_priors({n: f"fixed({law.priors[n].median!r})" for n in names})


def constant_runs() -> pd.DataFrame:
    sizes = {"N": np.geomspace(1e8, 1e9, ROWS), "D": np.geomspace(1e9, 3e10, ROWS)}
    runs = pd.DataFrame(sizes).assign(loss=1.0)
    law = constant_law()
    values = {name: prior.median for name, prior in law.priors.items()}
    mean = np.asarray(law.loss({c: v.to_numpy() for c, v in runs.items()}, values))
    noise = NOISE * np.random.default_rng(1).standard_normal(ROWS)
    return runs.assign(loss=mean * np.exp(noise))


def fit_on_a_grid(draws: int = 4000, shift: float = 0.0) -> bayeslaw.Fit:
    """The posterior of E, sigma and the degrees of freedom summed over a grid, with scipy's densities and no sampler;
    E drawn ``shift`` sds too high.
    """
    law, runs = constant_law(), constant_runs()
    rest = {name: prior.median for name, prior in law.priors.items()}
    x = {c: runs[c].to_numpy() for c in law.covariates}
    without = np.asarray(law.loss(x, rest | {"E_nats": 0.0}))
    E = rest["E_nats"] * np.linspace(0.96, 1.04, 81)
    sigma, dof = np.geomspace(0.002, 0.06, 60), np.geomspace(0.05, 120, 60)
    grid = np.meshgrid(E, sigma, dof, indexing="ij")
    residual = np.log(runs["loss"].to_numpy()) - np.log(grid[0][..., None] + without)
    log_p = stats.t.logpdf(
        residual / grid[1][..., None], ERROR.dof_min + grid[2][..., None]
    )
    log_p = log_p.sum(axis=-1) - ROWS * np.log(grid[1])
    log_p += stats.lognorm.logpdf(
        grid[0], law.priors["E_nats"].args[1], scale=rest["E_nats"]
    )
    # a cell of these axes is as wide as its value is large
    log_p += stats.norm.logpdf(
        np.log(grid[1]), np.log(ERROR.sigma.args[0]), ERROR.sigma.args[1]
    )
    log_p += stats.gamma.logpdf(
        grid[2], ERROR.dof_shape, scale=1 / ERROR.dof_rate
    ) + np.log(grid[2])
    p = np.exp(log_p - log_p.max()).ravel()
    rng = np.random.default_rng(0)
    cells = rng.choice(p.size, draws, p=p / p.sum())
    width = np.array(
        [E[1] - E[0], np.log(sigma[1] / sigma[0]), np.log(dof[1] / dof[0])]
    )
    spread = width * (rng.random((draws, 3)) - 0.5)  # anywhere in its cell
    drawn = np.column_stack([axis.ravel()[cells] for axis in grid])
    drawn[:, 0] += spread[:, 0] + shift * drawn[:, 0].std()
    drawn[:, 1:] *= np.exp(spread[:, 1:])
    values = {name: np.full(draws, value) for name, value in rest.items()}
    values |= dict(zip(("E_nats", "sigma", "dof_above_2"), drawn.T, strict=True))
    tree = from_dict({"posterior": {n: v[None] for n, v in values.items()}})
    tree["constant_data"] = artifact.constant_data(runs)
    tree.attrs.update(artifact.provenance(law, 0, "fit"), seconds=1.0)
    return bayeslaw.Fit(law, tree)
