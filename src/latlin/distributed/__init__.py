"""Sums over blocks of rows, on this machine or on Dask."""
