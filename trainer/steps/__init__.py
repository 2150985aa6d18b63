"""Steps of a gang's plan: what the supervisor does on a node before, beside and after the program."""
