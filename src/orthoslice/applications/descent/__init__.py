"""Clouds that are moved downhill: barycenters and flows."""
