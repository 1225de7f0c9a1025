"""The bytes of any file as a language to model: from the bytes so far, predict the next one."""

from pathlib import Path

import torch

from gossamer.data.examples import DataSet, Examples
from gossamer.errors import UserError, read_whole
from gossamer.shapes import Int, Tensor

CONTEXT = 64
TEST_SHARE = 10  # one byte in ten


def load_text(name: str) -> DataSet:
    """Return the windows of 'text:FILE' or 'text:FILE,context=128'; the last tenth of the file is the test part."""
    file, comma, number = name.partition(":")[2].partition(",context=")
    if not file:
        raise UserError(f"task '{name}' names no file; write text:FILE, as text:book.txt")
    context = read_whole(f"context of task '{name}'", number) if comma else CONTEXT
    if context < 1:
        raise UserError(f"task '{name}' has a context of {context} bytes; use 1 or more, as context={CONTEXT}")
    path = Path(file).expanduser()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read text '{file}' ({error.strerror}); write text:FILE, as text:book.txt") from None
    least = TEST_SHARE * (context + 1)
    if len(content) < least:
        raise UserError(
            f"text '{file}' has {len(content)} bytes, too few for a context of {context}; use {least} bytes or more"
        )
    codes = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(torch.int64)
    end = len(codes) - len(codes) // TEST_SHARE
    return DataSet(windows(codes[:end], context), windows(codes[end:], context), num_classes=256)


def windows(codes: Int[Tensor, " length"], context: int) -> Examples:
    """Cut bytes into windows that do not overlap, each with the bytes that follow its own; a short rest is dropped."""
    count = (len(codes) - 1) // context
    x, y = (codes[first : first + count * context].view(count, context) for first in (0, 1))
    return Examples(x, y)
