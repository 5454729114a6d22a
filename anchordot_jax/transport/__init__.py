"""What the coupling is solved by: blocks of iterations, soft marginals."""
