"""Build and run the command line: thin commands over the Python functions of the same
names.

``--json`` prints one JSON object on stdout and nothing else. Exit codes are 0 for
success, 2 for bad input, with a message of one line, 3 if a fit fails its diagnostics,
and 4 or 5 if a review finds something that deserves a look or that fails. Modules that
compute are imported inside the commands, so ``--help`` answers at once.
"""

from __future__ import annotations

import gc
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from bayeslaw._base.errors import BayeslawError, DiagnosticsError, LawError
from bayeslaw._base.terminal import say
from bayeslaw.cli import (
    buying,
    fits,
    forecasts,
    laws,
    plans,
    reporting,
    running,
    schema,
)
from bayeslaw.cli.output import (
    INTERRUPTED,
    Resumable,
    forget_outputs,
    interruption,
    keep_warning,
    own_warnings,
)

app = typer.Typer(
    name="bayeslaw",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        say(f"bayeslaw {version('bayeslaw')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Bayesian scaling laws of continual pre-training: posteriors, calibrated
    forecasts, plans.
    """
    context.with_resource(own_warnings())


COMMANDS = (
    laws.laws,
    laws.simulate,
    laws.table,
    fits.fit,
    fits.compare,
    forecasts.forecast,
    forecasts.check,
    forecasts.review,
    plans.plan,
    plans.mixture,
    forecasts.optimum,
    forecasts.recipes,
    running.follow,
    running.update,
    plans.whatif,
    buying.anchors,
    reporting.report,
    schema.schema,
)


class Command(TyperCommand):
    """A command that refuses an option of one value that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, after a look at how often each option is given."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        for option in self.params:
            takes_one = isinstance(option, TyperOption) and not (
                option.multiple or option.is_flag or option.count
            )
            if takes_one and given.count(option) > 1:
                raise LawError(
                    f"{option.opts[-1]} takes one value, and is given "
                    f"{given.count(option)} times"
                )
        return super().parse_args(ctx, args)


for command in COMMANDS:
    app.command(cls=Command)(command)


def main(commands: typer.Typer | None = None) -> None:
    """Run the command line, by default `app`; bad input is one line on stderr and exit
    2, failed diagnostics exit 3.
    """
    forget_outputs()  # of an earlier command in the same process
    # Tracing programs makes hundreds of thousands of objects, of which hardly any are
    # garbage. By default Python collects after every 700.
    gc.set_threshold(100_000)
    try:
        with warnings.catch_warnings(), own_warnings():
            warnings.showwarning = keep_warning
            # Keep all warnings: Python's own filter against repeats is reset whenever
            # code catches warnings. The end prints each once.
            warnings.simplefilter("always")
            (commands or app)()
    except BayeslawError as error:
        say(f"error: {error}", to_stderr=True)
        raise SystemExit(3 if isinstance(error, DiagnosticsError) else 2) from None
    except OSError as error:  # of a file or a disk
        where = f"{error.filename}: " if error.filename else ""
        say(f"error: {where}{error.strerror or error}", to_stderr=True)
        raise SystemExit(2) from None
    except (KeyboardInterrupt, SystemExit) as stopped:
        # typer turns Ctrl-C into a silent exit; other exits are unchanged
        by_key = isinstance(stopped, KeyboardInterrupt)
        if not by_key and stopped.code != INTERRUPTED:
            raise
        if not isinstance(stopped, Resumable):
            say(interruption(), to_stderr=True)
        raise SystemExit(INTERRUPTED) from None
    finally:
        # no collection when the process ends: Python would search all objects three
        # times, which takes half a second after a preview
        gc.freeze()
