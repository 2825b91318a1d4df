"""How far right numbers may be apart: roundings, the digits of libraries, and the order of equal numbers."""
