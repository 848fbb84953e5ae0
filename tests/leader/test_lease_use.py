"""The etcd lease of a record: one at a time, fresh enough for what is written under it."""

from __future__ import annotations

from leader.lease_use import LeaseUse


def test_a_lease_is_usable_for_a_third_of_its_time_from_the_sending() -> None:
    use = LeaseUse(ttl_seconds=3)
    assert use.usable(10.0) == 0 == use.lease_id
    use.granted(7, sent=10.0)
    assert use.usable(10.9) == 7 and use.usable(11.0) == 0


def test_a_keepalive_prolongs_and_never_shortens() -> None:
    use = LeaseUse(ttl_seconds=3)
    use.granted(7, sent=10.0)
    use.kept(7, 3, sent=12.0)
    assert use.usable(12.9) == 7
    use.kept(7, 3, sent=10.5)
    assert use.usable(12.9) == 7, "an answer that came late"


def test_a_lease_that_grew_old_is_not_given_up_while_it_may_live() -> None:
    """Or a renewal under it that arrives late would tie the record to a lease that ends soon."""
    use = LeaseUse(ttl_seconds=3)
    use.granted(7, sent=10.0)
    assert use.usable(100.0) == 0 and use.lease_id == 7
    use.kept(7, 0, sent=100.0)
    assert use.lease_id == 0, "etcd says that it is gone"


def test_news_of_another_lease_change_nothing() -> None:
    use = LeaseUse(ttl_seconds=3)
    use.granted(7, sent=10.0)
    use.gone(6)
    use.kept(6, 0, sent=10.5)
    use.kept(6, 3, sent=20.0)
    assert use.lease_id == 7 and use.usable(10.9) == 7 and use.usable(11.5) == 0
