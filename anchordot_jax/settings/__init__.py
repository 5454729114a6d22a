"""The parts of `config.Config`, one module a stage, and the checks they share."""
