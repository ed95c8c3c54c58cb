"""Array libraries, kernels, threads and caches: the only package that names them."""
