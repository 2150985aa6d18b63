"""What runs inside the pods: it is shipped alone in the image and imports nothing of the other packages."""
