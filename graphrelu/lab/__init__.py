"""The laboratory: honest comparisons of activation functions, on top of the library."""
