"""The same anchors, pools and test items for every method, and what came of it."""
