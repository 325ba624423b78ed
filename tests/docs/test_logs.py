"""The code for logs and results that are no table gives a table that the reader takes."""

import json
import re
from pathlib import Path

import bayeslaw

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "trackers.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run_block(having: str) -> None:
    (code,) = (text for text in BLOCKS if having in text)
    exec(compile(code, str(PAGE), "exec"), {})


def test_a_log_of_modded_nanogpt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    lines = [
        f"step:{step}/1390 val_loss:{loss:.4f} train_time:1ms step_avg:2.00ms"
        for step, loss in ((0, 10.8258), (250, 4.0146), (1390, 3.2784))
    ]
    between = "step:251/1390 train_time:3ms step_avg:2.00ms"
    Path("logs/a.txt").write_text(
        "\n".join(["import os", lines[0], between, *lines[1:]])
    )
    run_block("val_loss:")
    columns = ["N=124M", "D=step*524288"]
    runs = bayeslaw.read_runs("runs.csv", columns=columns, where="step > 0")
    assert runs["loss"].tolist() == [4.0146, 3.2784]
    assert runs["D"].tolist() == [250 * 524288, 1390 * 524288]
    assert runs["run"].tolist() == ["a", "a"]


def test_results_of_lm_eval(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, size, bits in (("70m", 70_426_624, 1.2), ("160m", 162_322_944, 1.05)):
        folder = Path("results") / f"EleutherAI__pythia-{name}"
        folder.mkdir(parents=True)
        found = {
            "results": {"wikitext": {"alias": "wikitext", "bits_per_byte,none": bits}},
            "config": {"model": "hf", "model_num_parameters": size},
            "model_name": f"EleutherAI/pythia-{name}",
        }
        path = folder / "results_2026-11-01T10-00-00.000000.json"
        path.write_text(json.dumps(found))
    run_block("bits_per_byte")
    columns = ["loss=bpb*0.693147*4.8"]
    runs = bayeslaw.read_runs("evaluated.csv", columns=columns).sort_values("N")
    assert runs["run"].tolist() == ["pythia-70m", "pythia-160m"]
    assert runs["loss"].round(4).tolist() == [3.9925, 3.4935]
