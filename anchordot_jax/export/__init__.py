"""Students for programs without JAX, and models on the Hugging Face hub."""
