"""Methods that AnchorDOT is compared with, one file each."""
