//! Rules: which flows pass between members of the networks, and from peers to this node.
//!
//! The records of each network have rules, which its administrators sign. The configuration has
//! local rules (`rules.local`), which go first: those that deny, then those that allow. A peer that
//! was added by hand and shares no network with this node passes unless a local rule denies it. A tag in a
//! local rule is that of one network, `tag:NETWORK/NAME`. Rules name guests by their tags.
//!
//! [`compile`](compile::compile) makes of them what the packet path applies, and [`why`](why::why)
//! explains what they say about one flow.

pub mod compile;
mod local;
mod party;
mod text;
pub mod why;

pub use local::{unclear, unused_tags};
pub use text::{from_words, in_words, unknown_name, with_parties};

#[cfg(test)]
mod tests;
