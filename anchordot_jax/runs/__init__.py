"""Run folders, model folders and checkpoints."""
