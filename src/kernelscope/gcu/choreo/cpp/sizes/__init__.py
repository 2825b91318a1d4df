"""What is known of sizes, and parts of data that have them."""
