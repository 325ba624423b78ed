"""From the arguments of `bayeslaw.plan` to a `Question`, a file for each kind."""
