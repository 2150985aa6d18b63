"""init writes a pattern only for lines that the general reader does not read."""

from __future__ import annotations

import pytest

from trainflow.client.programs.program import read_program

READ = [
    'print("Epoch[{}]({}/{}): Loss: {:.4f}".format(epoch, number, len(loader), loss.item()))',
    'print(f"[RANK {rank}] Epoch {epoch} | Batchsize: {size} | Steps: {len(data)} | Loss: {average}")',
    'print(f"Epoch {epoch}/{num_epochs} loss: {loss:.4f}")',
    'print("Train Epoch: {} [{}/{} ({:.0f}%)]\\tLoss: {:.6f}".format(e, n * size, len(data), 1.0 * n / all, loss))',
    'logger.info("Epoch [%d][%d/%d] loss %.4f", epoch, i, len(loader), loss)',
    'print(f"step {step}/{len(loader)} loss {loss}")',
    'message = f"Step {step}/{total}, Loss: {loss:.4f}"\nmessage += more(speed)\nprint(message)',
]


@pytest.mark.parametrize("line", READ)
def test_a_line_that_is_read_without_a_pattern_gets_none(line: str) -> None:
    found = read_program(line).progress
    assert (found.pattern, found.line > 0) == (None, True)


def test_a_constant_is_no_step() -> None:
    """The number of batches stands behind the word for steps, and the epoch is what rises."""
    pattern = read_program(
        'print("Epoch %d of %d, steps %d, loss %f" % (e, args.epochs, len(x), loss))'
    ).progress.pattern
    assert pattern is None or pattern.startswith(r"Epoch\s+(?P<step>\d+)\s+of\s+")
