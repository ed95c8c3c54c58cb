"""More data than one machine: Dask collections."""
