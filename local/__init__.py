"""The twin: both clouds on one machine. What is above them (state machines, Lambdas, trainer) does not know."""
