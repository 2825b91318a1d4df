"""Loops: in which order and on which threads they run, and which become vector code or calls with blocks."""
