"""Launches of Inductor's C++ wrappers: cpp_wrapper and AOTInductor."""
