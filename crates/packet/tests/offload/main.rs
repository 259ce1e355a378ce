//! Split, coalesce and ICMPv6 errors against slow models that share no code with the crate.
#![cfg(test)]

mod coalesce;
mod icmp;
mod model;
mod split;
