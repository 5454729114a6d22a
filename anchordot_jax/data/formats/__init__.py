"""One module a file format, each offering the same two functions."""
