"""SOTAlign: a linear teacher of the pairs, then students with SAIL and KLOT."""
