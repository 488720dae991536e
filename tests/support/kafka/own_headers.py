"""Headers of other clients that look like those by which streams carry Kafka's keys and nulls, or nearly so."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.model.records import Header
from penstock_kafka.codec.carrying import KEY, NULL

__all__ = ["OWN_HEADERS"]

OWN_HEADERS: st.SearchStrategy[tuple[Header, ...]] = st.lists(
    st.builds(
        Header,
        st.sampled_from([KEY, NULL, b"a"]),
        st.sampled_from([b"", b"0", b"1", b"value", b"value,0", b"0,1", b"1,0", b"00", b","]),
    ),
    max_size=4,
).map(tuple)
