"""Run simulation-based calibration with the misfit: draw a law and its misfit from their priors, simulate a table, and learn both.

    python tests/studies/misfit_sbc.py [--law chinchilla] [--simulations 60] [--right] [-o FILE.md]

The truth of each simulation is a law at parameters from its prior, times the exponential of a misfit from the prior of its
scales; with `--right` there is no misfit. Law and misfit are learned in two steps, as in `fit`. The posterior's share below the
truth is computed for the law's parameters, the noise, the misfit's size over the runs, and the log loss (law and misfit together)
at a run among the others and at a run beyond them. The two steps are a cut and not Bayes' rule: a law that is fitted by itself
explains part of the misfit. So with a misfit, shares of its parameters need not be uniform; shares of the log loss should be.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from sbc import design, draw_posterior, draw_table

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._inference import coordinates
from bayeslaw._inference.discrepancy.marginal import RemainingError
from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._inference.noise import ERROR
from bayeslaw._inference.ranks import uniformity
from bayeslaw._inference.table import NONE, Sharing, pad
from bayeslaw._law.law import Law, log_loss
from bayeslaw._posteriors.fits.misfit import TrainingRuns, learn_misfit
from bayeslaw._posteriors.posterior import LogLoss, over_draws

DRAWS = 1000
BEYOND = 4.0  # times the largest size and tokens


def simulate_one(law: Law, x: dict, right: bool, seed: int) -> dict[str, float]:
    """Shares of the posterior below the truth, by quantity."""
    rng = np.random.default_rng(seed)
    process = process_of(x)
    runs = {c: np.append(v, [np.median(v), v.max()]) for c, v in x.items()}
    for c in ("N", "D"):
        runs[c][-1] *= BEYOND
    truth, _, _, _ = draw_table(law, x, NONE, rng)
    scales = np.log([float(p.draw(rng, 1)[0]) for p in process.priors.values()])
    sd = np.exp(0.5 * process.spectrum.log_variances(scales))
    weights = sd * rng.standard_normal(process.size) * (not right)
    missed = process.features(runs, np) @ weights
    sigma = float(RemainingError().sigma.draw(rng, 1)[0])
    dof = ERROR.dof_min + rng.gamma(ERROR.dof_shape, 1 / ERROR.dof_rate)
    mean = np.asarray(log_loss(law, runs, truth)) + missed
    y = mean[:-2] + sigma * rng.standard_t(dof, len(mean) - 2)

    table = pad(x, y, NONE)
    drawn = draw_posterior(law, table, coordinates.contrast_points(law, x), seed)
    index = rng.choice(len(drawn.weight), DRAWS, p=drawn.weight / drawn.weight.sum())
    values = {n: np.asarray(v)[index] for n, v in drawn.values.items()}
    misfit = learn_misfit(law, values, TrainingRuns(x, y, Sharing()), seed=seed)
    learned = misfit.at(runs)
    log_losses = over_draws(LogLoss(law), values, runs) + learned

    def size(along_runs: np.ndarray) -> np.ndarray:
        return np.sqrt(np.mean(along_runs[..., :-2] ** 2, axis=-1))

    free = [n for n, p in law.priors.items() if not p.is_fixed]
    shares = {n: np.mean(values[n] < truth[n]) for n in free}
    shares["sigma"] = np.mean(misfit.sigma < sigma)
    if not right:
        shares["misfit"] = np.mean(size(learned) < size(missed))
    shares["log loss amid"] = np.mean(log_losses[:, -2] < mean[-2])
    shares["log loss beyond"] = np.mean(log_losses[:, -1] < mean[-1])
    return {n: float(v) for n, v in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--law", default="chinchilla")
    parser.add_argument("--simulations", type=int, default=60)
    parser.add_argument("--right", action="store_true", help="the law is right")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    runtime.start()
    warnings.simplefilter("ignore")
    law = bayeslaw.law(given.law)
    runs = design(law)
    x = {c: runs[c].to_numpy(float) for c in law.covariates}
    rows = []
    for seed in range(given.simulations):
        rows.append(simulate_one(law, x, given.right, seed))
        if seed % 10 == 9:
            print(f"{seed + 1} of {given.simulations}", file=sys.stderr, flush=True)
    lines = [
        "| quantity | mean share | within the middle 90% | p |",
        "|---|---|---|---|",
    ]
    for name in rows[0]:
        shares = np.array([row[name] for row in rows])
        inside = np.mean((shares > 0.05) & (shares < 0.95))
        p = uniformity(shares)
        lines.append(f"| {name} | {shares.mean():.2f} | {inside:.0%} | {p:.2g} |")
    text = "\n".join(lines) + "\n"
    if given.output:
        given.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
