"""All data sets by name."""

from gossamer.data.cifar import load_cifar
from gossamer.data.digits import load_digits
from gossamer.data.examples import DataSet
from gossamer.data.idx import load_idx
from gossamer.data.synthetic import load_synthetic
from gossamer.data.text import load_text
from gossamer.errors import UserError, unknown_name

SOURCES = {
    "digits": "scikit-learn's 1797 handwritten digits, 8 x 8, 10 classes, no download",
    "cifar10": "60,000 colour photographs, 32 x 32, 10 classes, cropped and flipped in training",
    "cifar100": "60,000 colour photographs, 32 x 32, 100 classes, cropped and flipped in training",
    "mnist": "70,000 handwritten digits, 28 x 28, 10 classes",
    "fashion-mnist": "70,000 pictures of clothes, 28 x 28, 10 classes",
    "synthetic": "made-up Gaussian clouds: synthetic:classes=10,features=40,examples=6000,noise=0.05",
    "text": "the bytes of a file, each predicted from those before it: text:book.txt,context=64",
}


def load_data(name: str, data_dir: str | None = None) -> DataSet:
    """Return the data set of this name, such as 'digits', 'synthetic:classes=3' or 'text:book.txt'."""
    kind, colon, _ = name.partition(":")
    if kind not in SOURCES:
        raise unknown_name("task", name, SOURCES)
    if kind == "text":
        return load_text(name)
    if kind == "synthetic":
        return load_synthetic(name)
    if colon:
        raise UserError(f"task '{name}' takes no parameter; write {kind}")
    if kind == "digits":
        return DataSet(*load_digits(), num_classes=10)
    return load_cifar(kind, data_dir) if kind.startswith("cifar") else load_idx(kind, data_dir)
