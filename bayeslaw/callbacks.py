"""A run followed by its trainer: a callback for Hugging Face's `Trainer`.

A loop of one's own needs nothing of this: ``follower = follower.after(tokens, loss)``
after each evaluation, then ``print(follower.following().sentence())``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import POSITIVE, checked
from bayeslaw._base.numbers import format_count
from bayeslaw._running.following.course import UNITS

try:
    from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'{error}; following a Trainer needs the extra: pip install "bayeslaw[hf]"'
    ) from None

if TYPE_CHECKING:
    from bayeslaw._running.following.follow import Follower
    from bayeslaw._running.following.followed import Following

CLOSE = 0.01  # allowed difference of the Trainer's end from the planned end, as a share
# values of `include_num_input_tokens_seen` with which the Trainer counts no tokens
UNCOUNTED = (False, None, "no")

log = logging.getLogger(__name__)


class FollowCallback(TrainerCallback):
    """Callback that adds each evaluation's loss to a follower, and logs the forecast.

    Use it as ``FollowCallback(follower, tokens_per_step=2**19).attach(trainer)``. Each
    evaluation after the warm-up is a point. After each point it logs
    ``follow/final_median``, ``follow/final_low``, ``follow/final_high``,
    ``follow/probability`` (if there are limits), ``follow/surprise`` and the text
    ``follow/decision``; with several domains also ``follow/target/final_median``, and
    so on. A resumed run takes its earlier points from the checkpoint's log.

    All processes follow the same losses from the same follower, so all stop together.

    Parameters
    ----------
    follower
        The run before its first point. The attribute ``follower`` is the run so far.
    tokens_per_step
        Tokens of one optimizer step, over all devices and accumulated batches. None:
        the Trainer's count (``include_num_input_tokens_seen``). A follower that counts
        steps does not need it.
    losses
        Domain -> name of the metric that is its loss, nats per token. By default
        ``eval_<domain>_loss``, as the Trainer names it for a dictionary of evaluation
        sets; with one domain ``eval_loss``, too.
    stop
        End the training once the decision is to stop.

    Raises
    ------
    PlanError
        A loss is named for a domain that is not followed, or ``tokens_per_step`` is not
        positive. When training begins: nobody counts tokens.
    """

    def __init__(
        self,
        follower: Follower,
        *,
        tokens_per_step: float | None = None,
        losses: Mapping[str, str] | None = None,
        stop: bool = False,
    ):
        if tokens_per_step is not None:
            tokens_per_step = checked("tokens_per_step", tokens_per_step, POSITIVE)
        self.follower = follower
        self.tokens_per_step = tokens_per_step
        self.stop = stop
        self._before = follower
        self._domain_of = _domain_of(list(follower.tracks), losses or {})
        self._trainer: Any = None
        self._step: int | None = None  # step of the last evaluation
        self._losses: dict[str, float] = {}  # losses at that step, by domain

    def attach(self, trainer: Any) -> FollowCallback:
        """Add the callback to a trainer, and log to the trainer's loggers.

        A callback that is only given as ``callbacks=[...]`` cannot reach the loggers.
        Then ``state.log_history`` has the numbers, but TensorBoard and others do not.
        """
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        self._trainer = trainer
        return self

    # -- the Trainer's events ----------------------------------------------------------

    def on_train_begin(self, args, state, control, **kwargs):
        """Start before the first point, and add the points of a resumed checkpoint."""
        self._check_count(args)
        self._warn_of_end(state)
        if self._trainer is None:
            log.warning(
                "follow/... goes to state.log_history alone; to tell the loggers, too: "
                "FollowCallback(...).attach(trainer) in place of callbacks=[...]"
            )
        self.follower = self._before
        self._step = None
        warmup = args.get_warmup_steps(state.max_steps)
        for row in state.log_history:
            tokens = row.get("num_input_tokens_seen", 0)
            self._add(row, int(row["step"]), tokens, warmup)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Add the point, log the forecast, and stop the training if it should stop."""
        warmup = args.get_warmup_steps(state.max_steps)
        tokens = state.num_input_tokens_seen
        if not self._add(metrics or {}, state.global_step, tokens, warmup):
            return control
        following = self.follower.following()
        self._log(state, dict(_values(following)))
        if self.stop and following.decision.action == "stop":
            control.should_training_stop = True
        return control

    def on_step_begin(self, args, state, control, **kwargs):
        """Warn of losses that the evaluations of the last step lacked."""
        self._warn_of_lacking()

    def on_train_end(self, args, state, control, **kwargs):
        """Warn of losses that the evaluations of the final step lacked."""
        self._warn_of_lacking()

    # -- its own -----------------------------------------------------------------------

    def _add(
        self, metrics: Mapping[str, Any], step: int, tokens: float, warmup: int
    ) -> bool:
        """Collect the losses among the metrics of a step. Once every domain has a loss,
        add the point. Returns whether a point was added.
        """
        evaluated = any(str(key).startswith("eval_") for key in metrics)
        if not evaluated or step < max(1, warmup):
            return False
        if step != self._step:
            self._step, self._losses = step, {}
        elif not self._lacking:  # the step was evaluated before
            return False
        for key, domain in self._domain_of.items():
            loss = metrics.get(key, math.nan)
            if math.isfinite(loss) and loss > 0:
                self._losses[domain] = float(loss)
        at = self._place(step, tokens)
        if self._lacking or at is None:
            return False
        self.follower = self.follower.after(at, self._losses)
        return True

    @property
    def _lacking(self) -> list[str]:
        """Domains without a loss at the step of the last evaluation."""
        return [name for name in self.follower.tracks if name not in self._losses]

    def _place(self, step: int, tokens: float) -> float | None:
        """Compute the tokens (or steps) of a step; None beyond the planned end."""
        at = self._count(step, tokens)
        until = self.follower.question.until
        # the last step may go a little beyond the planned end
        return min(at, until) if at <= (1 + CLOSE) * until else None

    def _count(self, step: int, tokens: float) -> float:
        if self.follower.unit == "step":
            return float(step)
        per_step = self.tokens_per_step
        return float(tokens if per_step is None else step * per_step)

    def _check_count(self, args: Any) -> None:
        """Refuse to follow if nothing counts tokens."""
        if self.follower.unit == "step" or self.tokens_per_step is not None:
            return
        if args.include_num_input_tokens_seen in UNCOUNTED:
            raise PlanError(
                "nobody counts the run's tokens: FollowCallback(..., "
                "tokens_per_step=...), or TrainingArguments(..., "
                "include_num_input_tokens_seen=True)"
            )

    def _warn_of_end(self, state: Any) -> None:
        """Warn if the Trainer will end elsewhere than the followed run."""
        if self.follower.unit == "D" and self.tokens_per_step is None:
            return  # tokens of the end are not known in advance
        end, until = self._count(state.max_steps, 0), self.follower.question.until
        if abs(end / until - 1) > CLOSE:
            unit = UNITS[self.follower.unit]
            log.warning(
                "the Trainer ends at %s %s, the run that is followed at %s: are "
                "tokens_per_step (all devices, all accumulated batches) and until right?",
                format_count(end),
                unit,
                format_count(until),
            )

    def _warn_of_lacking(self) -> None:
        """Warn if an evaluation has no finite loss of a followed domain."""
        if self._step is not None and self._lacking:
            log.warning(
                "step %d is not followed: no finite loss of %s among its metrics; looked "
                "for %s",
                self._step,
                ", ".join(self._lacking),
                ", ".join(self._domain_of),
            )
            self._step = None

    def _log(self, state: Any, values: dict[str, float | str]) -> None:
        """Log values to all loggers. They are not added to the metrics, because a
        hyperparameter search sums the metrics.
        """
        if self._trainer is None:
            state.log_history.append({**values, "step": state.global_step})
        else:
            self._trainer.log(values)


def _domain_of(domains: list[str], losses: Mapping[str, str]) -> dict[str, str]:
    """Map each metric that is a loss to its domain."""
    unknown = [name for name in losses if name not in domains]
    if unknown:
        raise PlanError(f"a loss of {unknown[0]!r}; followed: {', '.join(domains)}")
    by_metric = {losses.get(name, f"eval_{name}_loss"): name for name in domains}
    if len(by_metric) < len(domains):
        raise PlanError("losses: one metric is said to be that of two domains")
    if len(domains) == 1 and not losses:
        by_metric["eval_loss"] = domains[0]
    return by_metric


def _values(following: Following) -> Iterator[tuple[str, float | str]]:
    """Yield what to log, by name: for each of several domains, and together."""
    for name, followed in following.domains.items():
        several = len(following.domains) > 1
        prefix = f"follow/{name}" if several else "follow"
        for key in ("median", "low", "high"):
            yield f"{prefix}/final_{key}", float(followed.final[key])
        if several:
            yield from _chances(prefix, followed.probability, followed.surprise)
    yield from _chances("follow", following.probability, following.surprise)
    decision = following.decision
    yield "follow/decision", f"{decision.action}: {decision.reason}"


def _chances(
    prefix: str, probability: float, surprise: float
) -> Iterator[tuple[str, float]]:
    """Yield probability (if there is a limit) and surprise by logged names."""
    if not math.isnan(probability):  # without a limit there is none
        yield f"{prefix}/probability", float(probability)
    yield f"{prefix}/surprise", float(surprise)
