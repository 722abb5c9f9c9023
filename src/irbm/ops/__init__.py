"""Tensors in, tensors out: the arithmetic of the machines. Knows no models."""
