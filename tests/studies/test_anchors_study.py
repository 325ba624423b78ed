"""The study of lists of runs, and what goes on where it was."""

from concurrent.futures import ThreadPoolExecutor

import anchors_study as studied
import anchors_summary as summary
import numpy as np
import pandas as pd
import pytest
from anchors_plots import design_curves
from matplotlib.figure import Figure
from resumable import study

from bayeslaw._base.errors import LawError, RunTableError

JOBS = [{"law": name, "seed": seed} for seed in range(2) for name in ("a", "b")]


class Task:
    """Two rows a job; interrupted at one job, if asked to."""

    def __init__(self, stop: dict | None = None):
        self.stop, self.done = stop, []

    def __call__(self, law: str, seed: int) -> list[dict]:
        if {"law": law, "seed": seed} == self.stop:
            raise KeyboardInterrupt
        self.done.append((law, seed))
        return [{"list": name, "width": seed + 0.1 * len(name)} for name in ("x", "xx")]


def test_an_interrupted_study_goes_on_where_it_was(tmp_path):
    path, first, second = tmp_path / "rows.csv", Task(stop=JOBS[2]), Task()
    with pytest.raises(KeyboardInterrupt):
        study(first, JOBS, path)
    assert len(pd.read_csv(path)) == 4
    seen = []
    rows = study(
        second, JOBS, path, progress=lambda done, total: seen.append((done, total))
    )
    assert second.done == [("a", 1), ("b", 1)]
    assert seen == [(2, 4), (3, 4), (4, 4)]
    assert rows[["law", "seed"]].drop_duplicates().to_dict("records") == JOBS
    pd.testing.assert_frame_equal(rows, study(Task(stop=JOBS[0]), JOBS, path))


def test_a_study_on_an_executor_has_the_same_rows(tmp_path):
    with ThreadPoolExecutor(2) as executor:
        spread = study(Task(), JOBS, tmp_path / "rows.csv", executor=executor)
    pd.testing.assert_frame_equal(spread, study(Task(), JOBS))


def test_rows_of_another_study_are_refused(tmp_path):
    pd.DataFrame({"law": ["a"]}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(RunTableError, match="lacks column 'seed'"):
        study(Task(), JOBS, tmp_path / "other.csv")


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00\x01", b'law,seed\n"a,1\n', b"a\n1,2\n1,2,3\n"]
)
def test_a_damaged_file_of_rows_is_refused_in_one_line_and_left_as_it_is(
    content, tmp_path
):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(RunTableError, match="cannot be read as the rows") as refused:
        study(Task(), JOBS, path)
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"measured": "twice"}, "measured must be one of once, along, trajectories"),
        ({"menu": "all"}, "menu must be one of"),
        ({"laws": ["state-target"]}, "reads more than N, D, replay and ptpp"),
        ({"seeds": []}, "at least one law, one seed"),
        ({"lists": ["best"]}, "lists are of none, paper, chosen"),
    ],
)
def test_a_study_that_cannot_be_made_is_refused(asked, message):
    with pytest.raises(LawError, match=message):
        studied.anchors_study(**asked)


def test_the_paper_s_twenty_anchors_cost_what_their_tokens_cost():
    """6 N times 117.75 tokens per parameter less the dearest 20; as points of three runs, 20 + 20 + 10."""
    once, along = (studied.paper_runs(m) for m in ("once", "along"))
    assert len(once) == len(along) == 20
    assert studied.price(once) == pytest.approx(6 * 241e6**2 * (3 * 39.25 - 20))
    assert studied.price(along) == pytest.approx(6 * 241e6**2 * (20 + 20 + 10))
    assert studied.price(studied.paper_runs("trajectories")) == studied.price(once)
    runs_on_offer = [
        studied.on_offer("grid", m)["run"].nunique()
        for m in ("once", "along", "trajectories")
    ]
    assert runs_on_offer == [189, 27, 27]


def test_noise_of_a_world_is_as_stated():
    """Checkpoints keep their effects over streams; points of one run err alike as exp(-gap / length)."""
    runs = pd.DataFrame(
        {"N": 1e9, "ptpp": 15.0, "replay": 0.1, "run": np.repeat(np.arange(4000), 2)}
    )
    runs["D"] = np.tile([1e9, np.exp(0.5) * 1e9], 4000)
    world = studied.World("ptpp-floor", 0, 0.0, 0.003)
    miss = [np.log(world.measured(runs, k)["loss"]) - world.truth(runs) for k in (0, 1)]
    effect = miss[0].mean()
    assert effect == pytest.approx(
        miss[1].mean(), abs=4 * studied.NOISE / np.sqrt(4000)
    )
    pairs = miss[0].to_numpy().reshape(-1, 2)
    assert np.corrcoef(pairs.T)[0, 1] == pytest.approx(np.exp(-1), abs=0.05)
    assert pairs.std() == pytest.approx(studied.NOISE, rel=0.05)
    alone = studied.World("ptpp-floor", 0, 0.0, 0.0).measured(runs, 0)
    free = (np.log(alone["loss"]) - world.truth(runs)).to_numpy().reshape(-1, 2)
    assert abs(np.corrcoef(free.T)[0, 1]) < 0.06


def test_worlds_have_parameters_of_their_own():
    worlds = [studied.World("ptpp-gate", seed, 0.15, 0.0) for seed in range(400)]
    moved = [{k: np.log(v[0]) for k, v in w.known(1).values.items()} for w in worlds]
    plausible = studied.World("ptpp-gate", 0, 0.0, 0.0).known(1).values
    for name in ("alpha", "beta"):
        log = np.array([m[name] for m in moved]) - np.log(plausible[name][0])
        assert abs(log.mean()) < 0.03
        assert log.std() == pytest.approx(0.15, rel=0.15)
    assert max(np.exp(m["lam"]) for m in moved) <= 0.95


def test_a_summary_counts_worlds_and_compares_reductions():
    paper = {
        "list": "paper",
        "share": 1.0,
        "rmse": 0.2,
        "width": 0.2,
        "rmse_new": 0.3,
        "width_new": 0.3,
    }
    told = {"sd_before": 1.0, "sd_expected": 0.5, "sd": 0.6}
    ours = paper | {
        "list": "chosen",
        "width": 0.1,
        "sd_before": 1.0,
        "sd_expected": 0.25,
        "sd": 0.3,
    }
    rows = pd.DataFrame(
        [
            {"law": "a", "seed": s, **row}
            for s in range(4)
            for row in (
                paper | told,
                ours | {"rmse": 0.1 if s else 0.4, "rmse_new": 0.1},
            )
        ]
    )
    won = summary.wins(rows).mean()
    assert won["rmse"] == won["both"] == 0.75
    assert won["width"] == 1.0
    fit = summary.calibration(rows)
    assert fit["correlation"] == pytest.approx(1.0)
    assert fit["slope"] == pytest.approx((0.7 - 0.4) / (0.75 - 0.5))


def test_design_curves_show_means_over_worlds():
    """A point for each cost, at the mean in percent; the star is the paper's grid."""
    lists = {
        ("none", 0.0): 0.3,
        ("paper", 1.0): 0.2,
        ("chosen", 0.5): 0.15,
        ("chosen", 1.0): 0.1,
    }
    rows = pd.DataFrame(
        [
            {"list": n, "share": s, "width": w + 0.01 * k, "law": "a"}
            for (n, s), w in lists.items()
            for k in (-1, 1)
        ]
    )
    ax = Figure().subplots()
    assert design_curves(ax, rows, measure="width") is ax
    drawn = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    assert set(drawn) == {"nothing bought", "chosen", "the paper's grid"}
    curve = drawn["chosen"].lines[0].get_xydata()
    assert curve == pytest.approx(np.array([[0.5, 15.0], [1.0, 10.0]]))
    assert drawn["the paper's grid"].get_xydata() == pytest.approx(
        np.array([[1.0, 20.0]])
    )


def test_a_small_study_buys_within_its_budget_and_foretells_what_comes(
    monkeypatch, tmp_path
):
    """One world of Form 1: sds realised are those expected within a fifth, at most half the cost is spent."""
    monkeypatch.setattr(
        studied,
        "LISTS",
        {
            name: studied.RunList((share,), studied.LISTS[name].gain)
            for name, share in (("none", 0.0), ("paper", 1.0), ("chosen", 0.5))
        },
    )
    rows = studied.anchors_study(
        tmp_path / "a.csv",
        laws=["ptpp-floor"],
        seeds=[3],
        lists=list(studied.LISTS),
        measured="along",
        menu="grid",
        plan=True,
    ).set_index("list")
    assert rows.loc["chosen", "cost"] <= 0.5
    assert rows.loc["paper", "cost"] == pytest.approx(1.0)
    told = rows.loc[["paper", "chosen"]]
    assert told["sd"].to_numpy() == pytest.approx(
        told["sd_expected"].to_numpy(), rel=0.2
    )
    assert (told["sd"] < 0.5 * told["sd_before"]).all()
    assert told["sd_before"].to_numpy() == pytest.approx(
        rows.loc["none", "sd"], rel=0.05
    )
    assert told["plan_cost"].to_numpy() == pytest.approx(1.0, abs=0.25)
    assert rows["plan_kept"].between(0.5, 1.0).all()
    text = summary.markdown(rows.reset_index().assign(law="ptpp-floor"))
    assert "| chosen 0.5 | 1 | 0." in text
