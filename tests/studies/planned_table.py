"""Tabulate the results of trained plans for the page, from the rows of `trained_plans`."""

import numpy as np
import pandas as pd
from scipy import stats

CHECKPOINT = ["language", "size", "seed", "ptpp"]
KEPT = {"source": "kept_forgetting", "target": "kept_target"}


def trained(rows: pd.DataFrame) -> pd.DataFrame:
    """Plans that there were, with whether both promises were kept."""
    plans = rows.dropna(subset=["atpp"])
    both = plans["kept_target"].astype(bool) & plans["kept_forgetting"].astype(bool)
    return plans.assign(kept=both)


def summary(rows: pd.DataFrame) -> list[str]:
    """Promised against kept, with the 90% interval of what is kept."""
    plans = trained(rows)
    lines = [
        "| unseen | plans | trained | of checkpoints | promised | kept (90% interval) | target kept | forgetting kept | in the 90% interval: target, forgetting |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    parts = []
    for unseen, whole in plans.groupby("unseen", sort=False):
        parts.append((unseen, "all", whole))
        parts += [(unseen, f"{code}", part) for code, part in whole.groupby("language")]
        parts += [
            (unseen, f"at {c:.0%}", part) for c, part in whole.groupby("confidence")
        ]
    for unseen, name, part in parts:
        low, high = interval(part)
        inside = {
            d: (part[column] >= part[f"{d}_low"]) & (part[column] <= part[f"{d}_high"])
            for d, column in (("target", "target_loss"), ("forgetting", "forgetting"))
        }
        figures = [
            unseen,
            name,
            len(part),
            len(part.groupby(CHECKPOINT)),
            f"{part['probability'].mean():.0%}",
            f"{part['kept'].mean():.0%} ({low:.0%} to {high:.0%})",
            f"{part['kept_target'].astype(bool).mean():.0%}",
            f"{part['kept_forgetting'].astype(bool).mean():.0%}",
            ", ".join(f"{inside[d].mean():.0%}" for d in inside),
        ]
        lines.append(f"| {' | '.join(map(str, figures))} |")
    return lines


def interval(plans: pd.DataFrame) -> tuple[float, float]:
    """Jeffreys' 90% interval of the share kept, as if each checkpoint were one trial:
    plans of one hold or fail together. Where all hold it ends at 1, where none, at 0
    (Brown, Cai and DasGupta 2001).
    """
    of_checkpoint = plans.groupby(CHECKPOINT)["kept"].mean()
    kept, trials = of_checkpoint.sum(), len(of_checkpoint)
    share = stats.beta(kept + 0.5, trials - kept + 0.5)
    low = share.ppf(0.05) if kept > 0 else 0.0
    high = share.ppf(0.95) if kept < trials else 1.0
    return float(low), float(high)


def each(rows: pd.DataFrame) -> list[str]:
    """A line for each plan."""
    lines = [
        "| unseen | language | size | seed | ptpp | confidence | plan: tokens per parameter, replay | target loss: limit, trained | forgetting: limit, trained | kept |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for _, r in rows.iterrows():
        start = (
            f"| {r['unseen']} | {r['language']} | {r['size']} | {r['seed']} | {r['ptpp']:g} "
            f"| {r['confidence']:.0%} |"
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
