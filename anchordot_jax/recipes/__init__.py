"""Beyond the paper: students that a soft-matched CCA in closed form starts."""
