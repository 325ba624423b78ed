"""Draw pictures on matplotlib Axes. Every function takes an ``ax``, draws on it and
returns it; no global style is set. The colours are those of Okabe and Ito, which
colour-blind readers can tell apart. Observations are always dots, forecasts are lines
with a band. The room imports `_running` and the rooms below it.
"""

from bayeslaw.plots.anchors import picks as picks
from bayeslaw.plots.axes import BLACK as BLACK
from bayeslaw.plots.axes import COLOURS as COLOURS
from bayeslaw.plots.axes import GREY as GREY
from bayeslaw.plots.axes import STAR as STAR
from bayeslaw.plots.budgets import isoflops as isoflops
from bayeslaw.plots.budgets import stopping as stopping
from bayeslaw.plots.choices import best_value as best_value
from bayeslaw.plots.choices import recipe_losses as recipe_losses
from bayeslaw.plots.following import closing_forecast as closing_forecast
from bayeslaw.plots.following import followed_run as followed_run
from bayeslaw.plots.following import probability_over_time as probability_over_time
from bayeslaw.plots.forecasts import coverage as coverage
from bayeslaw.plots.forecasts import forecast_curve as forecast_curve
from bayeslaw.plots.forecasts import learning_curves as learning_curves
from bayeslaw.plots.forecasts import (
    observed_against_forecast as observed_against_forecast,
)
from bayeslaw.plots.forecasts import pit as pit
from bayeslaw.plots.laws import contributions as contributions
from bayeslaw.plots.laws import exponents as exponents
from bayeslaw.plots.laws import learned_priors as learned_priors
from bayeslaw.plots.laws import mean_contributions as mean_contributions
from bayeslaw.plots.laws import prior_and_posterior as prior_and_posterior
from bayeslaw.plots.laws import sensitivity as sensitivity
from bayeslaw.plots.laws import weights as weights
from bayeslaw.plots.misfits import misfit_curve as misfit_curve
from bayeslaw.plots.misfits import width_parts as width_parts
from bayeslaw.plots.mixtures import best_shares as best_shares
from bayeslaw.plots.mixtures import mixture_tradeoff as mixture_tradeoff
from bayeslaw.plots.mixtures import share_probability as share_probability
from bayeslaw.plots.mixtures import ternary as ternary
from bayeslaw.plots.plans import beyond as beyond
from bayeslaw.plots.plans import forgetting_landscape as forgetting_landscape
from bayeslaw.plots.plans import frontier as frontier
from bayeslaw.plots.plans import region as region
from bayeslaw.plots.plans import scenarios as scenarios
from bayeslaw.plots.plans import tradeoff as tradeoff
from bayeslaw.plots.updating import moved_parameters as moved_parameters
from bayeslaw.plots.updating import moved_plan as moved_plan
from bayeslaw.plots.updating import new_rows as new_rows
from bayeslaw.plots.updating import updated as updated
from bayeslaw.plots.updating import what_moved as what_moved
