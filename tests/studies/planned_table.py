"""What came of plans that were trained, as a page shows it: rows of `trained_plans`."""

import numpy as np
import pandas as pd

RESAMPLES = 4000
KEPT = {"source": "kept_forgetting", "target": "kept_target"}


def trained(rows: pd.DataFrame) -> pd.DataFrame:
    """Plans that there were, with whether both promises were kept."""
    plans = rows.dropna(subset=["atpp"])
    both = plans["kept_target"].astype(bool) & plans["kept_forgetting"].astype(bool)
    return plans.assign(kept=both)


def summary(rows: pd.DataFrame) -> list[str]:
    """Promised against kept, with the 90% interval of what is kept, by resampling
    checkpoints: plans of one checkpoint hold or fail together.
    """
    plans = trained(rows)
    lines = [
        "| plans | trained | of checkpoints | promised | kept (90% interval) | target kept | forgetting kept | in the 90% interval: target, forgetting |",
        "|---|---|---|---|---|---|---|---|",
    ]
    parts = [("all", plans)]
    parts += [(f"{language}", part) for language, part in plans.groupby("language")]
    parts += [(f"at {c:.0%}", part) for c, part in plans.groupby("confidence")]
    for name, part in parts:
        low, high = interval(part)
        inside = {
            d: (part[column] >= part[f"{d}_low"]) & (part[column] <= part[f"{d}_high"])
            for d, column in (("target", "target_loss"), ("forgetting", "forgetting"))
        }
        figures = [
            name,
            len(part),
            len(part.groupby(["language", "seed", "ptpp"])),
            f"{part['probability'].mean():.0%}",
            f"{part['kept'].mean():.0%} ({low:.0%} to {high:.0%})",
            f"{part['kept_target'].astype(bool).mean():.0%}",
            f"{part['kept_forgetting'].astype(bool).mean():.0%}",
            ", ".join(f"{inside[d].mean():.0%}" for d in inside),
        ]
        lines.append(f"| {' | '.join(map(str, figures))} |")
    return lines


def interval(plans: pd.DataFrame) -> tuple[float, float]:
    """5% and 95% quantiles of the share kept, checkpoints drawn with replacement."""
    of_checkpoint = plans.groupby(["language", "seed", "ptpp"])["kept"]
    kept, count = of_checkpoint.sum().to_numpy(), of_checkpoint.size().to_numpy()
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(kept), size=(RESAMPLES, len(kept)))
    low, high = np.quantile(
        kept[drawn].sum(axis=1) / count[drawn].sum(axis=1), [0.05, 0.95]
    )
    return float(low), float(high)


def each(rows: pd.DataFrame) -> list[str]:
    """A line for each plan."""
    lines = [
        "| language | seed | ptpp | confidence | plan: tokens per parameter, replay | target loss: limit, trained | forgetting: limit, trained | kept |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for _, r in rows.iterrows():
        start = (
            f"| {r['language']} | {r['seed']} | {r['ptpp']:g} | {r['confidence']:.0%} |"
        )
        target, risen = f"{r['max_target_loss']:.3f}", f"{r['max_forgetting']:.1%}"
        if np.isnan(r["atpp"]):
            lines.append(f"{start} no plan | {target} | {risen} | |")
            continue
        kept = [d for d in KEPT if r[KEPT[d]]]
        lines.append(
            f"{start} {r['atpp']:.1f}, {r['replay']:.0%} | {target}, {r['target_loss']:.3f} "
            f"| {risen}, {r['forgetting']:.1%} | {' and '.join(kept) or 'neither'} |"
        )
    return lines


def markdown(rows: pd.DataFrame) -> str:
    return "\n".join([*summary(rows), "", *each(rows)])
