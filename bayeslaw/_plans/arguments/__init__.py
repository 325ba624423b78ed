"""Read the arguments of `bayeslaw.plan` into a `Question`, with a file for each kind."""
