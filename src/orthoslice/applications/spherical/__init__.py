"""Distances on circles and spheres."""
