"""Makes the loop's tables agent by agent. Compiled, because there is an entry for every link and step."""

import numba
import numpy as np

from gossamer.fused.kernel import NARROW, NUMBER, SUM, TASK_WIDTH

# The columns of an operand: its address, the bytes from agent to agent and from column to column, whether it is float32
# in a program of float64, and the destination that computes it, or -1.
OPERAND_WIDTH = 5
# The columns of a destination: its kind, its address (0 for a scratch block), bytes from agent to agent and from column
# to column, the address and bytes of its copy in float32 (0 if none), and where its symbols begin and end.
DESTINATION_WIDTH = 8
# The columns of a symbol, a term for all agents: operands a and b (-1 if none), table of links, row of factors.
SYMBOL_WIDTH = 4


@numba.njit(cache=True, error_model="numpy")
def expand(
    agents, destinations, symbols, factors, operands, rows, table_starts, senders, weights, scratch, scratch_bytes, most
):
    """Return the tables of `kernel.run`; `most` bounds the number of terms."""
    count = len(destinations)
    tasks = np.empty((agents * count * 2, TASK_WIDTH), np.int64)
    terms, term_factors = np.empty((most, 2), np.int64), np.empty(most)
    narrows, narrow_factors = np.empty((most, 2), np.int64), np.empty(most)
    products, product_factors = np.empty((most + agents * count, 4), np.int64), np.empty(most + agents * count)
    task = term = narrow = pair = 0
    zero, address, stride = np.empty(count, np.bool_), np.empty(count, np.int64), np.empty(count, np.int64)
    for agent in range(agents):
        slot = 0
        for number in range(count):
            kind, place = destinations[number, 0], destinations[number, 1]
            term_begin, narrow_begin, pair_begin = term, narrow, pair
            for symbol in range(destinations[number, 6], destinations[number, 7]):
                factor, row = factors[symbol], symbols[symbol, 3]
                if row >= 0:
                    factor *= rows[row, agent]
                if factor == 0.0:
                    continue
                a, b, table = symbols[symbol, 0], symbols[symbol, 1], symbols[symbol, 2]
                begin, end = 0, 1
                if table >= 0:
                    begin, end = table_starts[table, agent], table_starts[table, agent + 1]
                for link in range(begin, end):
                    share, who = factor, agent
                    if table >= 0:
                        share, who = factor * weights[link], senders[link]
                        if share == 0.0:
                            continue
                    made = operands[a, 4]
                    if made >= 0:
                        if zero[made]:
                            continue
                        first, first_step = address[made], stride[made]
                    else:
                        first, first_step = operands[a, 0] + who * operands[a, 1], operands[a, 2]
                    if b < 0:
                        if operands[a, 3]:
                            narrows[narrow, 0], narrows[narrow, 1], narrow_factors[narrow] = first, first_step, share
                            narrow += 1
                        else:
                            terms[term, 0], terms[term, 1], term_factors[term] = first, first_step, share
                            term += 1
                        continue
                    made = operands[b, 4]
                    if made >= 0:
                        if zero[made]:
                            continue
                        second, second_step = address[made], stride[made]
                    else:
                        second, second_step = operands[b, 0] + who * operands[b, 1], operands[b, 2]
                    products[pair, 0], products[pair, 1] = first, first_step
                    products[pair, 2], products[pair, 3] = second, second_step
                    product_factors[pair] = share
                    pair += 1
            empty = term == term_begin and narrow == narrow_begin and pair == pair_begin
            if kind == NUMBER:
                zero[number] = True
                if empty:
                    continue
                to, step = place + agent, 0
            else:
                copied = destinations[number, 4] != 0
                zero[number] = empty and place == 0 and not copied
                if zero[number]:
                    continue
                if empty:
                    kind = SUM
                if place == 0:
                    to, step = scratch + slot * scratch_bytes, 0
                    slot += 1
                else:
                    to, step = place + agent * destinations[number, 2], destinations[number, 3]
                address[number], stride[number] = to, step
            tasks[task] = (
                kind, to, step, term_begin, term, narrow_begin, narrow, pair_begin, pair,
            )  # fmt: skip
            task += 1
            if kind != NUMBER and destinations[number, 4] != 0:
                products[pair, 0], products[pair, 1], products[pair, 2], products[pair, 3] = to, step, to, step
                tasks[task] = (
                    NARROW, destinations[number, 4] + agent * destinations[number, 5], 4, 0, 0, 0, 0, pair, pair + 1,
                )  # fmt: skip
                pair += 1
                task += 1
    return tasks[:task], terms, term_factors, narrows, narrow_factors, products, product_factors
