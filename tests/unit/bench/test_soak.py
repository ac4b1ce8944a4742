"""The soak's own account of its messages."""

from bench.soak import Ledger


def test_a_message_has_a_body_of_its_own_whatever_interrupts_its_making() -> None:
    """Two handlers, one in the midst of the other, made the same body: it looked stored twice."""
    made, depth = [], [0]

    class Owner(str):
        """The interpreter looks for signals behind a call: here a handler makes a message, too."""

        __slots__ = ()

        def __format__(self, spec: str) -> str:
            if depth[0] < 3:
                depth[0] += 1
                made.append(ledger.new("h").body)
            return str(self)

    ledger = Ledger(Owner("main"))
    made.append(ledger.new("h").body)
    assert len(set(made)) == len(made) == len(ledger.fates) == 4


def test_messages_of_two_children_differ_also_if_the_system_gives_a_number_twice() -> None:
    """In 20 minutes of forks process numbers come round: their messages looked stored twice."""
    one, two = Ledger("child1"), Ledger("child2")
    assert one.new().body != two.new().body
