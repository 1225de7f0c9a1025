"""Parses and checks the text of a model, such as 'densenet:40,k=12,plain'."""

from collections.abc import Collection
from dataclasses import dataclass

from gossamer.errors import UserError, read_number, read_whole, unknown_name

MODELS = {
    "mlp": "fully connected with ReLU, one hidden layer of 32 or the widths given: mlp:64,32",
    "linear": "softmax regression: linear",
    "cnn": "small and without normalisation: 3x3 convolutions, each with ReLU and pooling: cnn:16,32",
    "preresnet": "pre-activation ResNet of this depth; 164 and more have bottlenecks: preresnet:110",
    "densenet": "DenseNet-BC of this depth, k channels a layer (plain: without BC): densenet:100,k=12",
    "transformer": "causal, of bytes, for text: transformer:layers=2,width=64,heads=4,dropout=0.1",
}


@dataclass(frozen=True)
class Spec:
    """A model's name and its options after the colon: numbers, words and name=value pairs."""

    text: str
    kind: str
    numbers: tuple[int, ...]
    words: frozenset[str]
    values: dict[str, str]

    @property
    def example(self) -> str:
        """Return a valid text of this kind."""
        return MODELS[self.kind].rpartition(" ")[2]

    def allow(self, *, most_numbers: int | None = 0, words: Collection[str] = (), values: Collection[str] = ()) -> None:
        """Refuse options that the model lacks and, unless `most_numbers` is None, more numbers than that."""
        for name in sorted({*self.words, *self.values} - {*words, *values}):
            if words or values:
                raise unknown_name(f"option of {self.kind}", name, [*words, *values])
            raise UserError(f"model '{self.text}' has no option '{name}'; write it like {self.example}")
        for name in sorted(self.words - set(words)):
            raise UserError(f"option '{name}' of model '{self.text}' needs a value; write {name}=VALUE")
        for name in sorted(set(self.values) - set(values)):
            raise UserError(f"option '{name}' of model '{self.text}' takes no value; write {name}")
        if most_numbers is not None and len(self.numbers) > most_numbers:
            raise UserError(
                f"model '{self.text}' has {len(self.numbers)} numbers, {most_numbers} at most; "
                f"write it like {self.example}"
            )

    def widths(self, *default: int) -> tuple[int, ...]:
        """Return the numbers as widths of layers."""
        widths = self.numbers or default
        if min(widths) < 1:
            raise UserError(f"model '{self.text}' has a layer of width {min(widths)}; use 1 or more, as {self.example}")
        return widths

    def whole(self, name: str, default: int) -> int:
        """Return a count given as name=value."""
        value = read_whole(f"{name} of model '{self.text}'", self.values[name]) if name in self.values else default
        if value < 1:
            raise UserError(f"model '{self.text}' has {name}={value}; use 1 or more, as {name}={default}")
        return value

    def share(self, name: str, default: float) -> float:
        """Return a probability below 1 given as name=value."""
        value = read_number(f"{name} of model '{self.text}'", self.values[name]) if name in self.values else default
        if not 0 <= value < 1:
            raise UserError(f"model '{self.text}' has {name}={value}; use a number in [0, 1), as {name}=0.1")
        return value

    def depth(self, default: int, period: int, rest: int, what: str) -> int:
        """Return n of a depth period * n + rest, or refuse the depth and name the nearest valid one."""
        depth = self.numbers[0] if self.numbers else default
        n = max(1, round((depth - rest) / period))
        if depth != period * n + rest:
            raise UserError(
                f"model '{self.text}' has depth {depth}, but {what} has {period}n + {rest} layers; "
                f"the nearest is {period * n + rest}"
            )
        return n


def read_spec(text: str) -> Spec:
    """Parse the text of a model."""
    kind, colon, rest = text.partition(":")
    if kind not in MODELS:
        raise unknown_name("model", kind, MODELS)
    if kind == "linear" and colon:
        raise UserError(f"model '{text}' takes no parameter; write linear")
    numbers: list[int] = []
    words: set[str] = set()
    values: dict[str, str] = {}
    for part in rest.split(",") if rest else []:
        name, equals, value = part.partition("=")
        if equals and name in values:
            raise UserError(f"model '{text}' gives {name} more than once; give it once")
        if equals:
            values[name] = value
        elif part.isalpha():
            words.add(part)
        else:
            numbers.append(read_whole(f"a number of model '{text}'", part))
    return Spec(text, kind, tuple(numbers), frozenset(words), values)


def image_shape(spec: Spec, shape: tuple[int, ...], smallest: int = 1) -> tuple[int, int, int]:
    """Return channels, height and width; refuse inputs that are not images or too small for the pooling."""
    if len(shape) != 3:
        raise UserError(
            f"model '{spec.text}' needs images (channels, height, width), got inputs of shape {shape}; "
            "use mlp or linear"
        )
    if min(shape[1:]) < smallest:
        raise UserError(
            f"model '{spec.text}' needs images of {smallest} x {smallest} pixels or more, got "
            f"{shape[1]} x {shape[2]}; use a shallower model or mlp"
        )
    return shape[0], shape[1], shape[2]
