"""The pages of docs/ that are made from the code. A test checks that each is current."""
