"""The compiled loop: sums of terms, in blocks of columns, agent by agent, so that memory is read once.

A task computes one block of one destination:

    SUM       to = sum of c a  +  sum of c a b            QUOTIENT  to = a / b
    NUMBER    a number += sum over the columns of that     ROOT      to = sqrt(a)
    NARROW    to, in float32, = a, in float64
    INNER     a number += c sum over the columns of a b

The columns are taken in panels, in a panel all agents, of an agent block by block. Narrow panels keep the rows that
many agents read in the cache; where every agent reads rows of its own, one wide panel reads them from end to end.

An operand is an address and a step: the bytes from one column to the next, or 0 for a scratch block, which is as wide
as a block of columns and stays in the cache. A late neighbour's row is an operand like any other, whatever its age.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

SUM, NUMBER, QUOTIENT, ROOT, NARROW, INNER = range(6)
# The columns of a task: its kind, its destination, and where its terms, narrow terms and products begin and end.
KIND, TO, STEP, TERMS, TERMS_END, NARROWS, NARROWS_END, PRODUCTS, PRODUCTS_END = range(9)
TASK_WIDTH = 9

_TABLE, _LIST, _FLOATS, _INT = types.int64[:, ::1], types.int64[::1], types.float64[::1], types.int64
_SIGNATURE = types.void(
    _TABLE, _LIST, _TABLE, _FLOATS, _TABLE, _FLOATS, _TABLE, _FLOATS, _FLOATS, _INT, _INT, _INT, _INT, _INT
)


@intrinsic
def _pointer(typing: Any, address: Any, like: Any) -> Any:
    """Read an address as a pointer to numbers of the type of `like`."""
    kind = types.CPointer(like)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(types.int64, like), code


@numba.njit(inline="always")
def _at(operands, place, column, left, shift):
    step = operands[place, column + 1]
    return operands[place, column] + (left * step if step else shift)


@numba.njit(fastmath={"reassoc", "contract", "nsz"})
def _total(values, width):
    total = values[0]
    for k in range(1, width):
        total += values[k]
    return total


@numba.njit(fastmath={"reassoc", "contract", "nsz"})
def _inner(a, b, width):
    total = a[0] * b[0]
    for k in range(1, width):
        total += a[k] * b[k]
    return total


def _adder(number: Any, zero: Any) -> Any:
    """Return the function that adds terms c a, four in one sweep; `zero` has the type of the operands."""

    @numba.njit(inline="always")
    def add_terms(out, terms, factors, first, last, left, shift, width, fresh):
        place = first
        while place + 4 <= last:
            p = _pointer(_at(terms, place, 0, left, shift), zero)
            q = _pointer(_at(terms, place + 1, 0, left, shift), zero)
            r = _pointer(_at(terms, place + 2, 0, left, shift), zero)
            s = _pointer(_at(terms, place + 3, 0, left, shift), zero)
            a, b = number(factors[place]), number(factors[place + 1])
            c, d = number(factors[place + 2]), number(factors[place + 3])
            if fresh:
                for k in range(width):
                    out[k] = a * p[k] + b * q[k] + c * r[k] + d * s[k]
            else:
                for k in range(width):
                    out[k] += a * p[k] + b * q[k] + c * r[k] + d * s[k]
            fresh = False
            place += 4
        if place + 2 <= last:
            p = _pointer(_at(terms, place, 0, left, shift), zero)
            q = _pointer(_at(terms, place + 1, 0, left, shift), zero)
            a, b = number(factors[place]), number(factors[place + 1])
            if fresh:
                for k in range(width):
                    out[k] = a * p[k] + b * q[k]
            else:
                for k in range(width):
                    out[k] += a * p[k] + b * q[k]
            fresh = False
            place += 2
        if place < last:
            p = _pointer(_at(terms, place, 0, left, shift), zero)
            a = number(factors[place])
            if fresh:
                for k in range(width):
                    out[k] = a * p[k]
            else:
                for k in range(width):
                    out[k] += a * p[k]
            fresh = False
        return fresh

    return add_terms


def _product_adder(number: Any, zero: Any) -> Any:
    """Return the function that adds products c a b, two in one sweep."""

    @numba.njit(inline="always")
    def add_products(out, products, factors, first, last, left, shift, width, fresh):
        place = first
        while place + 2 <= last:
            p = _pointer(_at(products, place, 0, left, shift), zero)
            q = _pointer(_at(products, place, 2, left, shift), zero)
            r = _pointer(_at(products, place + 1, 0, left, shift), zero)
            s = _pointer(_at(products, place + 1, 2, left, shift), zero)
            a, b = number(factors[place]), number(factors[place + 1])
            if fresh:
                for k in range(width):
                    out[k] = a * p[k] * q[k] + b * r[k] * s[k]
            else:
                for k in range(width):
                    out[k] += a * p[k] * q[k] + b * r[k] * s[k]
            fresh = False
            place += 2
        if place < last:
            p = _pointer(_at(products, place, 0, left, shift), zero)
            q = _pointer(_at(products, place, 2, left, shift), zero)
            a = number(factors[place])
            if fresh:
                for k in range(width):
                    out[k] = a * p[k] * q[k]
            else:
                for k in range(width):
                    out[k] += a * p[k] * q[k]
            fresh = False
        return fresh

    return add_products


@cache
def compiled(single: bool) -> Callable[..., None]:
    """Return the loop for float32, or for float64 with some operands in float32."""
    number = types.float32 if single else types.float64
    zero, narrow = np.float32(0) if single else np.float64(0), np.float32(0)
    add_terms, add_products = _adder(number, zero), _product_adder(number, zero)
    add_narrow = _adder(number, narrow)

    @numba.njit(inline="always")
    def do_task(
        tasks,
        task,
        terms,
        term_factors,
        narrows,
        narrow_factors,
        products,
        product_factors,
        numbers,
        left,
        width,
        shift,
        place,
    ):
        kind = tasks[task, 0]
        if kind == 5:
            first = tasks[task, 7]
            a = _pointer(_at(products, first, 0, left, shift), zero)
            b = _pointer(_at(products, first, 2, left, shift), zero)
            numbers[tasks[task, 1]] += product_factors[first] * _inner(a, b, width)
            return
        out = _pointer(place if kind == 1 else _at(tasks, task, 1, left, shift), zero)
        first, last = tasks[task, 7], tasks[task, 8]
        if kind <= 1:
            fresh = add_terms(out, terms, term_factors, tasks[task, 3], tasks[task, 4], left, shift, width, True)
            fresh = add_narrow(out, narrows, narrow_factors, tasks[task, 5], tasks[task, 6], left, shift, width, fresh)
            fresh = add_products(out, products, product_factors, first, last, left, shift, width, fresh)
            if fresh:
                for k in range(width):
                    out[k] = zero
            if kind == 1:
                numbers[tasks[task, 1]] += _total(out, width)
        else:
            a = _pointer(_at(products, first, 0, left, shift), zero)
            b = _pointer(_at(products, first, 2, left, shift), zero)
            if kind == 2:
                for k in range(width):
                    out[k] = a[k] / b[k]
            elif kind == 3:
                for k in range(width):
                    out[k] = np.sqrt(a[k])
            else:
                short = _pointer(_at(tasks, task, 1, left, shift), narrow)
                for k in range(width):
                    short[k] = np.float32(a[k])

    @numba.njit(_SIGNATURE, nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
    def run(
        tasks,
        starts,
        terms,
        term_factors,
        narrows,
        narrow_factors,
        products,
        product_factors,
        numbers,
        begin,
        end,
        panel,
        block,
        shift,
    ):
        scratch = np.empty(block, dtype=number)
        place = scratch.ctypes.data
        for first in range(begin, end, panel):
            for agent in range(len(starts) - 1):
                for left in range(first, min(first + panel, end), block):
                    width = min(block, end - left)
                    for task in range(starts[agent], starts[agent + 1]):
                        do_task(
                            tasks,
                            task,
                            terms,
                            term_factors,
                            narrows,
                            narrow_factors,
                            products,
                            product_factors,
                            numbers,
                            left,
                            width,
                            shift,
                            place,
                        )

    return run
