"""The stages of a fit, one module each; `alignment.fit_data` runs them in turn."""
