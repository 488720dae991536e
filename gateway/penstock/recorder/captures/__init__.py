"""Read capture files, decode them into messages, count them, and write them in other forms."""
