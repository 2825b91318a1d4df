"""Syntax tree → checks → C++."""
