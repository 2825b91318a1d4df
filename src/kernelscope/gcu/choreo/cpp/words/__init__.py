"""Sentences about what a program cannot say, and about what the C++ compiler says."""
