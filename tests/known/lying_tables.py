"""Sound tables, and tables of which every cell can be read that say what is not so."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd

SIZES = (1.2e8, 3.5e8, 7e8, 1.3e9, 2.8e9, 6.9e9)
RATIOS = (1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
NOISE = 0.003
Lie = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]


def pretraining(seed: int = 0) -> pd.DataFrame:
    """Two seeds of six sizes by seven budgets, by the law of Besiroglu 2024."""
    rng = np.random.default_rng([3, seed])
    rows = list(product(SIZES, RATIOS, (1, 2)))
    runs = pd.DataFrame(rows, columns=["N", "ratio", "seed"])
    runs["D"] = runs["N"] * runs.pop("ratio")
    law = 1.82 + 482 / runs["N"] ** 0.348 + 2085 / runs["D"] ** 0.366
    runs["loss"] = _measured(law, rng)
    return runs.sample(frac=1, random_state=seed).reset_index(drop=True)


def adaptation(seed: int = 0) -> pd.DataFrame:
    """Target and source losses of four sizes by three stages, replays and five budgets:
    the target falls with tokens and rises with replay, the source does the contrary.
    """
    rng = np.random.default_rng([5, seed])
    grid = (
        (*SIZES[1::2], 1.4e10),
        (0.25, 1.0, 4.0, 10.0, 20.0),
        (0.1, 0.25, 0.5),
        (15.0, 60.0, 240.0),
    )
    runs = pd.DataFrame(list(product(*grid)), columns=["N", "ratio", "replay", "ptpp"])
    runs["D"] = runs["N"] * runs.pop("ratio")
    before = (
        1.82 + 482 / runs["N"] ** 0.348 + 2085 / (runs["N"] * runs["ptpp"]) ** 0.366
    )
    share = 1 - runs["replay"]
    target = (
        1.3
        + 300 / runs["N"] ** 0.32
        + 22 * runs["ptpp"] ** -0.1 / (runs["D"] * share) ** 0.17
    )
    source = before * (1 + 0.004 * share * (runs["D"] / 1e8) ** 0.35)
    named = {"source_loss_before": before, "loss_before": 1.3 * before}
    parts = [
        runs.assign(**named, domain=domain, loss=_measured(law, rng))
        for domain, law in (("target", target), ("source", source))
    ]
    both = pd.concat(parts).sample(frac=1, random_state=seed)
    return both.reset_index(drop=True)


def _measured(law, rng):
    return (law * np.exp(NOISE * rng.standard_normal(len(law)))).round(5)


# -- lies ------------------------------------------------------------------------------


def _scaled(column: str, factor: float) -> Lie:
    return lambda t, rng: t.assign(**{column: t[column] * factor})


def _some(t: pd.DataFrame, rng, share: float = 0.5) -> np.ndarray:
    return rng.permutation(len(t)) < share * len(t)


def _half(column: str, change: Callable) -> Lie:
    """Half of the rows, here and there, in another unit."""

    def lie(t, rng):
        return t.assign(**{column: t[column].where(~_some(t, rng), change(t[column]))})

    return lie


def _one(column: str, factor: float) -> Lie:
    def lie(t, rng):
        row = int(rng.integers(len(t)))
        return t.assign(**{column: t[column].where(t.index != row, factor * t[column])})

    return lie


def _of_loss(change: Callable) -> Lie:
    return lambda t, rng: t.assign(loss=change(t["loss"]))


def ten_percent_noise(t, rng):
    return t.assign(loss=t["loss"] * np.exp(0.1 * rng.standard_normal(len(t))))


def shuffled(t, rng):
    return t.assign(loss=rng.permutation(t["loss"]))


def losses_sorted(t, rng):
    return t.assign(loss=np.sort(t["loss"]))


def tokens_reversed(t, rng):
    """The largest budget of each size is called the smallest."""
    middle = t.groupby("N")["D"].transform(lambda D: D.min() * D.max())
    return t.assign(D=middle / t["D"])


def _sizes_exchanged(first: int, second: int) -> Lie:
    def lie(t, rng):
        sizes = np.sort(t["N"].unique())
        a, b = sizes[first], sizes[second]
        return t.assign(N=t["N"].replace({a: b, b: a}))

    return lie


def rise_at_the_end(t, rng):
    """The largest size was trained badly: 15% above what it should be at long runs."""
    bad = (t["N"] == t["N"].max()) & (t["D"] / t["N"] >= 10)
    return t.assign(loss=t["loss"].where(~bad, 1.15 * t["loss"]))


def drift_in_time(t, rng):
    """Later rows lie up to 4% higher: something changed meanwhile."""
    return t.assign(loss=t["loss"] * np.linspace(1, 1.04, len(t)))


def a_change_half_way(t, rng):
    later = np.arange(len(t)) >= len(t) / 2
    return t.assign(loss=t["loss"] * np.where(later, 1.06, 1.0))


def labels_exchanged_half_way(t, rng):
    later = np.arange(len(t)) >= len(t) / 2
    other = t["domain"].map({"target": "source", "source": "target"})
    return t.assign(domain=t["domain"].where(~later, other))


def labels_exchanged(t, rng):
    return t.assign(domain=t["domain"].map({"target": "source", "source": "target"}))


def another_tokenizer(t, rng):
    """Of a third of the rows, 18% more nats a token."""
    return t.assign(loss=t["loss"].where(~_some(t, rng, 1 / 3), 1.18 * t["loss"]))


def exported_twice(t, rng):
    return pd.concat([t, t.head(10)], ignore_index=True)


def copied_down(t, rng):
    """A quarter of the losses are those of the row before."""
    return t.assign(
        loss=t["loss"].where(~_some(t, rng, 1 / 4), t["loss"].shift(1).bfill())
    )


def _planned_tokens(least: float, most: float) -> Lie:
    """D is what was planned: a third of the runs ended after a fraction of it."""

    def lie(t, rng):
        ended = _some(t, rng, 1 / 3)
        seen = t["D"] * np.where(ended, rng.uniform(least, most, len(t)), 1.0)
        law = 1.82 + 482 / t["N"] ** 0.348 + 2085 / seen**0.366
        return t.assign(loss=_measured(law, rng))

    return lie


def overflowed(t, rng):
    wrapped = t["D"].astype("int64").astype("uint32")
    return t.assign(D=wrapped.astype(float) + 1)


def exchanged(first: str, second: str) -> Lie:
    return lambda t, rng: t.rename(columns={first: second, second: first})


BITS = 1 / np.log(2)
BOTH: dict[str, Lie] = {
    "constant loss": lambda t, rng: t.assign(loss=2.5),
    "10% noise": ten_percent_noise,
    "shuffled losses": shuffled,
    "losses sorted by themselves": losses_sorted,
    "losses rise with D": tokens_reversed,
    "two neighbouring sizes exchanged": _sizes_exchanged(1, 2),
    "smallest and largest size exchanged": _sizes_exchanged(0, -1),
    "largest size trained badly": rise_at_the_end,
    "drift in time": drift_in_time,
    "a change half way": a_change_half_way,
    "another tokenizer here and there": another_tokenizer,
    "exported twice": exported_twice,
    "losses copied down": copied_down,
    "D overflowed": overflowed,
    "D in steps": _scaled("D", 1 / 4e6),
    "D in examples": _scaled("D", 1 / 2048),
    "D in thousands": _scaled("D", 1e-3),
    "D in millions": _scaled("D", 1e-6),
    "D in billions": _scaled("D", 1e-9),
    "N in thousands": _scaled("N", 1e-3),
    "N in millions": _scaled("N", 1e-6),
    "N in GiB": _scaled("N", 2 / 2**30),
    "N and D exchanged": exchanged("N", "D"),
    "perplexity": _of_loss(np.exp),
    "logarithm of the loss": _of_loss(np.log),
    "accuracy": _of_loss(lambda loss: 1 - loss / 8),
    "loss times 100": _of_loss(lambda loss: 100 * loss),
    "loss to one decimal": _of_loss(lambda loss: loss.round(1)),
    "half of the losses in bits": _half("loss", lambda loss: BITS * loss),
    "half of the losses are perplexities": _half("loss", np.exp),
    "half of D in thousands": _half("D", lambda D: D / 1e3),
    "half of N in thousands": _half("N", lambda N: N / 1e3),
    "one loss times ten": _one("loss", 10.0),
    "one loss 20% off": _one("loss", 1.2),
    "one D times a hundred": _one("D", 100.0),
    "one N times a hundred": _one("N", 100.0),
    "one N times a thousand": _one("N", 1000.0),
    "one D 1e300": _one("D", 1e300),
    "truth values for losses": _of_loss(lambda loss: loss > loss.median()),
}
ADAPTATION: dict[str, Lie] = {
    "labels of the domains exchanged": labels_exchanged,
    "labels of the domains exchanged half way": labels_exchanged_half_way,
    "replay as a flag": lambda t, rng: t.assign(
        replay=(t["replay"] > 0.2).astype(float)
    ),
    "1 - replay": lambda t, rng: t.assign(replay=1 - t["replay"]),
    "ptpp in tokens": lambda t, rng: t.assign(ptpp=t["ptpp"] * t["N"]),
    "ptpp and loss exchanged": exchanged("ptpp", "loss"),
    "half of ptpp in tokens": lambda t, rng: t.assign(
        ptpp=t["ptpp"].where(~_some(t, rng), t["ptpp"] * t["N"])
    ),
}
PRETRAINING: dict[str, Lie] = {
    "planned tokens, a tenth seen": _planned_tokens(0.1, 0.1),
    "planned tokens, a twentieth seen": _planned_tokens(0.05, 0.05),
    "planned tokens, here and there another part seen": _planned_tokens(0.06, 0.16),
}
# No other column tells of these: a factor of all losses is another corpus's, too.
UNTOLD: dict[str, Lie] = {
    "bits": _of_loss(lambda loss: BITS * loss),
    "D doubled": _scaled("D", 2.0),
}


def lies() -> dict[str, tuple[Callable[[int], pd.DataFrame], Lie]]:
    """By name, the sound table and what is done to it."""
    every: dict[str, tuple[Callable[[int], pd.DataFrame], Lie]] = {}
    for name, lie in {**BOTH, **PRETRAINING}.items():
        every[f"{name} (pre-training)"] = pretraining, lie
    for name, lie in {**BOTH, **ADAPTATION}.items():
        every[f"{name} (adaptation)"] = adaptation, lie
    return every


def lying(name: str, seed: int = 0) -> pd.DataFrame:
    sound, lie = lies()[name]
    return lie(sound(seed), np.random.default_rng([11, seed]))
