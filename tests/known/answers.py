"""What commands print with ``--json``, held against the schemas that the program prints."""

import json
import subprocess
from contextlib import contextmanager
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from bayeslaw._base.schema import any_of
from bayeslaw.cli import app as cli
from bayeslaw.cli import output
from bayeslaw.cli.schema import answers

wrong: list[str] = []  # what answers had that their schemas have not


@cache
def validator(command: str) -> Draft202012Validator:
    return Draft202012Validator(any_of(*answers()[command]))


def trouble_with(command: str, answer: Any) -> str:
    """What the schema of a command's answer says against this one; empty if nothing."""
    error = best_match(validator(command).iter_errors(answer))
    return "" if error is None else f"{command}: {error.json_path}: {error.message}"


def hold(command: str, text: str) -> None:
    """Keep what is wrong with a printed answer, for the end of the test."""
    if command in answers() and (trouble := trouble_with(command, json.loads(text))):
        wrong.append(trouble)


@contextmanager
def watched_answers():
    """Hold each answer against its schema: of commands in this process, and of
    ``python -m bayeslaw.cli`` in processes that `subprocess.run` starts.
    """
    running: list[str] = []
    invoke, print_answer, run = (
        cli.Command.invoke,
        output.print_answer,
        subprocess.run,
    )

    def invoke_by_name(self, ctx):
        running.append(self.name)
        try:
            return invoke(self, ctx)
        finally:
            running.pop()

    def print_held(text: str) -> None:
        print_answer(text)
        if running:
            hold(running[-1], text)

    def run_held(command, *args, **options):
        done = run(command, *args, **options)
        words = [] if isinstance(command, str) else [str(word) for word in command]
        if {"bayeslaw.cli", "--json"} <= {*words} and done.returncode in (0, 4, 5):
            hold(words[words.index("bayeslaw.cli") + 1], done.stdout)
        return done

    cli.Command.invoke, output.print_answer = invoke_by_name, print_held
    subprocess.run = run_held
    try:
        yield
    finally:
        cli.Command.invoke, output.print_answer = invoke, print_answer
        subprocess.run = run
