"""SUE: spectral universal embedding (Yacobi, Ben-Ari, Talmon, Shaham 2025).

Each modality is embedded alone by the smallest eigenvectors of its neighbour graph; a
few pairs rotate one embedding onto the other (CCA); a small network then moves the
points of one side until both clouds look alike (MMD).
"""
