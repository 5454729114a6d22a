"""Many devices: a mesh, arrays with their rows spread over it, and sums around it."""
