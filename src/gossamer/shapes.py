"""Shape annotations: `Float[Tensor, "n d"]` is checked in every test, and costs nothing outside of tests.

jaxtyping is a development dependency. Without it the annotations mean plain `Tensor`.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    try:
        from jaxtyping import Bool, Float, Int, Shaped
    except ImportError:

        class _AnyShape:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = Shaped = _AnyShape

__all__ = ["Bool", "Float", "Int", "Shaped", "Tensor"]
