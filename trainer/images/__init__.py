"""The recipes of the images, and the test that each of them passes while it is built."""
