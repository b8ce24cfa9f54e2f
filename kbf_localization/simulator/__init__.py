"""A simulated office that is driven through, photographed, and written in COLD's layout."""
