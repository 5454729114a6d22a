"""Students trained with other losses on the pairs, some with the pools too."""
