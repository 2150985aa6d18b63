"""The programs that run inside the pods. The image contains this package alone; it imports none of the other
packages."""
