"""What one program did: its calls, the values that they read and left, and the memory that held them."""
