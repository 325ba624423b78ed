"""Name the streams of random numbers that are drawn from one seed."""

from enum import IntEnum, unique

import numpy as np


@unique
class Stream(IntEnum):
    """Word that is mixed with a seed; each purpose has its own.

    The words from 0 on belong to a plan's posteriors, by their place among its
    constraints. A seed without words (the same as word 0) is that of what a command
    begins with: simulated tables, and a fit's own draws.
    """

    REWEIGHTING = 6  # outcomes by which `anchors` reweights draws
    FORESEEN_ROWS = 11  # forecasts of new rows by the old posterior
    RANKED_BATCHES = (
        12  # how these forecasts are halved: to learn distances, and to rank
    )
    CHOICES = 13  # measurements after which `anchors` chooses
    CONSTANTS = 20  # draws of uncertain constants (`law_at`)
    PRIORS = 21  # draws of laws' priors
    NEW_RUN = 22  # errors of new runs, around each draw of the law
    CHAINED = 23  # errors of forecast checkpoints, and the pairing of chained fits
    ACCURACY_CURVE = 24  # draws of the curve from loss to accuracy
    EVALUATIONS = 25  # errors of new evaluations, and the pairing with draws of a loss
    SLOPES = 26  # a calibration slope, around each draw's regression
    PAIRS = 27  # pairing of draws of two domains
    THINNED = 28  # draws that a followed run keeps
    DETOURS = 29  # slopes of a followed run along its schedule
    UNSEEN_DOMAIN = 30  # domains without runs
    REPLANS = 31  # draws with which `anchors` plans again
    STARTS = 32  # mixtures from which a search starts
    PRIOR_DRIFT = 33  # drifts of a handful of runs, from their prior
    RESAMPLED_STAGES = 34  # left-out stages, to tell how sure the best law is
    TWICE_STARTS = 35  # starts of a fit to a table and its replicate
    CANDIDATES_DRIFT = 36  # drifts of runs that could be bought
    BASIS = 37  # random projections that find a basis of many columns
    INFLUENCE = 38  # draws reweighted without a run
    SCATTERED = 39  # mixtures to which a page's surrogate is fitted
    REPLICATED = 40  # errors of fitted rows that are measured once more
    PLAN_COVARIATES = 1000  # draws of a plan's covariates
    PLAN_ACCURACY = 1002  # pairing of draws of an accuracy's curve with draws of a loss
    PLAN_PAIRS = 1001  # pairing of draws of several domains


def generator(seed: int, *words: int) -> np.random.Generator:
    """Seed NumPy's generator by a seed and words, the first of which is a `Stream`. All
    random numbers of NumPy come from here but those of replicates, which spawn seeds.
    """
    return np.random.default_rng([seed, *words])
