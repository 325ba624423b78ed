"""Name the streams of random numbers that are drawn from one seed for different
purposes.
"""

from enum import IntEnum, unique

import numpy as np


@unique
class Stream(IntEnum):
    """The word that is mixed with a seed; each purpose has its own.

    A plan's posteriors have their places among its constraints, from 0 on.
    """

    REWEIGHTING = 6  # outcomes by which `anchors` reweights draws
    FORESEEN_ROWS = 11  # new rows as a posterior made before them foresees them
    RANKED_BATCHES = 12  # halves of those: to learn distances, and to rank
    CHOICES = 13  # measurements after which `anchors` chooses
    RECIPES = 14  # runs of recipes that are compared, and how their domains pair
    PLAN_COVARIATES = 1000  # draws of a plan's covariates
    PLAN_ACCURACY = 1002  # which draws of an accuracy's curve go with which of a loss
    PLAN_PAIRS = 1001  # by which draws of several domains are paired


def generator(seed: int, *words: int) -> np.random.Generator:
    """Seed NumPy's generator by a seed and words, the first of which is a `Stream`."""
    return np.random.default_rng([seed, *words])
