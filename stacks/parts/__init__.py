"""What the stacks are made of: the parts of each in the folder of its name, those of several here."""
