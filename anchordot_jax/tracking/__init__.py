"""A fit's figures in TensorBoard and Weights & Biases, beside its metrics.jsonl."""
