"""A run as one page: its data, its choices, what it reached, and what it matched."""
