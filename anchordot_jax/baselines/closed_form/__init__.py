"""Methods that are a formula of the pairs: no training, no pools."""
