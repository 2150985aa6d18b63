"""Commands for runs that go on or have ended, in both places: on this machine and in a deployment."""
