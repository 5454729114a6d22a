"""Other plans between the pools, distilled by AnchorDOT's students."""
