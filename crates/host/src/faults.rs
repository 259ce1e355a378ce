//! Faults of a host: what keeps packets from passing although the node has set up all that is its own.

pub mod packet_filter;
