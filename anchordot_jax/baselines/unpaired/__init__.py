"""Methods that are given no pairs: orthogonal maps between two clouds."""
