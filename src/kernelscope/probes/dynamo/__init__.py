"""What Dynamo hands to backends, and gets from them."""
