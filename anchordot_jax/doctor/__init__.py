"""Whether the method works on this machine, and what would make it work better."""
