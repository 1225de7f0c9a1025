"""A figure that a notebook shows by itself."""

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=80, facecolor="white", pil_kwargs={"optimize": True})
        return file.getvalue()
