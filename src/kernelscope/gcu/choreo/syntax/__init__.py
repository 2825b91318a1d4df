"""Choreo text ↔ syntax tree."""
