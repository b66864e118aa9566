"""Mathematics that no family owns: special functions, linear algebra, distances; compiled or in NumPy."""
