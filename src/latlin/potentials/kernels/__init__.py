"""Compiled loops over sites, one file per family of integrands."""
