"""One module a library of encoders; nothing is imported before it is used."""
