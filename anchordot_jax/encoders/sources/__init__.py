"""Readers of raw inputs: folders, tar shards, caption files and tables."""
