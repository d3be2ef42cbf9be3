"""NumPy arrays. The public names are those of `ciranda` itself."""
