"""The orchestration stack: state machines, functions (those of the triggers too) and their permissions."""
