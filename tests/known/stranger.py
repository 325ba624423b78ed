"""A table as a stranger exports it: odd names, gaps, crashed rows, budgets in tokens;
losses by a formula that is none of the laws'.
"""

import itertools
import warnings

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw import RunTableWarning

SIZES = (125.0, 350.0, 760.0, 1300.0)  # millions
PRETRAINED = (50.0, 150.0, 300.0)  # billions of tokens, for every size
REPLAY = (5, 25, 50)  # percent
RUNS = 62
CRASHED = 6


def _before(size, pretrained):
    """English and Finnish loss of a checkpoint."""
    english = 1.7 + 420 / (size * 1e6) ** 0.34 + 310 / (pretrained * 1e9) ** 0.3
    return english, 2.1 + 0.85 * english


def true_losses(size, pretrained, tokens, mix):
    """English and Finnish loss without noise after an adaptation; millions of
    parameters, billions of tokens, percent of replay.
    """
    english, finnish = _before(size, pretrained)
    replay = mix / 100
    learned = 1 - np.exp(-0.42 * np.log1p(9 * tokens * (1 - replay) ** 0.8))
    forgot = 0.22 * (1 - replay**0.35) * np.log1p(tokens) / 3
    return english + forgot, finnish - 1.6 * learned


def stranger(seed: int = 0) -> pd.DataFrame:
    """62 rows of four sizes and three budgets; a seventh of the checkpoints' losses is
    empty in some rows, those of one checkpoint in all.
    """
    random = np.random.default_rng(seed)
    grid = list(itertools.product(SIZES, PRETRAINED, REPLAY, (2.0, 6.0, 20.0)))
    picked = random.permutation(len(grid))[:RUNS]
    rows = []
    for number, i in enumerate(sorted(picked)):
        size, pretrained, mix, tokens = grid[i]
        english, finnish = _before(size, pretrained)
        english_after, finnish_after = true_losses(size, pretrained, tokens, mix)
        noise = random.normal(0, 0.003, 2)
        rows.append(
            {
                "Name": f"cpt-fi-{number:03d}",
                "State": "finished",
                "config.model_params_M": size,
                "config.pretrain_tokens_B": pretrained,
                "config.learning_rate": random.choice([1e-4, 2e-4, 3e-4]),
                "summary/tokens_B": tokens,
                "mix_pct": mix,
                "eval/fi_loss": finnish_after * np.exp(noise[0]),
                "eval/en_loss": english_after * np.exp(noise[1]),
                "eval/fi_loss_initial": finnish,
                "eval/en_loss_initial": english,
            }
        )
    table = pd.DataFrame(rows)
    for row in random.permutation(RUNS)[:CRASHED]:
        table.loc[row, "State"] = "crashed"
        table.loc[row, ["eval/fi_loss", "eval/en_loss"]] += 0.9
    starts = ["eval/fi_loss_initial", "eval/en_loss_initial"]
    for row in random.permutation(RUNS)[: RUNS // 7]:
        table.loc[row, starts] = np.nan
    gone = (table["config.model_params_M"] == 760) & (
        table["config.pretrain_tokens_B"] == 300
    )
    table.loc[gone, starts] = np.nan
    return table


COLUMNS = {
    "config.model_params_M*1e6": "N",
    "summary/tokens_B*1e9": "D",
    "mix_pct/100": "replay",
    "config.pretrain_tokens_B*1e9/N": "ptpp",
    "eval/fi_loss": "target_loss",
    "eval/en_loss": "source_loss",
    "eval/fi_loss_initial": "target_loss_before",
    "eval/en_loss_initial": "source_loss_before",
}
WHERE = "State != 'crashed' and loss_before.notna() and source_loss_before.notna()"


def read_stranger(seed: int = 0) -> pd.DataFrame:
    """The table as a stranger has it read once it is mapped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunTableWarning)
        return bayeslaw.read_runs(stranger(seed), columns=COLUMNS, where=WHERE)
