"""From raw images, texts and molecules to embedding files.

A source yields records, an encoder turns their values into rows, a journal keeps the
rows batch by batch, and at the end one HDF5 file a side appears. The encoders' own
libraries (torch, transformers, RDKit, ...) are imported when one of them is used.
"""
