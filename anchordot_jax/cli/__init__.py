"""The command line, one small file a verb; heavy imports happen inside `run`."""
