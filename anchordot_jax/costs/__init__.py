"""Other couplings of two pools: what AnchorDOT's profile cost is compared with."""
