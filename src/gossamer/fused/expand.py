"""Makes the loop's tables agent by agent. Compiled, because there is an entry for every link and step."""

import numba
import numpy as np

from gossamer.fused.kernel import INNER, NARROW, NUMBER, SUM, TASK_WIDTH

# The columns of an operand: its address, the bytes from agent to agent and from column to column, whether it is float32
# in a program of float64, and the destination that computes it, or -1.
OPERAND_WIDTH = 5
# The columns of a destination: its kind, its address (0 for a scratch block), bytes from agent to agent and from column
# to column, the address and bytes of its copy in float32 (0 if none), and where its symbols begin and end.
DESTINATION_WIDTH = 8
# The columns of a symbol, a term for all agents: operands a and b (-1 if none), table of links, row of factors.
SYMBOL_WIDTH = 4


@numba.njit(cache=True, error_model="numpy")
def _mark(agent, destinations, symbols, factors, operands, rows, table_starts, weights, active, zero, needed):
    """Mark an agent's symbols that are not zero, its destinations that are zero, and those that something needs."""
    for number in range(len(destinations)):
        empty = True
        for symbol in range(destinations[number, 6], destinations[number, 7]):
            row, table = symbols[symbol, 3], symbols[symbol, 2]
            active[symbol] = factors[symbol] != 0.0 and (row < 0 or rows[row, agent] != 0.0)
            for end in range(2):
                operand = symbols[symbol, end]
                if operand >= 0 and operands[operand, 4] >= 0 and zero[operands[operand, 4]]:
                    active[symbol] = False
            if table >= 0 and active[symbol]:
                heard = False
                for link in range(table_starts[table, agent], table_starts[table, agent + 1]):
                    heard = heard or weights[link] != 0.0
                active[symbol] = heard
            empty = empty and not active[symbol]
        kept = destinations[number, 0] != NUMBER and (destinations[number, 1] != 0 or destinations[number, 4] != 0)
        zero[number] = empty and not kept
        needed[number] = kept or (destinations[number, 0] == NUMBER and not empty)
    for number in range(len(destinations) - 1, -1, -1):
        if needed[number]:
            for symbol in range(destinations[number, 6], destinations[number, 7]):
                for end in range(2):
                    operand = symbols[symbol, end]
                    if active[symbol] and operand >= 0 and operands[operand, 4] >= 0:
                        needed[operands[operand, 4]] = True


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
    starts = np.zeros(agents + 1, np.int64)  # of the tasks, by agent
    zero, needed = np.empty(count, np.bool_), np.empty(count, np.bool_)
    active = np.empty(len(symbols), np.bool_)
    address, stride = np.empty(count, np.int64), np.empty(count, np.int64)
    for agent in range(agents):
        _mark(
            agent, destinations, symbols, factors, operands, rows, table_starts, weights, active, zero, needed
        )  # fmt: skip
        slot = 0
        for number in range(count):
            if not needed[number]:
                continue
            kind, place = destinations[number, 0], destinations[number, 1]
            term_begin, narrow_begin, pair_begin = term, narrow, pair
            for symbol in range(destinations[number, 6], destinations[number, 7]):
                if not active[symbol]:
                    continue
                factor, row = factors[symbol], symbols[symbol, 3]
                if row >= 0:
                    factor *= rows[row, agent]
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
                        second, second_step = address[made], stride[made]
                    else:
                        second, second_step = operands[b, 0] + who * operands[b, 1], operands[b, 2]
                    products[pair, 0], products[pair, 1] = first, first_step
                    products[pair, 2], products[pair, 3] = second, second_step
                    product_factors[pair] = share
                    pair += 1
            empty = term == term_begin and narrow == narrow_begin and pair == pair_begin
            task_kind = kind
            if kind == NUMBER:
                to, step = place + agent, 0
                if term == term_begin and narrow == narrow_begin and pair == pair_begin + 1:
                    task_kind = INNER  # nothing needs to be stored
            else:
                if empty:
                    task_kind = SUM  # of nothing: zeros
                if place == 0:
                    to, step = scratch + slot * scratch_bytes, 0
                    slot += 1
                else:
                    to, step = place + agent * destinations[number, 2], destinations[number, 3]
                address[number], stride[number] = to, step
            tasks[task] = (
                task_kind, to, step, term_begin, term, narrow_begin, narrow, pair_begin, pair,
            )  # fmt: skip
            task += 1
            if kind != NUMBER and destinations[number, 4] != 0:
                products[pair, 0], products[pair, 1], products[pair, 2], products[pair, 3] = to, step, to, step
                tasks[task] = (
                    NARROW, destinations[number, 4] + agent * destinations[number, 5], 4, 0, 0, 0, 0, pair, pair + 1,
                )  # fmt: skip
                pair += 1
                task += 1
        starts[agent + 1] = task
    return tasks[:task], starts, terms, term_factors, narrows, narrow_factors, products, product_factors
