"""What a finished run is good for: its data again, pool matches, gallery indices."""
