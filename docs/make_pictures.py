"""Draw the README's picture: ``python docs/make_pictures.py``."""

import base64
import warnings
from pathlib import Path

import bayeslaw
from bayeslaw import datasets
from bayeslaw._report import _figures


def main() -> None:
    warnings.simplefilter("ignore")
    runs = datasets.load("simulated-ptpp-grid")
    runs = runs[runs["domain"] == "target"]
    fit = bayeslaw.fit(runs[runs["ptpp"] <= 31], "ptpp-gate-floor", seed=0)
    held = runs[runs["ptpp"] == 279]
    title = "simulated grid: forecast at ptpp 279, fitted at 15 and 31"
    picture = _figures.forecast_grid(held, bayeslaw.forecast(fit, held), title=title, caption="")
    path = Path(__file__).with_name("forecast.png")
    path.write_bytes(base64.b64decode(picture.uri.partition(",")[2]))
    print(path)


if __name__ == "__main__":
    main()
