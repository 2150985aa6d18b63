"""Rules about the text of the repository, run by `make check`: one test for each rule, over all files.

They hold no behaviour of the product, so `make test` leaves them out. A rule that is broken lists every place.
"""
