import hypothesis.strategies as st
import torch
from hypothesis import given

from gossamer.runtime.message import checksum, unpack_header
from gossamer.runtime.transport.base import KEPT
from gossamer.runtime.transport.sent_messages import SentMessages
from peers import payload, stamp

LENGTH, AGENTS = 24, 4


def put(sent, sequence):
    sent.publish(stamp(0, 1, sequence), [payload(LENGTH, sequence)])


def whole(message):
    (found, length, total) = unpack_header(message.header, AGENTS)
    same = torch.equal(message.payload, payload(LENGTH, found.sequence))
    return found.order == message.order and length == LENGTH and total == checksum(message.payload) and same


def test_what_is_lent_is_newer_and_the_newest_or_the_oldest_kept():
    sent = SentMessages(LENGTH, AGENTS)
    assert sent.lend(None, False) is None
    for sequence in range(5):
        put(sent, sequence)
    assert [sent.lend(None, in_order).message.order for in_order in (False, True)] == [(1, 4), (1, 2)]
    assert sent.lend((1, 2), True).message.order == (1, 3)
    assert sent.lend((0, 99), True).message.order == (1, 2)
    assert sent.lend((1, 4), False) is None and sent.lend((2, 0), False) is None


# Publish, lend to a receiver (in order or not), have one loan ended or taken back.
often = ["publish", "lend", "lend in order"]
actions = st.lists(st.sampled_from([*often, *often, "sent", "back"]), min_size=30, max_size=100)


@given(actions, st.randoms(use_true_random=False))
def test_what_is_lent_or_kept_is_never_written_over_and_the_buffers_are_bounded(taken, random):
    sent, loans, sequence = SentMessages(LENGTH, AGENTS), [], 0
    for action in taken:
        if action == "publish":
            put(sent, sequence)
            sequence += 1
        elif action.startswith("lend"):
            loan = sent.lend(None, action == "lend in order")
            if loan is not None:
                loans.append(loan)
                if random.random() < 0.8:
                    loan.sent = lambda: False
        elif loans:
            loan = loans.pop(random.randrange(len(loans)))
            if action == "sent":
                loan.sent = lambda: True
            else:
                sent.take_back(loan)
        assert all(whole(loan.message) for loan in loans)
        assert len(sent.buffers) <= AGENTS - 1 + KEPT + 1
        kept = [
            sent.lend((1, before), True) for before in range(max(0, sequence - KEPT) - 1, sequence - 1) if before >= 0
        ]
        for loan in filter(None, kept):
            assert whole(loan.message)
            sent.take_back(loan)


def test_when_every_loan_is_stuck_another_message_waits_and_is_lent_later():
    sent, stuck = SentMessages(LENGTH, AGENTS), []
    for sequence in range(AGENTS - 1):
        put(sent, sequence)
        stuck.append(sent.lend(None, False))
        stuck[-1].sent = lambda: False
    put(sent, 9)
    assert sent.lend(None, False) is None
    stuck[0].sent = lambda: True
    assert sent.lend(None, False).message.order == (1, 9)


def test_no_more_buffers_than_needed_when_nobody_asks():
    sent = SentMessages(LENGTH, AGENTS)
    for sequence in range(100):
        put(sent, sequence)
    assert len(sent.buffers) == KEPT + 1
