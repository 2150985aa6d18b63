"""The parts of the orchestration stack; its functions are those of the triggers too."""
