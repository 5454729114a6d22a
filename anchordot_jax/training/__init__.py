"""What the distillation is made of: chunks, losses, steps, and pools elsewhere."""
